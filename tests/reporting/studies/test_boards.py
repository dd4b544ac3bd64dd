"""Two leaderboards side by side: values of the HECKTOR 2025 overview (3.2.2) and ranks by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import evaluation
from contract.errors import HecktorError
from contract.io.files import format_json
from reporting.studies.cli import main
from tests.reporting.studies.runs import run_study

# MEDAI fell from 0.706 to 0.528 and SIMS-LIFE rose from 0.583 to 0.658; the two others are made up.
C_INDEX = {"MEDAI": (0.706, 0.528), "SIMS-LIFE": (0.583, 0.658), "A": (0.65, 0.60), "B": (0.60, 0.55)}


@pytest.fixture
def boards(tmp_path):
    """Rank the values of each board, and return both as options."""

    def write(values=C_INDEX, tasks=("rfs", "rfs"), extra=""):
        options = []
        for place, name in enumerate(("validation", "test")):
            column = {"rfs": "c_index", "hpv": "balanced_accuracy,specificity"}[tasks[place]]
            lines = [
                f"{team},{','.join([str(pair[place])] * (column.count(',') + 1))}," for team, pair in values.items()
            ]
            lines += [extra] if extra else []
            table = tmp_path / f"{name}.csv"
            table.write_text("\n".join([f"team,{column},out_of_competition", *lines]), encoding="utf-8")
            path = tmp_path / name / "leaderboard.json"
            path.parent.mkdir()
            path.write_text(format_json(evaluation.rank(table, task=tasks[place]).to_dict()), encoding="utf-8")
            options.append(f"{name}={path}")
        return options

    return write


def test_differences_and_tau(boards, tmp_path, capsys):
    """Validation ranks MEDAI, A, B, SIMS-LIFE, test SIMS-LIFE, A, B, MEDAI: of six pairs only A before B agrees.

    Tau is (1 - 5) / 6; its p is exact: 8 of 24 orders have a tau of at least 2/3 in absolute value.
    """
    content = run_study("boards", tmp_path / "out", *boards())
    by_team = {line["team"]: line for line in content["teams"]}
    assert list(by_team) == ["SIMS-LIFE", "A", "B", "MEDAI"]
    assert by_team["MEDAI"]["c_index_difference"] == pytest.approx(-0.178)
    assert by_team["SIMS-LIFE"]["c_index_difference"] == pytest.approx(0.075)
    assert [by_team["MEDAI"][f"rank_{part}"] for part in ("validation", "test", "difference")] == [1, 4, 3]
    for tau in content["tau"]:
        assert (tau["tau"], tau["p"]) == (pytest.approx(-4 / 6), pytest.approx(8 / 24))
    assert [tau["by"] for tau in content["tau"]] == ["Official rank", "c_index"]
    assert "rank 1 to 4" in capsys.readouterr().out


def test_teams_of_one_board_are_named_and_entries_without_a_rank_are_shown(boards, tmp_path):
    first, second = boards(extra="base,0.5,no paper")
    path = Path(second.removeprefix("test="))
    board = json.loads(path.read_text(encoding="utf-8"))
    board["teams"] = [entry for entry in board["teams"] if entry["team"] != "B"]
    board["out_of_competition"][0]["place"] = 3
    board["incomplete"] = [{"team": "silent", "without": ["c_index"]}]
    path.write_text(json.dumps(board), encoding="utf-8")
    content = run_study("boards", tmp_path / "out", first, second)
    assert (content["only_in_validation"], content["only_in_test"]) == (["B"], [])
    assert content["without_values"] == ["silent"]
    (base,) = [line for line in content["teams"] if line["team"] == "base"]
    assert (base["rank_test"], base["c_index_difference"]) == (None, 0.0)
    assert content["tau"][0]["teams"] == 3


def test_boards_that_cannot_be_compared_are_refused(boards, tmp_path):
    options = boards(tasks=("rfs", "hpv"))
    with pytest.raises(HecktorError, match=r"^validation and test: different task rfs and hpv"):
        main(["boards", *options, "--output", str(tmp_path / "out")])
    with pytest.raises(HecktorError, match="boards: found 3"):
        main(["boards", *options, options[0].replace("validation=", "third="), "--output", str(tmp_path / "out")])


def test_boards_of_different_rules_are_refused(boards, tmp_path, capsys):
    """Rules that only one board states, such as a printed or an earlier one, are no difference."""
    options = boards()
    paths = [Path(option.partition("=")[2]) for option in options]
    tie, non_concordant = (
        {"rfs": {"missing_risk": rule, name: 1}} for rule, name in (("tie", "a"), ("non_concordant", "b"))
    )

    def compare(first, second, **changes):
        for path, rules in zip(paths, (first, second), strict=True):
            board = json.loads(path.read_text(encoding="utf-8"))
            board["provenance"]["options"] = rules
            path.write_text(json.dumps(board | (changes if path == paths[1] else {})), encoding="utf-8")
        return run_study("boards", tmp_path / "out", *options)

    assert compare(tie, None)["different_ranking"] == []
    assert compare(tie, tie, ties="average")["different_ranking"] == ["ties min and average"]
    assert "warning: validation and test rank by different rules: ties min and average" in capsys.readouterr().err
    with pytest.raises(HecktorError, match=r"^validation and test: different missing_risk tie and non_concordant"):
        compare(tie, non_concordant)
