"""Figures of a report as SVG and PDF files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaluation.editions.profile import load_profile
from reporting.analyses.analysis import Analysis
from reporting.analyses.case_ranks import compare_two
from reporting.analyses.pipeline import analyse_task
from reporting.analyses.sources import find_results
from reporting.analyses.tasks import compare_tasks
from reporting.report.figures import KINDS, Chart, draw_chart, write_figures
from tests.evaluation.challenge import ChallengeSize, write_challenge

SCRIPTS = Path(__file__).resolve().parents[3] / "reporting" / "page"


def make_chart(kind, columns, rows, **chart):
    return Chart(Analysis("a", "A title", "", columns, rows, {"kind": kind, **chart}), {"Alpha": "#1f86d6"})


def test_python_draws_every_kind_that_the_page_draws():
    script = (SCRIPTS / "charts.js").read_text(encoding="utf-8")
    (names,) = re.findall(r"^const KINDS = \{ (.+) \};", script, flags=re.MULTILINE)
    assert set(KINDS) == set(names.split(", "))


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="a: unknown kind of chart 'pie'"):
        draw_chart(make_chart("pie", {"x": "X"}, [{"x": 1}]))


def test_every_kind_is_drawn(tmp_path):
    """Draw the first analysis of each kind and task; each facet has a panel."""
    write_challenge(tmp_path / "board", "hecktor2021", ChallengeSize(teams=3, cases=40, bootstraps=5, rankings=9))
    results = find_results(tmp_path / "board", load_profile("hecktor2021"))
    analyses = compare_tasks(results)
    for task in results:
        analyses_of_task = [*compare_two(task), *analyse_task(task)]
        analyses += {analysis.chart.get("kind"): analysis for analysis in reversed(analyses_of_task)}.values()
    charts = [Chart(analysis, {}) for analysis in analyses if analysis.chart]
    for chart in charts:
        assert len(draw_chart(chart).axes) == max(1, len(chart.list_categories("facet")))
    assert {chart.kind for chart in charts} == set(KINDS)


def test_a_name_is_text_and_files_are_equal_in_each_run(tmp_path):
    """Dollar signs start no formula, and letters that the font lacks are letters of the SVG."""
    rows = [{"team": name, "value": 0.5, "low": 0.4, "high": 0.6} for name in ("$x$ <b>", "\u533b\u9662")]
    chart = make_chart(
        "intervals", {"team": "Team", "value": "Dice"}, rows, y="team", x="value", low="low", high="high"
    )
    first, _ = write_figures(tmp_path / "1", {"task1": [chart.analysis]}, {})
    again, _ = write_figures(tmp_path / "2", {"task1": [chart.analysis]}, {})
    text = first.read_text(encoding="utf-8")
    assert "$x$ &lt;b&gt;" in text
    assert "\u533b\u9662" in text
    assert text == again.read_text(encoding="utf-8")


def test_intervals_lie_at_their_values():
    """Alpha is on the first line, at 0.3 within 0.2 to 0.9, and Beta on the second line, at 0.5 without an interval."""
    rows = [{"team": "Alpha", "v": 0.3, "a": 0.2, "b": 0.9}, {"team": "Beta", "v": 0.5, "a": None, "b": None}]
    chart = make_chart(
        "intervals", {"team": "Team", "v": "Dice"}, rows, y="team", x="v", low="a", high="b", domain=[0, 1]
    )
    (axes,) = draw_chart(chart).axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [
        [[0.2, 0.0], [0.9, 0.0]],
        [[0.3, 0.0]],
        [[0.5, 1.0]],
    ]
    assert [line.get_color() for line in axes.lines] == ["#1f86d6", "#1f86d6", "#7c8794"]
    assert axes.get_xlim() == pytest.approx((-0.03, 1.03))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Alpha", "Beta"]
    assert axes.get_ylim() == (1.5, -0.5)


def test_a_panel_of_each_facet_and_an_untested_pair():
    """Columns of a map of pairs have the order of its lines; a pair without a p has a cross."""
    pairs = [("a", "b", 0.02), ("b", "a", None)]
    rows = [{"metric": metric, "team": t, "than": u, "p": p} for metric in ("M", "N") for t, u, p in pairs]
    chart = make_chart("matrix", {"p": "p"}, rows, x="than", y="team", value="p", facet="metric", scale="significance")
    first, second = draw_chart(chart).axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["M", "N"]
    assert [(text.get_position(), text.get_text()) for text in first.texts] == [((1, 0), ".020"), ((0, 1), "\u00d7")]
