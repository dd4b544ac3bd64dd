"""`hecktor study ensemble`: votes by hand and their properties, and submissions from folders and tables."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.errors import HecktorError
from contract.images.volumes import read_volume, write_mask
from reporting.studies.cli import main
from reporting.studies.ensemble import combine_risks
from reporting.studies.votes import METHODS, CompactMask, combine_masks, staple
from tests.evaluation.builders import make_board
from tests.evaluation.tables import read_lines
from tests.reporting.studies.runs import run_study


def draw_tumour(blank, stop):
    mask = blank()
    mask[2:4, 2:4, 2:stop] = 1
    return mask


@pytest.fixture
def teams(tmp_path, blank, grid):
    """Write masks of three teams: A is 2 x 2 x n voxels, 4, 3 and 6 wide. Only `one` has B."""
    for team, stop in (("one", 6), ("two", 5), ("three", 8)):
        for case in ("A", "B"):
            if case == "A" or team == "one":
                write_mask(tmp_path / team / f"{case}.mha", draw_tumour(blank, stop), grid)
    return [f"{team}={tmp_path / team}" for team in ("one", "two", "three")]


def rank_in_order(*teams):
    return make_board({"m": "M"}, [{"team": team} for team in teams]).to_dict()


def study(tmp_path, *arguments):
    return run_study("ensemble", tmp_path / "out", *arguments, "--workers", 0)


def test_average_of_three_teams_is_a_submission(tmp_path, teams, blank, grid):
    """Two of three teams hold the columns 2 to 5 of A: exactly the mask of `one`. The one vote of B decides."""
    content = study(tmp_path, "--task", "1", *teams)
    for case in ("A", "B"):
        assert np.array_equal(
            read_volume(tmp_path / "out" / "all_average" / f"{case}.mha").array, draw_tumour(blank, 6)
        )
    assert [(entry["case"], entry["team"]) for entry in content["without_vote"]] == [("B", "two"), ("B", "three")]
    lines = read_lines(tmp_path / "out" / "ensemble.csv")
    of_a = next(entry for entry in lines if (entry["case"], entry["ensemble"]) == ("A", "all_average"))
    # 2 x 2 x 4 voxels of 1 x 2 x 3 mm.
    assert (of_a["votes"], float(of_a["gtvp_ml"]), float(of_a["gtvn_ml"])) == ("3", 0.096, 0.0)


def test_only_the_first_of_a_leaderboard_are_combined(tmp_path, teams, blank):
    """One vote of `two` and `three` is half and enough, so their union is the mask."""
    board = tmp_path / "leaderboard.json"
    board.write_text(json.dumps(rank_in_order("three", "two", "one")))
    content = study(tmp_path, "--task", "1", *teams, "--leaderboard", str(board), "--top", "2")
    assert content["selections"] == {"all": ["one", "two", "three"], "top2": ["three", "two"]}
    union = read_volume(tmp_path / "out" / "top2_average" / "A.mha").array
    assert np.array_equal(union, draw_tumour(blank, 8))
    assert {"case": "B", "ensemble": "top2_staple"} in content["not_written"]


def test_a_mask_on_another_grid_has_no_vote(tmp_path, teams, blank, grid):
    write_mask(tmp_path / "two" / "A.mha", blank(), replace(grid, origin_mm=(0.0, 0.0, 0.0)))
    content = study(tmp_path, "--task", "1", *teams)
    assert "its grid is" in content["without_vote"][0]["why"]


def test_risks_are_combined_by_rank(tmp_path):
    """Ranks of P1 to P3: 1 2 3 by `a`, 1 3 2 by `b`, 3 1 2 by `c`; means 5/3, 2, 7/3, medians 1, 2, 2.

    Relative ranks are (rank - 1/2) / 3: means 7/18, 1/2, 11/18, medians 1/6, 1/2, 1/2.
    """
    tables = {"a": (0.1, 0.2, 0.3), "b": (-5, 80, 2), "c": (3e6, 1e6, 2e6)}
    for team, risks in tables.items():
        rows = "".join(f"P{number},{risk}\n" for number, risk in enumerate(risks, start=1))
        (tmp_path / f"{team}.csv").write_text(f"PatientID,risk\n{rows}")
    content = study(tmp_path, "--task", "2", *(f"{team}={tmp_path / team}.csv" for team in tables))
    assert content["ensembles"] == ["all_mean_rank.csv", "all_median_rank.csv"]
    for name, expected in (("mean_rank", [7 / 18, 1 / 2, 11 / 18]), ("median_rank", [1 / 6, 1 / 2, 1 / 2])):
        risks = [float(row["risk"]) for row in read_lines(tmp_path / "out" / f"all_{name}.csv")]
        assert risks == pytest.approx(expected)


def test_a_patient_without_a_risk_has_no_vote_of_that_team():
    """Team a ranks only P1 and P3, at (1 - 1/2) / 2 and (2 - 1/2) / 2; b all three; P4 has no rank."""
    risks = combine_risks(
        [{"P1": 1.0, "P3": 2.0}, {"P1": 1.0, "P2": 2.0, "P3": 3.0}], ["P1", "P2", "P3", "P4"], "mean_rank"
    )
    assert risks == {
        "P1": pytest.approx((1 / 4 + 1 / 6) / 2),
        "P2": pytest.approx(1 / 2),
        "P3": pytest.approx((3 / 4 + 5 / 6) / 2),
        "P4": None,
    }


def test_classes_are_combined_by_majority(tmp_path):
    """P1 has two of three votes for positive, P2 one of two, where the class that is declared first wins."""
    for team, rows in {"a": "P1,1\nP2,0\n", "b": "P1,1\nP2,1\n", "c": "P1,0\n"}.items():
        (tmp_path / f"{team}.csv").write_text(f"PatientID,hpv\n{rows}")
    content = study(tmp_path, "--task", "3", *(f"{team}={tmp_path / team}.csv" for team in "abc"))
    assert (tmp_path / "out" / "all_majority.csv").read_text() == "PatientID,hpv\nP1,True\nP2,False\n"
    assert [(entry["case"], entry["team"]) for entry in content["without_vote"]] == [("P2", "c")]


@pytest.mark.parametrize("kind", ["masks", "risks"])
def test_a_team_that_shares_no_patient_with_the_others_is_an_error(tmp_path, teams, kind):
    """Otherwise single votes decide, and the ensemble is a copy."""
    task = "1" if kind == "masks" else "2"
    if kind == "masks":
        for path in (tmp_path / "two").iterdir():
            path.rename(path.with_name(f"{path.stem}_pred.mha"))
    else:
        for team in ("one", "two", "three"):
            ending = "_pred" if team == "two" else ""
            (tmp_path / f"{team}.csv").write_text(f"PatientID,risk\nA{ending},1\nB{ending},2\n")
        teams = [f"{team}={tmp_path / team}.csv" for team in ("one", "two", "three")]
    message = r"^two: found cases A_pred.*, expected some of A, B; A_pred differs from A by the ending '_pred'$"
    with pytest.raises(HecktorError, match=message):
        study(tmp_path, "--task", task, *teams)


def test_a_bad_risk_is_named_and_left_out(tmp_path):
    """Of an earlier run a mean rank of P1 is not left."""
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("PatientID,risk\nP1,1\nP2,2\n")
    tables = [f"{name}={tmp_path / name}.csv" for name in "ab"]
    study(tmp_path, "--task", "2", *tables)
    (tmp_path / "a.csv").write_text("PatientID,risk\nP1,high\nP2,2\n")
    (tmp_path / "b.csv").write_text("PatientID,risk\nP2,2\n")
    content = study(tmp_path, "--task", "2", *tables)
    assert [(entry["case"], entry["team"]) for entry in content["without_vote"]] == [("P1", "a"), ("P1", "b")]
    assert content["not_written"][0] == {"case": "P1", "ensemble": "all_mean_rank.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "1", "a=x"], "1 teams, expected at least 2"),
        (["--task", "1", "a=x", "a=y"], "'a' appears twice"),
        (["--task", "1", "a=x", "b=none"], "teams: no such file or folder"),
        (["--edition", "hecktor2026", "a=x", "b=y"], "task combined has 4 answers"),
        (["--task", "2", "--answer", "os", "a=x", "b=y"], "--answer: found os"),
        (["--task", "2", "a=x.csv", "b=none.csv"], "teams: no such file or folder"),
        (["--task", "2", "a=x.csv", "b=y.csv", "--ground-truth", "z"], "only masks need it"),
    ],
)
def test_bad_usage_is_named(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y", "z", "x.csv", "y.csv"):
        (tmp_path / name).touch()
    with pytest.raises(HecktorError, match=message):
        study(tmp_path, *arguments)
    with pytest.raises(HecktorError, match=r"expected one of .*ensemble"):
        main(["forecast"])


@pytest.mark.parametrize(
    ("board", "message"),
    [
        (rank_in_order("four", "one"), "best teams include 'four'"),
        (rank_in_order("one"), "expected at least two"),
        ([], r"leaderboard\.json: found \[\]"),
    ],
)
def test_a_leaderboard_that_does_not_fit_is_named(tmp_path, teams, board, message):
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(board))
    with pytest.raises(HecktorError, match=message):
        study(tmp_path, "--task", "1", *teams, "--leaderboard", str(path), "--top", "2")


def test_a_study_that_fails_leaves_no_earlier_result(tmp_path):
    """The files of the earlier run go, and a table of the user with the name of a study's table stays."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("PatientID,risk\nP1,1\nP2,2\n")
    teams = [f"{name}={tmp_path / name}.csv" for name in ("a", "b")]
    study(tmp_path, "--task", "2", *teams)
    output = next(path.parent for path in tmp_path.rglob("ensemble.json"))
    assert (output / "ensemble.csv").is_file()
    (tmp_path / "b.csv").write_text("PatientID,risk\nQ1,1\n")
    with pytest.raises(HecktorError):
        study(tmp_path, "--task", "2", *teams)
    assert not list(output.glob("ensemble.*"))
    (output / "ensemble.csv").write_text("mine")
    with pytest.raises(HecktorError):
        study(tmp_path, "--task", "2", *teams)
    assert (output / "ensemble.csv").read_text() == "mine"


