"""Results that no evaluation can have written: impossible rows, and figures that do not follow from the rows."""

from __future__ import annotations

import json

import pytest

from contract.errors import HecktorError
from evaluation.api import rank
from evaluation.ranking.cli import main
from tests.evaluation.builders import read_edition


def rank_team(content, **options):
    return rank({"team": content}, bootstraps=0, **options)


@pytest.mark.parametrize("kind", ["masks", "risks", "classes", "four_answers"])
def test_what_an_evaluation_wrote_is_ranked(valid_metrics, kind):
    assert rank_team(valid_metrics(kind)).order == ("team",)


MASK_FAULTS = {
    "intersection ten times the reference": (
        {"gtvp.intersection_voxels": 80},
        "gtvp: found .* at most the voxels of either",
    ),
    "half a voxel": ({"gtvn.reference_voxels": 4.5}, "gtvn.reference_voxels: found 4.5, expected a whole number"),
    "fewer than no voxels": ({"gtvp.predicted_voxels": -8}, "gtvp.predicted_voxels: found -8, expected a number of at"),
    "more digits than a double": ({"gtvp.predicted_voxels": -(10**400)}, "gtvp.predicted_voxels: found -1000"),
    "no volume": ({"voxel_volume_mm3": 0}, "voxel_volume_mm3: found 0, expected a number of at least 1e-100"),
    "a negative distance": (
        {"gtvp.surface.values.hd95_mm": -1.0},
        "gtvp.surface.values.hd95_mm: found -1.0, expected a number of at least 0",
    ),
    "a surface DSC above 1": (
        {"gtvp.surface.values.surface_dsc": 1.01},
        "gtvp.surface: found .* surface_dsc of at most 1",
    ),
    "a metric that is not measured": ({"gtvp.surface.values.kappa": 1.0}, "gtvp.surface: found .* a value for each of"),
    "no state of the surfaces": ({"gtvp.surface.state": None}, "gtvp.surface.state: found null, expected one of"),
    "voxels without a mask": ({"error": "no mask"}, ": found .* no predicted voxel in a row with an error"),
    "a failure without a reason": ({"failed": True}, ": found .* the error of a failed case"),
    "no surfaces": ({"gtvp.surface": None}, ": found .* the surfaces of gtvp, which these rules measure"),
    "no lesions": ({"gtvn.lesions": None}, ": found .* the lesions of GTVn"),
    "lists of two lengths": ({"gtvn.lesions.dsc": []}, "gtvn.lesions: found .* as many sizes as DSCs of lesions"),
    "a pair of an unknown lesion": (
        {"gtvn.lesions.pairs": [{"reference": 1, "predicted": 0, "iou": 0.5}]},
        "gtvn.lesions: found .* pairs of lesions whose sizes are listed",
    ),
    "another key": ({"kappa": 1}, "kappa: found 1, expected no such key"),
}


@pytest.mark.parametrize(("changes", "message"), MASK_FAULTS.values(), ids=MASK_FAULTS)
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


def test_classes_of_one_reference_are_equal_for_all_teams(valid_metrics):
    second = valid_metrics("classes")
    row = second["results"][0]
    row["hpv_positive"] = not row["hpv_positive"]
    second["aggregates"] = {}
    with pytest.raises(HecktorError, match="one and two: P1 was measured against different references"):
        rank({"one": valid_metrics("classes"), "two": second}, bootstraps=0)


def test_lesions_of_one_reference_are_equal_for_all_teams(valid_metrics):
    """In the second team's row two lesions lie in the same four reference voxels."""
    second = valid_metrics("masks")
    second["results"][0]["gtvn"]["lesions"]["fn"] = 1
    second["aggregates"] = {}
    with pytest.raises(HecktorError, match="one and two: A was measured against different references"):
        rank({"one": valid_metrics("masks"), "two": second}, bootstraps=0)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "message"),
    [
        ("masks", "gtvp_dsc_mean", "value", 1.7, "gtvp_dsc_mean 1.7, expected from 0 to 1"),
        ("masks", "gtvn_f1_agg", "ci95_high", 1.7, "gtvn_f1_agg 1.7, expected from 0 to 1"),
        ("risks", "c_index", "ci95_low", -0.1, "c_index -0.1, expected from 0 to 1"),
        ("classes", "calibration_in_the_large", "value", -1.1, "calibration_in_the_large -1.1, expected from -1 to 1"),
        ("four_answers", "score", "value", 1.2, "score 1.2, expected from 0 to 1"),
    ],
)
def test_values_beyond_their_range_are_refused_without_rows_too(valid_metrics, kind, name, key, value, message):
    content = {**valid_metrics(kind), "results": []}
    rank_team(content, without_rows=True)
    content["aggregates"][name][key] = value
    with pytest.raises(HecktorError, match=f"^team: {message}"):
        rank_team(content, without_rows=True)


