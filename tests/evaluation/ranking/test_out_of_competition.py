"""Rows out of competition: their places, and the figures that they must not change."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from contract.errors import HecktorError
from contract.io.files import read_json
from evaluation.editions.profile import load_profile
from evaluation.ranking.cli import main
from evaluation.ranking.out_of_competition import (
    MEAN_OF_TEAMS,
    OutOfCompetitionSource,
    UnrankedEntry,
    count_teams_above,
    make_observers_entry,
    parse_source,
)
from evaluation.results.documents import MetricFigures
from evaluation.rows.mask import flatten_row
from tests.evaluation.builders import make_metrics, make_results
from tests.evaluation.challenge import ChallengeSize, write_challenge
from tests.evaluation.ranking.test_leaderboard import METRICS, TEAMS_2025
from tests.evaluation.tables import read_lines
from tests.evaluation.tasks import RFS

TEAMS = 5


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Write the metrics.json of five simulated teams of HECKTOR 2026."""
    folder = tmp_path_factory.mktemp("challenge")
    write_challenge(folder, "hecktor2026", ChallengeSize(TEAMS, 60, bootstraps=10, rankings=0))
    return sorted((folder / "task1").glob("*/metrics.json"))


def rank(number, files, output, *more):
    assert main(["--task", str(number), *map(str, files), "--bootstraps", "30", "--output", str(output), *more]) == 0
    return json.loads((output / "leaderboard.json").read_text())


def make_figures(**values):
    return {name: MetricFigures.from_values(value) for name, value in values.items()}


def make_figures_of_2025(*values):
    return make_figures(**dict(zip(METRICS, values, strict=True)))


def make_teams_of_2025():
    return make_results({name: make_metrics(name_values(values)) for name, values in TEAMS_2025.items()})


def name_values(values, names=METRICS):
    return {name: (value,) for name, value in zip(names, values, strict=True)}


def make_teams_of_risks(*values):
    return make_results({f"T{place}": make_metrics({"c_index": (value,)}) for place, value in enumerate(values)}, RFS)


def test_rows_out_of_competition_change_nothing_else(paths, tmp_path):
    """Two of five results are added without a rank to the ranking of the other three, and the mean of all teams."""
    aside, ranked = paths[1::2], paths[::2]
    plain = rank(1, ranked, tmp_path / "plain")
    options = [word for path in aside for word in ("--out-of-competition", f"{path.parent.name}={path}:withdrawn")]
    board = rank(1, ranked, tmp_path / "board", *options, "--mean")
    assert (len(plain.pop("out_of_competition")), len(board.pop("out_of_competition"))) == (0, 3)
    assert plain.pop("files").keys() < board.pop("files").keys()
    assert board == plain


def test_an_entry_in_a_folder_of_results_is_not_ranked_as_well(paths, tmp_path):
    """The last of the five teams is a baseline of this name, or the only run of a team, in the folder that is ranked."""
    folder = paths[0].parents[1]
    runs = rank(1, [folder], tmp_path / "runs", "--runs", f"Last={paths[-1]}")
    assert sorted(entry["team"] for entry in runs["teams"]) == ["Last", *(path.parent.name for path in paths[:-1])]
    board = rank(1, [folder], tmp_path / "out", "--out-of-competition", f"{paths[-1].parent.name}={paths[-1]}:baseline")
    assert board["teams"] == rank(1, paths[:-1], tmp_path / "others")["teams"]
    assert [entry["team"] for entry in board["out_of_competition"]] == [paths[-1].parent.name]


def test_the_table_shows_rows_in_their_places_without_a_rank(paths, tmp_path, capsys):
    out = tmp_path / "board"
    board = rank(1, paths[1:], out, "--out-of-competition", f"Base={paths[0]}: no paper", "--mean")
    base = next(row for row in board["out_of_competition"] if row["team"] == "Base")
    order = [entry["team"] for entry in board["teams"]]
    for row in reversed(board["out_of_competition"]):
        order.insert(row["place"], row["team"])
    lines = read_lines(out / "leaderboard.csv")
    assert [line["team"] for line in lines] == order
    of_base = next(line for line in lines if line["team"] == "Base")
    assert (of_base["rank"], of_base["out_of_competition"]) == ("", "no paper")
    metric = next(iter(board["metrics"]))
    assert float(of_base[f"{metric}_value"]) == pytest.approx(base["metrics"][metric]["value"], abs=0.005)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("(no paper)")]
    assert [line.split()[:2] for line in printed] == [["-", "Base"]]
    assert f"{base['metrics'][metric]['value']:.4f}" in printed[0]


