"""`hecktor rank`: leaderboards, and results that must not be compared."""

from __future__ import annotations

import json

import pytest

from contract.errors import HecktorError
from evaluation.ranking.cli import main
from tests.evaluation.ranking.test_leaderboard import METRICS, TEAMS_2025


def make_content(values, **provenance):
    aggregates = {name: {"value": v, "ci95_low": v, "ci95_high": v} for name, v in zip(METRICS, values, strict=True)}
    return {
        "aggregates": aggregates,
        "cases": {},
        "warnings": [],
        "results": [],
        "provenance": {
            "format": 2,
            "version": "1",
            "task": "segmentation",
            "edition": "hecktor2025",
            "options": {"connectivity": 26},
            "case_set_sha256": "0",
            **provenance,
        },
    }


@pytest.fixture
def files(tmp_path):
    paths = {}
    for team, values in TEAMS_2025.items():
        (tmp_path / team).mkdir()
        paths[team] = tmp_path / team / "metrics.json"
        paths[team].write_text(json.dumps(make_content(values)))
    return paths


def rank(paths, output, *more):
    assert main(["--task", "1", *map(str, paths), "--without-rows", "--output", str(output), *more]) == 0
    return json.loads((output / "leaderboard.json").read_text())


def test_the_five_teams_of_2025(files, tmp_path, capsys):
    board = rank(files.values(), tmp_path / "out")
    assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [
        (1, "MEDAI"),
        (2, "SJTU_lab426"),
        (3, "Dolphins"),
        (3, "sztu_bme2025"),
        (5, "InterStellar"),
    ]
    second = board["teams"][1]
    assert second["rankings"] == {
        "nested_borda": {"rank": 2, "rank_sum": 5, "points": 5},
        "flat_borda": {"rank": 3, "rank_sum": 9, "points": 6},
        "median_rank": {"rank": 2, "median_rank": 3},
    }
    assert second["metrics"]["gtvn_f1_agg"] == {"value": 0.726, "ci95_low": 0.726, "ci95_high": 0.726, "rank": 1}
    assert board["official"] == "nested_borda"
    header, _, second_line, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[-4:] == ["by", "flat_borda", "by", "median_rank"]
    assert second_line.split() == ["2", "SJTU_lab426", "0.7341", "0.7312", "0.7260", "3", "2", "without", "rows"]


def test_options_choose_the_ranking_and_the_rule_for_ties(files, tmp_path):
    """Flat Borda has no ties; under the median rank two pairs tie; the last rank is the minimum of theirs."""
    board = rank(files.values(), tmp_path / "flat", "--official", "flat_borda")
    assert board["official"] == "flat_borda"
    assert [entry["team"] for entry in board["teams"]][:3] == ["MEDAI", "Dolphins", "SJTU_lab426"]
    board = rank(files.values(), tmp_path / "median", "--official", "median_rank", "--ties", "average")
    assert [entry["rank"] for entry in board["teams"]] == [1, 2, 2, 4, 4]
    assert board["ties"] == "average"
    with pytest.raises(HecktorError, match='official: found "coin"'):
        rank(files.values(), tmp_path / "out", "--official", "coin")


def test_a_team_without_a_usable_run_does_not_stop_the_others(files, tmp_path):
    for name in ("MEDAI", "Dolphins"):
        files[name].write_text(json.dumps(make_content((None, 0.9, 0.9))))
    runs = f"late={files['MEDAI']},{files['Dolphins']}"
    board = rank([files["InterStellar"]], tmp_path / "out", "--runs", runs)
    assert [entry["team"] for entry in board["teams"]] == ["InterStellar"]
    assert board["incomplete"] == [{"team": "late", "without": ["gtvp_dsc_mean"]}]
    assert len(board["runs"]["late"]["order"]) == 2
    with pytest.raises(HecktorError, match="no team has a value"):
        rank([], tmp_path / "none", "--runs", runs)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("edition", "other", "different edition"),
        ("options", {"connectivity": 6}, "different options"),
        ("task", "rfs", "different task"),
        ("case_set_sha256", "1", "scored on different cases"),
    ],
)
def test_results_that_differ_are_not_mixed(files, tmp_path, key, value, problem):
    files["Dolphins"].write_text(json.dumps(make_content((1, 1, 1), **{key: value})))
    with pytest.raises(HecktorError, match=f"MEDAI and Dolphins: {problem}"):
        rank(files.values(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_task_is_refused(files, tmp_path):
    with pytest.raises(HecktorError, match="expected 'rfs'"):
        main(["--task", "rfs", str(files["MEDAI"]), "--without-rows", "--output", str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"metrics\.json: found \[\]"),
        ("{", "not valid JSON"),
        (json.dumps({**make_content((1, 1, 1)), "results": {}}), r"metrics\.json\.results: found {}"),
        (json.dumps(make_content((1, 1, 1), format=9)), r"metrics\.json: format 9, expected format 2; evaluate again"),
        (json.dumps(make_content((True, 1, 1))), r"\.value: found true"),
    ],
)
def test_invalid_files_are_refused(files, tmp_path, text, message):
    files["MEDAI"].write_text(text)
    with pytest.raises(HecktorError, match=message):
        rank(files.values(), tmp_path / "out")
