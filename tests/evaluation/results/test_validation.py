"""Results that no evaluation can have written: impossible rows, figures that do not follow from the rows, damaged files."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.errors import HecktorError
from evaluation.api import rank
from evaluation.ranking.cli import main
from tests.damage import ABSENT, list_paths, replace_at
from tests.evaluation.builders import read_edition


def rank_team(content, **options):
    return rank({"team": content}, bootstraps=0, **options)


MASK_FAULTS = [
    ({"gtvp.intersection_voxels": 80}, "gtvp: found .* at most the voxels of either"),
    ({"gtvn.reference_voxels": 4.5}, "gtvn.reference_voxels: found 4.5, expected a whole number"),
    ({"gtvp.predicted_voxels": -(10**400)}, "gtvp.predicted_voxels: found -1000"),
    ({"voxel_volume_mm3": 0}, "voxel_volume_mm3: found 0, expected a number of at least 1e-100"),
    ({"gtvp.surface.values.hd95_mm": -1.0}, "gtvp.surface.values.hd95_mm: found -1.0, expected a number of at least 0"),
    ({"gtvp.surface.values.surface_dsc": 1.01}, "gtvp.surface: found .* surface_dsc of at most 1"),
    ({"gtvp.surface.values.kappa": 1.0}, "gtvp.surface: found .* a value for each of"),
    ({"gtvp.surface.state": None}, "gtvp.surface.state: found null, expected one of"),
    ({"error": "no mask"}, ": found .* no predicted voxel in a row with an error"),
    ({"failed": True}, ": found .* the error of a failed case"),
    ({"gtvp.surface": None}, ": found .* the surfaces of gtvp, which these rules measure"),
    ({"gtvn.lesions": None}, ": found .* the lesions of GTVn"),
    ({"gtvn.lesions.dsc": []}, "gtvn.lesions: found .* as many sizes as DSCs of lesions"),
    (
        {"gtvn.lesions.pairs": [{"reference": 1, "predicted": 0, "iou": 0.5}]},
        "gtvn.lesions: found .* pairs of lesions whose sizes are listed",
    ),
    ({"kappa": 1}, "kappa: found 1, expected no such key"),
]


@pytest.mark.parametrize(("changes", "message"), MASK_FAULTS)
def test_rows_of_masks_that_cannot_be(valid_metrics, changes, message):
    """Case A has 8 reference and 8 predicted GTVp voxels of 6 mm3, 4 in common, and one GTVn lesion of 4 voxels."""
    content = valid_metrics("masks")
    for path, value in changes.items():
        *parents, key = path.split(".")
        place = content["results"][0]
        for parent in parents:
            place = place[parent]
        place[key] = value
    with pytest.raises(HecktorError, match=rf"^team, A\.?{message}"):
        rank_team(content)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("risks", {"risk": "high"}, r"\.risk: found \"high\", expected a number"),
        ("risks", {"risk": None}, ": found .* a prediction, or the error that prevented it"),
        ("risks", {"error": "late"}, ": found .* a prediction, or the error that prevented it"),
        ("risks", {"error": 5}, r"\.error: found 5"),
        ("risks", {"rfs_days": -1}, r"\.rfs_days: found -1, expected a number of at least 0"),
        ("risks", {"relapse": 1}, r"\.relapse: found 1, expected true or false"),
        ("classes", {"predicted_hpv_positive": 1}, r"\.predicted_hpv_positive: found 1, expected one of False, True"),
        ("classes", {"hpv_positive": "yes"}, r"\.hpv_positive: found \"yes\""),
        ("classes", {"predicted_probability": 1.5}, r"\.predicted_probability: found 1.5"),
        ("four_answers", {"t_stage": 5}, ": t_stage is not an object"),
        ("four_answers", {"n_stage": {}}, r"\.predicted_n_stage: found nothing"),
    ],
)
def test_rows_of_other_kinds_that_cannot_be(valid_metrics, kind, changes, message):
    content = valid_metrics(kind)
    content["results"][0] |= changes
    with pytest.raises(HecktorError, match=f"^team, P1{message}"):
        rank_team(content)


def test_a_case_twice_and_a_case_left_out(valid_metrics):
    content = valid_metrics("risks")
    with pytest.raises(HecktorError, match=r"^team, P1: two rows"):
        rank_team({**content, "results": [content["results"][0], *content["results"]]})
    with pytest.raises(HecktorError, match=r"^team: rows of other cases than case_set_sha256"):
        rank_team({**content, "results": content["results"][1:]})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gtvp_dsc_mean", 0.9, "states gtvp_dsc_mean 0.9, but its rows give 0.166667, expected"),
        ("gtvp_dsc_mean", None, "states gtvp_dsc_mean no value, but its rows give 0.166667, expected"),
        ("gtvp_dsc_agg", 0.9, "states gtvp_dsc_agg 0.9, but its rows give 0.25, expected"),
    ],
)
def test_every_stated_value_follows_from_the_rows(valid_metrics, name, value, message):
    """GTVp DSCs 0.5, 0 and 0; aggregated 2 * 4 / (3 * 8 + 8). The aggregated one ranks in no task."""
    content = valid_metrics("masks")
    content["aggregates"][name]["value"] = value
    with pytest.raises(HecktorError, match=f"^team: {message}"):
        rank_team(content)
    # The evaluation image puts its edition before the arguments of `rank`.
    with pytest.raises(HecktorError, match=r"^team: metrics of edition 'hecktor2025', expected 'hecktor2022'"):
        rank_team(content, edition="hecktor2022")


@pytest.mark.parametrize("kind", ["classes", "masks"])
def test_one_reference_is_equal_for_all_teams(valid_metrics, kind):
    """The second team has another class, or two lesions in the same four reference voxels."""
    second = valid_metrics(kind)
    row = second["results"][0]
    if kind == "classes":
        row["hpv_positive"] = not row["hpv_positive"]
    else:
        row["gtvn"]["lesions"]["fn"] = 1
    second["aggregates"] = {}
    with pytest.raises(HecktorError, match=f"one and two: {row['case']} was measured against different references"):
        rank({"one": valid_metrics(kind), "two": second}, bootstraps=0)


@pytest.mark.parametrize(
    ("kind", "name", "figures", "message"),
    [
        ("masks", "gtvp_dsc_mean", {"value": 1.7}, ": gtvp_dsc_mean 1.7, expected from 0 to 1"),
        ("masks", "gtvn_f1_agg", {"ci95_high": 1.7}, ": gtvn_f1_agg 1.7, expected from 0 to 1"),
        (
            "classes",
            "calibration_in_the_large",
            {"value": -1.1},
            ": calibration_in_the_large -1.1, expected from -1 to",
        ),
        ("four_answers", "score", {"value": 1.2}, ": score 1.2, expected from 0 to 1"),
        ("risks", "c_index", {"ci95_low": 0.9, "ci95_high": 0.1}, r"\.aggregates\.c_index: found "),
    ],
)
def test_values_beyond_their_range_are_refused_without_rows_too(valid_metrics, kind, name, figures, message):
    content = {**valid_metrics(kind), "results": []}
    rank_team(content, without_rows=True)
    content["aggregates"][name] |= figures
    with pytest.raises(HecktorError, match=f"^team{message}"):
        rank_team(content, without_rows=True)


def test_results_do_not_bring_their_own_edition(valid_metrics, tmp_path):
    """Only the user may choose an edition that is a file."""
    edition = tmp_path / "own.json"
    edition.write_text(json.dumps({**read_edition("hecktor2025"), "name": "hecktor2025"}))
    content = valid_metrics("risks")
    content["provenance"]["edition"] = str(edition)
    with pytest.raises(HecktorError, match=r"^team: edition .*, expected one of"):
        rank_team(content)
    assert rank_team(content, edition=str(edition)).order == ("team",)


def write_edition(tmp_path, **rules):
    """Write HECKTOR 2025 under another name with some rules of its masks changed."""
    content = {**read_edition("hecktor2025"), "name": "changed"}
    for task in content["scoring"].values():
        if isinstance(task, dict) and "segmentation" in task.get("answers", {}):
            task["answers"]["segmentation"]["rules"] |= rules
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_results_are_ranked_only_under_the_rules_of_their_evaluation(valid_metrics, tmp_path):
    content = {**valid_metrics("masks"), "results": []}
    with pytest.raises(HecktorError) as error:
        rank_team(content, edition=write_edition(tmp_path, connectivity=6), without_rows=True)
    assert "scored by rules that differ from changed: connectivity 26" in str(error.value)
    assert "expected connectivity 6; evaluate again with --edition changed" in str(error.value)
    content["provenance"]["options"]["connectivity"] = 6
    message = "rules that differ from hecktor2025: connectivity 6, expected connectivity 26"
    with pytest.raises(HecktorError, match=message):
        rank_team(content, edition="hecktor2025", without_rows=True)
    content = valid_metrics("four_answers")
    content["provenance"]["options"]["rfs"] |= {"direction": "risk", "missing": "skip"}
    message = r"rfs\.missing skip, rfs\.direction risk, expected rfs\.missing worst, rfs\.dir"
    with pytest.raises(HecktorError, match=message):
        rank_team(content, edition="hecktor2026")


KINDS = ("masks", "risks", "classes", "four_answers")
JUNK = st.one_of(
    st.sampled_from([ABSENT, None, True, 0, -1, 0.5, 10**400, 1e308, float("nan"), "", "1", "\ud800", [], {}, [None]]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_any_place_is_refused_or_harmless(valid_metrics, kind):
    """Every place is damaged once with a value of another type, and random places with random values.

    The rows of all cases have the same places, so only the first row is damaged in every place.
    """
    valid = valid_metrics(kind)
    paths = list(list_paths(valid))
    outcomes, lines = set(), set()

    @settings(max_examples=30)
    @given(st.sampled_from(paths), JUNK, st.booleans())
    @example(("provenance", "seed"), "abc", False)
    @example(("provenance", "seed"), -1, False)
    @example(("cases",), None, False)
    @example(("results", 0, "case"), "\ud800", False)
    def damage(path, junk, with_another_team):
        content = replace_at(valid_metrics(kind), path, junk)
        other_teams = {"sound": valid_metrics(kind)} if with_another_team else {}
        try:
            rank({"damaged": content, **other_teams}, bootstraps=3)
            outcomes.add("ranked")
        except HecktorError as problem:
            outcomes.add("refused")
            lines.add(problem.message.count("\n"))

    damage()
    places = [path for path in paths if path[0] != "results" or path[1:2] in ((), (0,))]
    for path, junk in zip(places, itertools.cycle(({}, 10**400, "x", None)), strict=False):
        with contextlib.suppress(HecktorError):
            rank({"damaged": replace_at(valid_metrics(kind), path, junk)}, bootstraps=0)
    assert outcomes == {"ranked", "refused"}
    assert lines == {0}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 2', '"format": 9', "format 9, expected format 2; evaluate again"),
        ('"value":', '"infinite": 5, "value":', ""),
        ('"case": "A"', '"case": null', ""),
        ('"intersection_voxels": 4', f'"intersection_voxels": 1{"0" * 5000}', ""),
        ('"dsc": 0.5', '"dsc": NaN', ""),
        ('"dsc": 0.5', '"dsc": 1e999', ""),
        ('"options": {', '"options": {"a": ' + "[" * 3000 + "]" * 3000 + ", ", ""),
    ],
)
def test_damaged_files_are_refused_by_the_command(valid_metrics, tmp_path, old, new, message):
    text = json.dumps(valid_metrics("masks"))
    assert old in text
    path = tmp_path / "team" / "metrics.json"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(HecktorError, match=rf"metrics\.json.*{message}"):
        main(["--task", "1", str(path), "--output", str(tmp_path / "board"), "--bootstraps", "3"])
    assert not (tmp_path / "board").exists()