def test_the_mean_of_teams_and_its_place(paths, tmp_path):
    """The mean of the values has no interval without bootstrap rankings."""
    board = rank(1, paths, tmp_path, "--mean")
    (row,) = board["out_of_competition"]
    assert (row["team"], row["reason"]) == (MEAN_OF_TEAMS, "5 ranked teams")
    for name, figures in row["metrics"].items():
        values = [entry["metrics"][name]["value"] for entry in board["teams"]]
        assert figures["value"] == pytest.approx(sum(values) / TEAMS)
        assert figures["ci95_low"] <= figures["value"] <= figures["ci95_high"]
    assert 0 < row["place"] < TEAMS
    (row,) = rank(1, paths, tmp_path, "--mean", "--bootstraps", "0")["out_of_competition"]
    assert {figures["ci95_low"] for figures in row["metrics"].values()} == {None}


def test_a_row_is_placed_below_teams_of_its_value():
    """A row without a deciding metric is last."""
    teams = make_teams_of_risks(0.7, 0.6, 0.6, 0.5)
    for value, expected in ((0.8, 0), (0.7, 1), (0.65, 1), (0.6, 3), (0.55, 3), (0.1, 4)):
        assert count_teams_above(UnrankedEntry("x", "", make_figures(c_index=value)), teams) == expected
    assert count_teams_above(UnrankedEntry("x", "", {}), teams) == 4
    partly = make_figures(gtvp_dsc_mean=0.99)
    assert count_teams_above(UnrankedEntry("x", "", partly), make_teams_of_2025()) == 5


def test_the_place_under_the_nested_borda_count_of_2025():
    """With MEDAI's values the row ties with MEDAI: inner sums 5, 9, 7, 7, 7 and 5 rank 1, 6, 3, 3, 3 and 1; with the
    GTVp ranks 2, 1, 5, 6, 4 and 2 the sums are 3, 7, 8, 9, 7 and 3. Only MEDAI is above.
    """
    assert (
        count_teams_above(UnrankedEntry("x", "", make_figures_of_2025(*TEAMS_2025["MEDAI"])), make_teams_of_2025()) == 1
    )
    assert count_teams_above(UnrankedEntry("x", "", make_figures_of_2025(0.9, 0.9, 0.9)), make_teams_of_2025()) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=a/metrics.json", OutOfCompetitionSource("A", Path("a/metrics.json"))),
        ("A = b=c.json:p = 0.05: why", OutOfCompetitionSource("A", Path(" b=c.json"), "p = 0.05: why")),
        ("A=C:\\x\\m.json:late", OutOfCompetitionSource("A", Path("C:\\x\\m.json"), "late")),
        ("A=m.json:as in b.json: same", OutOfCompetitionSource("A", Path("m.json"), "as in b.json: same")),
    ],
)
def test_a_reason_follows_the_file(text, expected):
    assert parse_source(text) == expected


@pytest.mark.parametrize("text", ["m.json", "=m.json", "A=", "A=m.csv:why"])
def test_other_texts_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected NAME=FILE\.json"):
        parse_source(text)


def test_an_entry_of_other_cases_is_refused(paths, tmp_path):
    changed = json.loads(paths[2].read_text())
    changed["provenance"]["case_set_sha256"] = "0"
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with pytest.raises(HecktorError, match=r"json \(Base\): rows of other cases than case_set_sha256"):
        rank(1, paths[:2], tmp_path, "--out-of-competition", f"Base={tmp_path / 'changed.json'}")


def test_an_entry_without_rows_is_refused_or_marked(paths, tmp_path, capsys):
    content = json.loads(paths[0].read_text())
    (tmp_path / "bare.json").write_text(json.dumps({**content, "results": []}))
    options = ("--out-of-competition", f"Base={tmp_path / 'bare.json'}:withdrawn")
    with pytest.raises(HecktorError, match=r"bare\.json \(Base\): no per-case rows"):
        rank(1, paths[1:], tmp_path, *options)
    (row,) = rank(1, paths[1:], tmp_path, *options, "--without-rows")["out_of_competition"]
    assert row["without_rows"]
    assert "(withdrawn)  without rows" in capsys.readouterr().out


def test_the_reference_comes_from_a_team_with_rows(tmp_path):
    """The longest follow-up ends a day later, which changes no C-index; the first team has no rows to compare it with."""
    write_challenge(tmp_path, "hecktor2025", ChallengeSize(3, 40, bootstraps=5, rankings=0))
    paths = sorted((tmp_path / "task2").glob("*/metrics.json"))
    contents = [json.loads(path.read_text()) for path in paths]
    contents[0]["results"] = []
    contents[2]["aggregates"] = {"c_index": contents[2]["aggregates"]["c_index"]}
    max(contents[2]["results"], key=lambda row: row["rfs_days"])["rfs_days"] += 1
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match="was measured against different references"):
        rank(2, paths[:2], tmp_path, "--without-rows", "--out-of-competition", f"Base={paths[2]}")


