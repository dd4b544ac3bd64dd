"""Rank printed tables: the published ones of 2020, 2021, 2025 and HNTS-MRG 2024, and faults of tables."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import evaluation
from contract.errors import HecktorError
from contract.io.tables import format_csv
from evaluation.metrics.overlap import harmonic_mean_metric
from evaluation.ranking.cli import main
from evaluation.ranking.table import format_board_csv
from reporting.report.cli import main as report
from tests.evaluation.tables import read_lines

TABLES = Path(__file__).parents[2] / "data"
NAMES = {
    "dsc": "gtvp_dsc_mean",
    "hd95_mm": "gtvp_hd95_median_mm",
    "precision": "gtvp_precision_mean",
    "recall": "gtvp_recall_mean",
    "f1": "gtvp_f1",
}
# Of the four teams that are printed with 3.0882 mm the overview gives these digits.
DIGITS_OF_2021 = {"Pengy": "3.0881603", "SJTU_EIEE": "3.0881603", "HiLab": "3.0881618", "BCIOQurit": "3.0881618"}


@pytest.fixture
def golden():
    """Read a published table."""
    return lambda name: read_lines(TABLES / f"{name}.csv")


@pytest.fixture
def rank_table(tmp_path):
    """Write a table, rank it and return the leaderboard."""

    def rank(lines, **options):
        path = tmp_path / "published.csv"
        path.write_text(format_csv(list(lines[0]), lines), encoding="utf-8")
        return evaluation.rank(path, **options)

    return rank


def rename_columns(lines, reason_of=lambda line: ""):
    """Return the lines under the names of metrics, in reverse order, which no ranking may follow."""
    return [
        {"team": line["team"], "out_of_competition": reason_of(line)}
        | {NAMES[column]: text for column, text in line.items() if column in NAMES}
        for line in reversed(lines)
    ]


def test_2020_ranks_as_published_and_shows_the_others_without_a_rank(golden, rank_table):
    """Five ranked teams have a higher mean DSC than DCPT's 0.7049, six a higher one than ucl_charp's 0.6765."""
    lines = golden("hecktor2020_task1")
    board = rank_table(
        rename_columns(lines, lambda line: "" if line["rank"] else "no paper"), edition="hecktor2020", task="1"
    )
    published = {line["team"]: int(line["rank"]) for line in lines if line["rank"]}
    assert board.ranks == published
    places = {entry["team"]: entry["place"] for entry in board.to_dict()["out_of_competition"]}
    assert (places["DCPT"], places["ucl_charp"]) == (5, 6)
    assert len(places) == len(lines) - len(published)


def test_2021_ranks_as_published_with_the_digits_of_the_text(golden, rank_table):
    """BAMF has the highest DSC and the lowest HD95 of all, so that no ranked team stands above it."""
    lines = golden("hecktor2021_task1")
    assert {line["team"] for line in lines if line["hd95_mm"] == "3.0882"} == set(DIGITS_OF_2021)
    lines = [{**line, "hd95_mm": DIGITS_OF_2021.get(line["team"], line["hd95_mm"])} for line in lines]
    disqualified = rename_columns(lines, lambda line: line["rank"] if line["rank"] == "disqualified" else "")
    board = rank_table(disqualified, edition="hecktor2021", task="1")
    assert board.ranks == {line["team"]: int(line["rank"]) for line in lines if line["rank"] != "disqualified"}
    assert [entry["place"] for entry in board.to_dict()["out_of_competition"] if entry["team"] == "BAMF"] == [0]
    # Without the rule for ties the sum of ranks leaves teams level.
    assert len({entry["rankings"]["borda"]["rank"] for entry in board.to_dict()["teams"]}) < len(board.ranks)


def test_the_f1_column_of_2021_is_the_harmonic_mean_of_precision_and_recall(golden):
    for line in golden("hecktor2021_task1"):
        p, r = (lambda _, value=float(line[name]): np.array([value]) for name in ("precision", "recall"))
        assert harmonic_mean_metric(p, r)(np.ones((1, 1)))[0] == pytest.approx(float(line["f1"]), abs=1e-4)


def test_2021_ranks_risks_as_published_with_their_printed_mean(golden, rank_table):
    """The overview gives 0.6402 as the mean of the 17 C-indices."""
    lines = golden("hecktor2021_tasks2_3")
    table = [{"team": line["team"], "c_index": line["c_index_task2"]} for line in reversed(lines)]
    board = rank_table(table, edition="hecktor2021", task="2", mean=True)
    assert list(board.order) == [line["team"] for line in lines]
    (mean,) = board.to_dict()["out_of_competition"]
    assert mean["metrics"]["c_index"]["value"] == pytest.approx(0.6402, abs=5e-5)


def test_2025_ranks_five_teams_by_both_counts(golden, rank_table):
    """The published order needs teams that are not printed; what follows from the five is computed by hand."""
    five = [line for line in golden("hecktor2025") if line["task"] == "1"]
    table = [
        {"team": line["team"]}
        | {"GTVp mean DSC": line["metric1"], "gtvn_dsc_agg": line["metric2"], "gtvn_f1_agg_value": line["metric3"]}
        for line in five
    ]
    board = rank_table(table, task="1")
    by_hand = {line["team"]: line for line in golden("hecktor2025_task1_borda_of_five")}
    for entry in board.to_dict()["teams"]:
        line, rankings = by_hand[entry["team"]], entry["rankings"]
        assert entry["rank"] == int(line["nested_min_rank"])
        assert rankings["nested_borda"]["rank_sum"] == int(line["nested_min_total"])
        assert rankings["flat_borda"]["points"] == int(line["flat_points_K_minus_r"])
        assert rankings["flat_borda"]["rank"] == int(line["flat_rank"])
    average = rank_table(table, task="1", ties="average").to_dict()
    assert {entry["team"]: entry["rank"] for entry in average["teams"]} == {
        team: int(line["nested_average_rank"]) for team, line in by_hand.items()
    }


def test_2025_ranks_risks_as_published(golden, rank_table):
    """HDUMedAI and Alien-seg have the same C-index and share the second rank."""
    lines = [line for line in golden("hecktor2025") if line["task"] == "2"]
    board = rank_table([{"team": line["team"], "c_index": line["metric1"]} for line in lines], task="2")
    assert board.ranks == {line["team"]: int(line["rank"]) for line in lines}


def test_hnts_mrg_places_baseline_and_annotators_around_the_winner(golden, rank_table):
    """Task 1: TUMOR 0.825, baseline 0.817, annotators 0.806: both stand below the only ranked team."""
    values = {line["item"]: line["dscagg_mean"] for line in golden("hntsmrg2024")}
    names = {"task1_TUMOR": "", "task1_nnunet_baseline": "baseline", "interobserver_dscagg_pre": "annotators"}
    table = [{"team": name, "dsc_agg_mean": values[name], "out_of_competition": why} for name, why in names.items()]
    board = rank_table(table, edition="hntsmrg2024", task="pre-rt")
    assert board.ranks == {"task1_TUMOR": 1}
    assert [(entry["team"], entry["place"]) for entry in board.to_dict()["out_of_competition"]] == [
        ("task1_nnunet_baseline", 1),
        ("interobserver_dscagg_pre", 1),
    ]


TWO = [{"team": "a", "c_index": "0.6", "rank": "2"}, {"team": "b", "c_index": "0.7", "rank": "1"}]


def test_the_command_names_columns_that_it_does_not_use(tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text(format_csv(list(TWO[0]), TWO), encoding="utf-8")
    assert main(["--table", str(table), "--task", "2", "--output", str(tmp_path / "board")]) == 0
    shown = capsys.readouterr()
    assert "t.csv: columns rank, expected metrics of the edition; not used" in shown.err
    assert "no rank stability: printed values have no per-case rows" in shown.out
    board = json.loads((tmp_path / "board" / "leaderboard.json").read_text(encoding="utf-8"))
    assert [entry["team"] for entry in board["teams"]] == ["b", "a"]
    assert (board["stability"], board["comparisons"]) == (None, None)
    assert board["provenance"]["table"] == "t.csv"
    assert len(board["provenance"]["table_sha256"]) == 64
    assert report(["--results", str(tmp_path / "board"), "--output", str(tmp_path / "page.html")]) == 0
    assert "made only from leaderboard.json" in capsys.readouterr().err
    # The leaderboard's own table ranks again as it stands.
    again = evaluation.rank(tmp_path / "board" / "leaderboard.csv", task="2")
    assert again.ranks == {"b": 1, "a": 2}


def test_an_infinite_distance_is_last_and_a_team_without_a_value_has_no_rank(rank_table):
    distances = {"a": "inf", "b": "3.1", "c": ""}
    lines = [{"team": name, "gtvp_dsc_mean": "0.5", "gtvp_hd95_median_mm": mm} for name, mm in distances.items()]
    board = rank_table(lines, edition="hecktor2021", task="1")
    assert board.ranks == {"b": 1, "a": 2}
    assert [team.team for team in board.incomplete] == ["c"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"team": "a", "gtvp_dsc_mean": "0.5"}], "published.csv: columns team, gtvp_dsc_mean"),
        ([{"c_index": "0.5"}], "expected a column team"),
        ([{"team": "a", "c_index": "1.2"}], "published.csv, line 2: c_index 1.2, expected from 0 to 1"),
        ([{"team": "a", "c_index": "high"}], "published.csv, line 2: c_index 'high'"),
        ([{"team": "", "c_index": "0.5"}], "published.csv, line 2: no team"),
        ([{"team": "a", "c_index": "0.5"}] * 2, "'a' appears twice"),
        ([{"team": "../a", "c_index": "0.5"}], "a name without /"),
        ([{"team": "a", "c_index": ""}], "no team has a value"),
    ],
)
def test_faults_of_a_table_are_named(rank_table, lines, message):
    with pytest.raises(HecktorError, match=message):
        rank_table(lines, task="2")
    with pytest.raises(HecktorError, match="--table: together with --seed"):
        rank_table(TWO, task="2", seed=1)


def test_descriptors_are_part_of_the_leaderboard(tmp_path, rank_table):
    """Table 2 of the HECKTOR 2025 overview names backbone and loss; a team without a row has empty ones.

    An incomplete team has its descriptors in the same columns.
    """
    methods = tmp_path / "methods.csv"
    methods.write_text("Team,Backbone,Loss\nb,STU-Net,Dice + CE\nc,U-Net,\n", encoding="utf-8")
    board = rank_table([*TWO, {"team": "c", "c_index": "", "rank": ""}], task="2", methods=methods)
    assert board.methods["b"] == {"Backbone": "STU-Net", "Loss": "Dice + CE"}
    lines = list(csv.DictReader(io.StringIO(format_board_csv(board))))
    assert [(line["team"], line["method_Backbone"]) for line in lines] == [("b", "STU-Net"), ("a", ""), ("c", "U-Net")]
    assert "Backbone" not in lines[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("team,Loss\nc,CE\n", "methods.csv, line 2: team 'c'"),
        ("team,Loss\na,CE\na,Dice\n", "methods.csv, line 3: team 'a' twice"),
        ("team\na\n", "methods.csv: columns team"),
        ("Loss\nCE\n", "methods.csv: columns Loss"),
    ],
)
def test_faults_of_descriptors_are_named(tmp_path, rank_table, text, message):
    methods = tmp_path / "methods.csv"
    methods.write_text(text, encoding="utf-8")
    with pytest.raises(HecktorError, match=message):
        rank_table(TWO, task="2", methods=methods)


def test_ties_of_2020_go_to_the_higher_precision(rank_table):
    values = {"a": (0.7, 0.8), "b": (0.7, 0.9), "c": (0.6, 1.0)}
    table = [{"team": team, "gtvp_dsc_mean": dsc, "gtvp_precision_mean": p} for team, (dsc, p) in values.items()]
    assert rank_table(table, edition="hecktor2020", task="1").order == ("b", "a", "c")