SPACING_MM = (3.0, 2.0, 1.0)
SHAPE = (5, 6, 7)

masks = arrays(np.uint8, SHAPE, elements=st.integers(0, 2))


def combine(method, *masks_of_raters):
    compact = combine_masks([CompactMask.from_mask(mask) for mask in masks_of_raters], SHAPE, SPACING_MM, method)
    whole = np.zeros(SHAPE, np.uint8)
    whole[compact.box] = compact.inside
    return whole


def make_line(**voxels):
    """Return a mask with labels at places along the first row."""
    mask = np.zeros(SHAPE, np.uint8)
    for place, label in voxels.items():
        mask[2, 2, int(place[1:])] = label
    return mask


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        # One of two votes is 0.5 and enough; one of three votes is not.
        ([{"x1": 1, "x2": 1}, {"x1": 1}], {"x1": 1, "x2": 1}),
        ([{"x1": 1, "x2": 1}, {"x1": 1}, {}], {"x1": 1}),
        # Each label has one vote: GTVp. GTVn has two of four votes and GTVp one: GTVn.
        ([{"x1": 1}, {"x1": 2}], {"x1": 1}),
        ([{"x2": 2}, {"x2": 2}, {"x2": 1}, {}], {"x2": 2}),
    ],
)
def test_average_takes_half_of_the_votes_and_the_more_probable_label(votes, expected):
    mask = combine("average", *(make_line(**voxels) for voxels in votes))
    assert np.array_equal(mask, make_line(**expected))


