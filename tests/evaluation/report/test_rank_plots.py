"""Plots of a leaderboard and of rows: the drawn values equal the data."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex

from evaluation.analyses.sources import TaskResults
from evaluation.report import plots, rank_plots
from evaluation.results.metrics_json import TeamMetrics
from tests.evaluation.tasks import HPV, MASK, SEGMENTATION, STATUS

COLOURS = {"ann": "#ff0000", "bea": "#0000ff"}


@pytest.fixture
def figure(monkeypatch):
    """The last figure that was turned into SVG."""
    last = SimpleNamespace(figure=None)

    def capture(figure, **_):
        last.figure = figure
        return "<svg/>"

    monkeypatch.setattr(rank_plots, "svg_text", capture)
    monkeypatch.setattr(plots, "svg_text", capture)
    return last


def ranks(**of_team):
    teams = {
        name: {"times_at_rank": times, "mean": 1.0, "ci95_low": 1, "ci95_high": 2} for name, times in of_team.items()
    }
    return {"teams": teams, "kendall_tau": {"mean": 0.5, "ci95_low": -1.0, "ci95_high": 1.0, "replicates": 4}}


@pytest.fixture
def results():
    """Two teams: ann first in three of four rankings; ann better than bea with p 0.01, bea than ann with 0.9996."""
    pairs = [{"team": "ann", "than": "bea", "p_holm": 0.01}, {"team": "bea", "than": "ann", "p_holm": 0.9996}]
    alone = ranks(ann={"1": 4}, bea={"2": 4})
    board = {
        "official": "o",
        "metrics": {"m": "M", "n": "N"},
        "teams": [{"team": "ann"}, {"team": "bea"}],
        "stability": {
            "bootstraps": 4,
            "rankings": {"o": ranks(ann={"1": 3, "2": 1}, bea={"1": 1, "2": 3})},
            "metrics": {"m": alone, "n": alone},
        },
        "comparisons": {name: {"test": "t", "pairs": pairs} for name in ("m", "n")},
    }
    return TaskResults(SEGMENTATION, board, [])


def test_blobs_lie_at_ranks_and_grow_with_their_share(figure, results):
    """The official panel: areas 3 : 1 for ann at ranks 1 and 2, 1 : 3 for bea in the line below."""
    rank_plots.stability_plot(results, COLOURS)
    axes = figure.figure.axes
    assert len(axes) == 3
    for place, sizes in enumerate(([3, 1], [1, 3])):
        blobs = axes[0].collections[place]
        assert blobs.get_offsets().tolist() == [[1, place], [2, place]]
        assert (blobs.get_sizes() / blobs.get_sizes().min()).tolist() == pytest.approx(sizes)
    assert axes[0].get_title(loc="left") == "Official ranking\ntau 0.500 [-1.000, 1.000]"
    assert to_hex(axes[0].collections[0].get_facecolor()[0]) == COLOURS["ann"]


def test_a_map_colours_significant_pairs(figure, results):
    rank_plots.significance_plot(results)
    first = figure.figure.axes[0]
    better = [patch for patch in first.patches if to_hex(patch.get_facecolor()) == rank_plots._BETTER]
    assert [patch.get_xy().mean(axis=0).round().tolist() for patch in better] == [[1.0, 0.0]]
    assert [text.get_text() for text in first.texts] == [".010", "1"]


def test_without_bootstrap_rankings_or_rivals_there_is_nothing_to_draw(results):
    alone = {**results.board, "teams": results.board["teams"][:1]}
    for board in ({**results.board, "stability": None}, alone):
        assert rank_plots.rank_plots(replace(results, board=board), COLOURS) == []


def team(rows):
    return TeamMetrics("ann", {}, rows, {}, [], {})


def test_dsc_by_volume_bins(figure):
    """Six cases of 1 to 6 ml with DSC 0.1 to 0.6: the first bin holds two, at 1.5 ml and 0.15."""
    rows = [{"gtvp_dsc": number / 10, "gtvp_reference_mm3": 1000.0 * number} for number in range(1, 7)]
    assert plots.volume_plot(TaskResults(SEGMENTATION, {}, [team(rows)]), MASK, COLOURS)
    line = figure.figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [1.5, 3, 4, 5, 6]
    assert line.get_ydata().tolist() == pytest.approx([0.15, 0.3, 0.4, 0.5, 0.6])
    assert plots.volume_plot(TaskResults(SEGMENTATION, {}, [team(rows[:4])]), MASK, COLOURS) == ""


def test_calibration_of_those_with_a_probability(figure):
    """0.1 and 0.15 in the first fifth, one of two positive; 0.9 in the last, positive; one without a probability."""
    values = ((0.1, True), (0.15, False), (0.9, True), (None, True))
    rows = [{"predicted_probability": probability, "hpv_positive": positive} for probability, positive in values]
    assert plots.calibration_plot(TaskResults(HPV, {}, [team(rows)]), STATUS, COLOURS)
    line = figure.figure.axes[0].lines[1]
    assert line.get_xdata() == pytest.approx([0.125, 0.9])
    assert line.get_ydata() == pytest.approx([0.5, 1.0])
    assert plots.calibration_plot(TaskResults(HPV, {}, [team(rows[3:])]), STATUS, COLOURS) == ""
