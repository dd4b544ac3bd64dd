"""Tables for papers: decimals that intervals justify, LaTeX, and the values of all cases."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from contract.errors import HecktorError
from evaluation.ranking.cli import main
from evaluation.ranking.paper import choose_decimals, format_board_latex, format_figures
from evaluation.ranking.table import format_board, format_board_csv
from evaluation.results.documents import MetricFigures, MetricsJson
from evaluation.results.metrics_json import remove_rows
from reporting.page.html import make_value_cell
from tests.evaluation.builders import make_board
from tests.evaluation.challenge import ChallengeSize, write_challenge
from tests.evaluation.tables import read_lines


def make_entry(team, rank, value, low, high):
    figures = {"value": value, "ci95_low": low, "ci95_high": high, "rank": rank}
    return {"team": team, "rank": rank, "metrics": {"m": figures}}


# Half of the intervals: 0.018, 0.0204 and 0.3.
ENTRIES = [
    make_entry("Al_pha", 1, 0.960123, 0.942049, 0.978049),
    make_entry("B", 2, 0.9, 0.8801, 0.9209),
    make_entry("C", 3, 0.5, 0.2, 0.8),
]


@pytest.mark.parametrize(
    ("entries", "decimals"),
    [
        (ENTRIES, 3),
        (ENTRIES[2:], 2),
        ([make_entry("D", 1, 31.25, 12.0, 52.0)], 0),
        ([make_entry("E", 1, 0.5, None, None)], None),
    ],
)
def test_half_an_interval_has_two_digits(entries, decimals):
    """The median half lengths are 0.0204, 0.3 and 20; the last entry has no interval."""
    assert choose_decimals(make_board({"m": "M"}, entries), "m") == decimals


def test_a_value_with_its_interval():
    assert format_figures(MetricFigures.from_values(0.960123, 0.942049, 0.978049), 3) == "0.960 (0.942-0.978)"
    assert format_figures(MetricFigures.from_values(0.123456789), None) == "0.123457"
    assert format_figures(MetricFigures.from_values(3.0, 2.0, math.inf), 1) == "3.0 (2.0-inf)"
    assert format_figures(MetricFigures.from_values(None), 3) == ""


def test_the_leaderboard_in_latex():
    """The best value is bold, signs of LaTeX are text, and an entry without a rank has a dash.

    In LaTeX's usual font `<`, `>` and `|` print other signs.
    """
    outside = {"team": "a>b|c", "metrics": {"m": {"value": 0.8, "ci95_low": 0.781, "ci95_high": 0.819}}, "place": 1}
    text = format_board_latex(make_board({"m": "x^2 & < ~ \\"}, ENTRIES[:1], out_of_competition=[outside]))
    assert text.splitlines() == [
        r"\begin{tabular}{rlc}",
        r"\toprule",
        r"Rank & Team & x\textasciicircum{}2 \& \textless{} \textasciitilde{} \textbackslash{} \\",
        r"\midrule",
        r"1 & Al\_pha & \textbf{0.960 (0.942--0.978)} \\",
        r"-- & a\textgreater{}b\textbar{}c & 0.800 (0.781--0.819) \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_zero_has_no_sign():
    entries = [make_entry("A", 1, -0.00001, -0.00002, 0.00001), make_entry("B", 2, -0.0, -0.5, 0.5)]
    board = make_board({"m": "M"}, entries)
    texts = [format_board(board), format_board_csv(board), format_board_latex(board)]
    texts += [format_figures(MetricFigures.from_values(-0.0), None), str(make_value_cell(-0.0001, -0.0, 0.1))]
    assert not [text for text in texts if re.search(r"(?<![\d-])-0(\.0+)?(?![.\d])", text)]


@pytest.fixture
def files(tmp_path):
    write_challenge(tmp_path, "hecktor2026", ChallengeSize(2, 10, bootstraps=5, rankings=0))
    return sorted(map(str, (tmp_path / "task1").glob("*/metrics.json")))


def test_files_for_a_paper_are_asked_for_by_name(files, tmp_path):
    """The values of ten patients of two teams equal those in the rows."""
    out = tmp_path / "board"
    assert main([*files, "--bootstraps", "20", "--output", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["leaderboard.csv", "leaderboard.json"]
    assert main([*files, "--bootstraps", "20", "--output", str(out), "--latex", "--cases"]) == 0
    assert (out / "leaderboard.tex").read_text().startswith(r"\begin{tabular}{rl")
    lines = read_lines(out / "cases.csv")
    assert len(lines) == 20
    row = json.loads((tmp_path / "task1" / lines[0]["team"] / "metrics.json").read_text())["results"][0]
    assert lines[0]["case"] == row["case"]
    assert float(lines[0]["segmentation_gtvp_dsc"]) == row["segmentation"]["gtvp"]["dsc"]
    assert float(lines[0]["rfs_risk"]) == row["rfs"]["risk"]


def test_results_without_rows_have_no_cases(files, tmp_path):
    for file in map(Path, files):
        file.write_text(json.dumps(remove_rows(MetricsJson.model_validate_json(file.read_text())).to_dict()))
    with pytest.raises(HecktorError, match="--cases: results without rows"):
        main([*files, "--without-rows", "--output", str(tmp_path / "board"), "--cases"])
    assert not (tmp_path / "board").exists()