def test_an_interval_begins_with_its_lower_end(valid_metrics):
    content = valid_metrics("risks")
    content["aggregates"]["c_index"] |= {"ci95_low": 0.9, "ci95_high": 0.1}
    with pytest.raises(HecktorError, match=r"^team\.aggregates\.c_index: found "):
        rank_team(content)


def test_distances_are_not_negative(valid_metrics):
    """HECKTOR 2021 ranks by the median HD95 in mm, which has no upper limit."""
    content = {**valid_metrics("masks"), "results": []}
    content["provenance"] |= {"edition": "hecktor2021"}
    content["aggregates"]["gtvp_hd95_median_mm"] = {"value": 300.0, "ci95_low": 1.0, "ci95_high": 400.0}
    rank_team(content, without_rows=True)
    content["aggregates"]["gtvp_hd95_median_mm"]["value"] = -1.0
    with pytest.raises(HecktorError, match="gtvp_hd95_median_mm -1, expected 0 or more"):
        rank_team(content, without_rows=True)


def test_every_run_of_a_team_needs_rows(valid_metrics, tmp_path):
    """Only the better run has rows."""
    paths = []
    for number, rows in enumerate((valid_metrics("risks")["results"], [])):
        path = tmp_path / str(number) / "metrics.json"
        path.parent.mkdir()
        path.write_text(json.dumps({**valid_metrics("risks"), "results": rows}))
        paths.append(str(path))
    arguments = ["--task", "2", "--runs", f"a={','.join(paths)}", "--output", str(tmp_path / "board")]
    with pytest.raises(HecktorError, match=r"2 1/metrics\.json: no per-case rows"):
        main(arguments)
    assert main([*arguments, "--without-rows"]) == 0


def test_results_do_not_bring_their_own_edition(valid_metrics, tmp_path):
    """Only the user may choose an edition that is a file."""
    edition = tmp_path / "own.json"
    edition.write_text(json.dumps({**read_edition("hecktor2025"), "name": "hecktor2025"}))
    content = valid_metrics("risks")
    content["provenance"]["edition"] = str(edition)
    with pytest.raises(HecktorError, match=r"^team: edition .*, expected one of"):
        rank_team(content)
    assert rank_team(content, edition=str(edition)).order == ("team",)


def test_an_edition_of_the_package_ranks_its_own_results(valid_metrics):
    """The evaluation image puts its edition before the arguments of `rank`."""
    with pytest.raises(HecktorError, match=r"^team: metrics of edition 'hecktor2025', expected 'hecktor2022'"):
        rank_team(valid_metrics("masks"), edition="hecktor2022")


def write_edition(tmp_path, **rules):
    """Write HECKTOR 2025 under another name with some rules of its masks changed."""
    content = {**read_edition("hecktor2025"), "name": "changed"}
    for task in content["scoring"].values():
        if isinstance(task, dict) and "segmentation" in task.get("answers", {}):
            task["answers"]["segmentation"]["rules"] |= rules
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize("rows", [True, False])
def test_results_are_ranked_only_under_the_rules_of_their_evaluation(valid_metrics, tmp_path, rows):
    content = valid_metrics("masks")
    if not rows:
        content = {**content, "results": []}
        content["provenance"] = {**content["provenance"], "case_set_sha256": ""}
    with pytest.raises(HecktorError) as error:
        rank_team(content, edition=write_edition(tmp_path, connectivity=6), without_rows=True)
    assert "scored by rules that differ from changed: connectivity 26" in str(error.value)
    assert "expected connectivity 6; evaluate again with --edition changed" in str(error.value)
    content["provenance"] = {
        **content["provenance"],
        "options": {**content["provenance"]["options"], "connectivity": 6},
    }
    with pytest.raises(
        HecktorError, match="rules that differ from hecktor2025: connectivity 6, expected connectivity 26"
    ):
        rank_team(content, edition="hecktor2025", without_rows=True)


def test_every_differing_rule_of_an_answer_is_named(valid_metrics):
    content = valid_metrics("four_answers")
    content["provenance"]["options"]["rfs"] |= {"direction": "risk", "missing": "skip"}
    with pytest.raises(
        HecktorError, match=r"rfs\.missing skip, rfs\.direction risk, expected rfs\.missing worst, rfs\.dir"
    ):
        rank_team(content, edition="hecktor2026")
