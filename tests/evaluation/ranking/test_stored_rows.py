"""Rank without cases from stored rows, and the rows that a participant may receive."""

from __future__ import annotations

import csv
import json

import pytest

import evaluation
from contract.errors import HecktorError
from evaluation.ranking.cli import main
from tests.evaluation.tables import read_lines, score_risks

TRUTH = {"P1": (1, 100), "P2": (1, 200), "P3": (0, 300), "P4": (1, 400), "P5": (1, 450), "P6": (0, 500)}
RISKS = {"first": (9, 3, 3.5, 2, 6, 1), "second": (3, 9, 2, 5, 1, 4)}


def write_results(folder, cases):
    """Write both teams' metrics.json of these cases."""
    for team, risks in RISKS.items():
        of_cases = {case: risk for case, risk in zip(TRUTH, risks, strict=True) if case in cases}
        score_risks(folder / team, {case: TRUTH[case] for case in of_cases}, of_cases, bootstraps=50)
    return folder


def rank(results, output, *options):
    main([str(results), "--task", "2", "--bootstraps", "50", "--output", str(output), *options])
    return json.loads((output / "leaderboard.json").read_text())


def test_a_board_without_cases_equals_the_board_of_a_smaller_cohort(tmp_path, capsys):
    whole = write_results(tmp_path / "whole", TRUTH)
    smaller = write_results(tmp_path / "smaller", ["P1", "P3", "P4", "P6"])
    content = rank(whole, tmp_path / "found", "--without-case", "P5", "--without-case", "P2")
    assert "\nleft out: P2, P5\n" in capsys.readouterr().out
    expected = rank(smaller, tmp_path / "expected")
    assert "left out" not in capsys.readouterr().out
    assert content["provenance"].pop("without_cases") == ["P2", "P5"]
    assert {**content, "files": {}} == {**expected, "files": {}}
    assert content["files"] == {}
    teams = {team: whole / team / "metrics.json" for team in RISKS}
    board = evaluation.rank(teams, bootstraps=50, without_cases=["P5", "P2"]).to_dict()
    assert board.pop("provenance") == {**content["provenance"], "without_cases": ["P2", "P5"]}
    assert board == {key: value for key, value in content.items() if key != "provenance"}
    message = "--without-case: found P9, expected cases of the results, such as P1, P2, P3"
    with pytest.raises(HecktorError, match=message):
        rank(whole, tmp_path / "board", "--without-case", "P9")
    with pytest.raises(HecktorError, match="all cases"):
        rank(whole, tmp_path / "board", *(word for case in TRUTH for word in ("--without-case", case)))


ROWS = {
    "masks": {"case", "error"}
    | {
        f"{label}_{key}"
        for label in ("gtvp", "gtvn")
        for key in ("dsc", "predicted_voxels", "predicted_mm3", "hd95_mm", "asd_mm", "surface_dsc")
    },
    "risks": {"case", "error", "risk"},
    "classes": {"case", "error", "predicted_hpv_positive", "predicted_probability"},
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_for_participants_hold_nothing_of_the_reference(valid_metrics, tmp_path, capsys, kind):
    content = valid_metrics(kind)
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "metrics.json").write_text(json.dumps(content))
    rows = tmp_path / "rows.csv"
    task = content["provenance"]["task"]
    main([str(tmp_path / "A"), "--task", task, "--output", str(tmp_path / "board"), "--rows-of", f"A={rows}"])
    assert f"written: {rows}\n" in capsys.readouterr().out
    lines = read_lines(rows)
    assert set(lines[0]) == ROWS[kind]
    assert [line["case"] for line in lines] == [row["case"] for row in content["results"]]
    with pytest.raises(HecktorError, match="--rows-of: team 'B', expected one of A"):
        main([str(tmp_path / "A"), "--task", task, "--output", str(tmp_path / "board"), "--rows-of", f"B={rows}"])


def test_rows_of_several_answers_hold_no_outcome(valid_metrics, tmp_path):
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "metrics.json").write_text(json.dumps(valid_metrics("four_answers")))
    rows = tmp_path / "rows.csv"
    main([str(tmp_path / "A"), "--output", str(tmp_path / "board"), "--rows-of", f"A={rows}"])
    with rows.open(newline="") as file:
        header = next(csv.reader(file))
    own = ("error", "risk", "predicted_t_stage", "predicted_n_stage", *ROWS["masks"] - {"case"})
    assert all(column == "case" or column.endswith(own) for column in header)
    for secret in ("reference", "intersection", "lesions", "rfs_days", "relapse", "voxel_volume", "precision", "state"):
        assert not [column for column in header if secret in column]
