"""`hecktor rank`: leaderboards, and results that must not be compared."""

from __future__ import annotations

import json

import pytest

import evaluation
from contract.errors import HecktorError
from evaluation.ranking.cli import main
from tests.evaluation.ranking.test_leaderboard import METRICS, TEAMS_2025
from tests.evaluation.tables import score_risks


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


def test_a_leaderboard_is_written_and_printed(files, tmp_path, capsys):
    """The ranks of these five teams are checked in test_printed."""
    board = rank(files.values(), tmp_path / "out")
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


def test_results_that_differ_are_not_mixed(files, tmp_path):
    with pytest.raises(HecktorError, match="expected 'rfs'"):
        main(["--task", "rfs", str(files["MEDAI"]), "--without-rows", "--output", str(tmp_path / "out")])
    for key, value, problem in (
        ("edition", "other", "different edition"),
        ("options", {"connectivity": 6}, "different options"),
        ("task", "rfs", "different task"),
        ("case_set_sha256", "1", "scored on different cases"),
    ):
        files["Dolphins"].write_text(json.dumps(make_content((1, 1, 1), **{key: value})))
        with pytest.raises(HecktorError, match=f"MEDAI and Dolphins: {problem}"):
            rank(files.values(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def metrics_of(tmp_path):
    """Write the metrics.json of a team whose cohort has the patients of these numbers."""

    def write(team, *numbers):
        score_risks(tmp_path / team, {f"CHUM-{n}": (1, n) for n in numbers}, {f"CHUM-{n}": 9 - n for n in numbers})
        return tmp_path / team / "metrics.json"

    return write


@pytest.mark.parametrize("as_paths", [True, False])
def test_patients_of_only_one_file_are_named(metrics_of, tmp_path, as_paths):
    """Alpha has patients 1 to 3 and Beta 3 to 8."""
    paths = {"Alpha": metrics_of("Alpha", 1, 2, 3), "Beta": metrics_of("Beta", 3, 4, 5, 6, 7, 8)}
    sources = paths if as_paths else {team: json.loads(path.read_text()) for team, path in paths.items()}
    with pytest.raises(HecktorError) as error:
        evaluation.rank(sources)
    assert error.value.message == (
        "Alpha and Beta: scored on different cases: CHUM-1, CHUM-2 only in Alpha; "
        "CHUM-4, CHUM-5, CHUM-6 and 2 more only in Beta, expected the same cases"
    )


def test_a_damaged_file_is_named_by_its_folder(metrics_of, tmp_path, monkeypatch):
    good, bad = metrics_of("Alpha", 1, 2), metrics_of("Beta", 1, 2)
    content = bad.read_text()
    for damage, problem in ((content[:200], "not valid JSON"), (None, "no")):
        bad.unlink() if damage is None else bad.write_text(damage)
        for more in ([str(bad)], ["--out-of-competition", f"base={bad}"], ["--runs", f"Gamma={good},{bad}"]):
            with pytest.raises(
                HecktorError, match=rf"(Beta/metrics\.json.*: {problem}|no such file or folder: .*Beta/metrics\.json )"
            ):
                main([str(good), *more, "--output", str(tmp_path / "out")])
    bad.write_text(content[:200])
    monkeypatch.chdir(bad.parent)
    with pytest.raises(HecktorError, match=r"^Beta/metrics\.json: not valid JSON"):
        main(["metrics.json", "--output", str(tmp_path / "out")])
    with pytest.raises(HecktorError, match=r"^Beta/metrics\.json \(Gamma\): not valid JSON"):
        main(["metrics.json", "--names", "Gamma", "--output", str(tmp_path / "out")])