def test_staple_trusts_the_raters_that_agree():
    """Two equal masks against an empty one: the third's sensitivity falls to 0, and the two are the truth."""
    mask = make_line(x1=1, x2=1, x3=1)
    votes = np.stack([mask == 1, mask == 1, mask == 3])
    assert np.array_equal(staple(votes, SPACING_MM) >= 0.5, mask == 1)
    assert np.array_equal(combine("staple", mask, mask, make_line()), mask)


def test_staple_does_not_depend_on_the_amount_of_air():
    """STAPLE looks at 10 mm around the votes, so that 30 more planes of air (90 mm) change nothing."""
    rng = np.random.default_rng(3)
    votes = np.zeros((4, 20, 12, 12), bool)
    votes[:, 8:12, 4:8, 4:8] = rng.random((4, 4, 4, 4)) < 0.7
    airy = np.pad(votes, ((0, 0), (15, 15), (0, 0), (0, 0)))
    assert np.array_equal(staple(airy, SPACING_MM)[15:-15], staple(votes, SPACING_MM))


def test_staple_of_masks_that_fill_the_image_or_are_empty_is_their_vote():
    for vote in (True, False):
        assert (staple(np.full((3, 2, 2, 2), vote), SPACING_MM) == float(vote)).all()


@pytest.mark.parametrize("method", METHODS)
@given(mask=masks, count=st.integers(1, 4))
def test_identical_masks_give_the_mask(method, mask, count):
    assert np.array_equal(combine(method, *[mask] * count), mask)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20)
@given(mask=masks, other_masks=st.lists(masks, min_size=1, max_size=3))
def test_voxels_outside_all_masks_are_never_added(method, mask, other_masks):
    result = combine(method, mask, *other_masks)
    for label in (1, 2):
        held = np.any([voted == label for voted in (mask, *other_masks)], axis=0)
        assert not (result == label)[~held].any()