def write_observers(tmp_path, **changes):
    figures = {"value": 0.8, "ci95_low": 0.7, "ci95_high": 0.9}
    names = ("gtvp_dsc_median", "gtvp_hd95_median_mm", "gtvp_dsc_agg", "gtvn_dsc_agg", "dsc_agg_mean")
    content = {"study": "observers", "aggregates": dict.fromkeys(names, figures), **changes}
    path = tmp_path / "observers.json"
    path.write_text(json.dumps(content))
    return OutOfCompetitionSource("observers", path, "annotators")


def rank_observers(tmp_path, edition, **changes):
    options = load_profile(edition).find_task("segmentation").options
    task = load_profile(edition).find_task("segmentation").algorithm
    teams = make_results({"a": make_metrics(provenance={"options": options})}, task, edition)
    source = write_observers(tmp_path, **changes)
    return make_observers_entry(source, read_json(source.source), teams).figures


def test_agreement_of_annotators_is_shown_for_metrics_of_the_same_meaning(tmp_path):
    """The study's median DSC differs from the mean DSC that ranks; HD95 has one definition."""
    same = MetricFigures.from_values(0.8, 0.7, 0.9)
    names = ("gtvp_dsc_agg", "gtvn_dsc_agg", "dsc_agg_mean")
    assert rank_observers(tmp_path, "hecktor2022") == dict.fromkeys(names, same)
    assert rank_observers(tmp_path, "hecktor2025") == {"gtvn_dsc_agg": same}
    infinite = {"gtvp_hd95_median_mm": {"value": None, "ci95_low": 3, "ci95_high": None, "infinite": ["value"]}}
    hd95 = rank_observers(tmp_path, "hecktor2021", aggregates=infinite)["gtvp_hd95_median_mm"]
    assert hd95.figures == (float("inf"), 3, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": "x"}, r"gtvn_dsc_agg\.value: found \"x\""),
        ({"value": 1.7}, r"gtvn_dsc_agg 1\.7, expected from 0 to 1"),
        ({"ci95_low": 0.95}, r"gtvn_dsc_agg: found "),
    ],
)
def test_an_impossible_agreement_of_annotators(tmp_path, changes, message):
    figures = {"value": 0.8, "ci95_low": 0.7, "ci95_high": 0.9, **changes}
    with pytest.raises(HecktorError, match=message):
        rank_observers(tmp_path, "hecktor2025", aggregates={"gtvn_dsc_agg": figures})


def test_the_mean_of_equal_answers_has_their_interval(tmp_path):
    """Two copies of one team have the percentiles of the evaluation's own samples."""
    write_challenge(tmp_path, "hecktor2025", ChallengeSize(1, 40, bootstraps=5, rankings=0))
    (path,) = (tmp_path / "task2").glob("*/metrics.json")
    copy = tmp_path / "copy" / "metrics.json"
    copy.parent.mkdir()
    copy.write_text(path.read_text())
    board = rank(2, [path, copy], tmp_path / "board", "--mean", "--bootstraps", "5")
    (row,) = board["out_of_competition"]
    stated = json.loads(path.read_text())["aggregates"]
    for name, figures in row["metrics"].items():
        assert figures == {part: pytest.approx(stated[name][part]) for part in ("value", "ci95_low", "ci95_high")}


def test_tau_of_a_metric_that_does_not_rank(tmp_path, capsys):
    """With two teams tau is 1 in each sample with the order of the whole cohort and -1 in the others.

    The test counts the samples from the rows and the same draws.
    """
    write_challenge(tmp_path, "hecktor2025", ChallengeSize(2, 40, bootstraps=5, rankings=0))
    paths = sorted((tmp_path / "task1").glob("*/metrics.json"))
    board = rank(1, paths, tmp_path)
    stable = board["stability"]["metrics"]
    assert set(stable) - set(board["metrics"]) == {"gtvp_dsc_agg", "dsc_agg_mean"}

    streams = np.random.default_rng(board["stability"]["seed"]).spawn(30)
    weights = np.stack([np.bincount(stream.integers(0, 40, 40), minlength=40) for stream in streams])
    values = []
    for path in paths:
        rows = sorted(json.loads(path.read_text())["results"], key=lambda row: row["case"])
        both, reference, predicted = (
            np.array([flatten_row(row)[f"gtvp_{part}_mm3"] for row in rows])
            for part in ("intersection", "reference", "predicted")
        )
        values.append([2 * w @ both / (w @ (reference + predicted)) for w in [np.ones(40), *weights]])
    order = np.sign(np.subtract(*values))
    tau = stable["gtvp_dsc_agg"]["kendall_tau"]
    assert tau["mean"] == pytest.approx((order[1:] * order[0]).mean())
    assert tau["replicates"] == 30
    assert "gtvp_dsc_agg" not in capsys.readouterr().out
