"""The list of cases, and each case: files, teams, centres, values, lesions, and files that cannot be used."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.errors import GroundTruthError, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask
from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.rules import MaskRules
from reporting.viewer import case as case_module
from reporting.viewer import case as findings
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort, ViewerRequest, find_cohort, sort_cases, to_json_value
from reporting.viewer.lesions import find_lesions, match_masks, measure_lesions
from tests.reporting.viewer.conftest import GRID, ToyCohort, read_volume_of


def test_values_come_from_the_rows(ranked_cohort: Path) -> None:
    """Shifted by one voxel, 3/4 of the GTVp and 2/3 of the larger GTVn remain, and nothing of the single voxel.

    GTVp: DSC 48 / 64 = 0.75. GTVn: 12 of 18 + 1 voxels, DSC 2 x 12 / 38 = 0.6316. Volumes: 64 and 19 voxels of
    0.012 ml. The mean GTVp DSC is 1 of C-1 and 0.375 of C-2.
    """
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    listing = cohort.listing
    assert [team["name"] for team in listing["teams"]] == ["near", "none"]
    assert [case["centre"] for case in listing["cases"]] == ["CHUM", "MDA"]
    values = listing["cases"][1]["values"]
    assert values["gtvp_dsc"] == {"near": 0.75, "none": 0.0}
    assert values["gtvn_dsc"] == {"near": 0.6316, "none": 0.0}
    assert values["gtvn_lesions_fn"] == {"near": 1, "none": 2}
    assert values["gtvp_volume_ml"] == {"": 0.768}
    assert values["gtvn_volume_ml"] == {"": 0.228}
    assert values["gtvn_lesions"] == {"": 2}
    assert listing["cases"][1]["facts"] == "GTVp 0.8 ml · GTVn 0.2 ml in 2 lesions"
    assert [case["case"] for case in cohort.select_worst(1).listing["cases"]] == ["C-2"]
    assert [list(cohort.select_worst(count).cases) for count in (1, 5)] == [["C-2"], ["C-1", "C-2"]]


def test_masks_come_from_the_results_or_another_folder(ranked_cohort: Path) -> None:
    """In the results only `near` has masks; `third` has no results and is shown last."""
    write_mask(ranked_cohort / "third" / "C-2.mha", np.zeros(GRID.array_shape, np.uint8), GRID)
    cohort = find_cohort(
        ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results", {"third": ranked_cohort / "third"})
    )
    assert set(cohort.cases["C-1"].files.predictions) == {"near"}
    assert set(cohort.cases["C-2"].files.predictions) == {"near", "third"}
    assert [team["name"] for team in cohort.listing["teams"]] == ["near", "none", "third"]
    assert set(cohort.listing["cases"][0]["values"]["gtvp_dsc"]) == {"near", "none"}


def test_another_cohort_stops_the_viewer(ranked_cohort: Path, nodes: np.ndarray) -> None:
    """References have 64 voxels of GTVp. The first case is compared at the start, the others when they are shown."""
    folder = ranked_cohort / "cohort" / "ground_truth"
    changed = nodes.copy()
    changed[0, 0, 0] = 1
    message = "65 voxels of GTVp, expected the 64 that were scored; is this another cohort?"
    write_mask(folder / "C-2.mha", changed, GRID)
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    with pytest.raises(GroundTruthError, match=f"C-2.mha: {re.escape(message)}"):
        build_case(cohort.cases["C-2"])
    write_mask(folder / "C-1.mha", changed, GRID)
    with pytest.raises(GroundTruthError, match=f"C-1.mha: {re.escape(message)}"):
        find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))


def test_teams_without_masks_and_masks_of_another_run_are_notes(ranked_cohort: Path, nodes: np.ndarray) -> None:
    """In the results `none` has no masks; the GTVp of `near` had 64 voxels and now has 0."""
    write_mask(ranked_cohort / "results" / "task1" / "near" / "predictions" / "C-1.mha", nodes * (nodes == 2), GRID)
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    assert cohort.notes == ("no masks of none, whose contours are not shown (--masks TEAM=FOLDER)",)
    content = build_case(cohort.cases["C-1"])
    assert content["notes"] == [
        "near: C-1.mha: 0 voxels of GTVp, expected the 64 that were scored; is this another run?",
        "no mask of none",
    ]


def test_an_empty_mask_and_an_infinite_distance_count() -> None:
    """In A one team marks an absent GTVp, three rightly mark nothing: mean 3/4. B: mean 0.7."""
    entries = {"A": (0.0, None, None, None), "B": (0.7, 0.7, 0.7, 0.7)}
    listing = {
        "metrics": [{"key": "gtvp_dsc"}],
        "cases": [
            {"case": case, "values": {"gtvp_dsc": dict(zip("abcd", dsc, strict=True))}} for case, dsc in entries.items()
        ],
    }
    assert sort_cases(listing) == ["B", "A"]
    rows = [{"gtvp_hd95_mm": 2.0, "gtvp_surface": "measured"}, {"gtvp_hd95_mm": None, "gtvp_surface": "one_empty"}]
    assert [to_json_value(row, "gtvp_hd95_mm") for row in rows] == [2.0, "inf"]
    assert to_json_value({"gtvp_hd95_mm": None, "gtvp_surface": "both_empty"}, "gtvp_hd95_mm") is None


def test_the_list_needs_neither_results_nor_images(toy: ToyCohort, nodes: np.ndarray) -> None:
    """Without a record the name gives the centre."""
    toy.add("C-1", nodes)
    for path in (toy.root / "cohort" / "C-1").iterdir():
        path.write_bytes(b"nothing")
    listing = toy.find().listing
    assert listing["metrics"] == []
    assert listing["cases"] == [{"case": "C-1", "centre": "C", "values": {}, "facts": ""}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": Path("/nowhere")}, "nowhere: no case found"),
        ({"results": Path("/nowhere")}, "nowhere: no such folder"),
    ],
)
def test_a_wrong_folder_is_an_error(toy: ToyCohort, nodes: np.ndarray, change: dict, message: str) -> None:
    toy.add("C-1", nodes)
    with pytest.raises(HecktorError, match=message):
        find_cohort(ViewerRequest(**{"cohort": toy.root / "cohort", **change}))


def test_an_unusable_prediction_is_noted_and_the_rest_is_shown(
    toy: ToyCohort, nodes: np.ndarray, cohort: ViewerCohort
) -> None:
    thin = Geometry(GRID.size, (2.0, 2.0, 2.5), GRID.origin_mm)
    toy.predict("B", "C-1", nodes, thin)
    shown = build_case(cohort.cases["C-1"])
    assert [mask["name"] for mask in shown["masks"]] == ["reference", "A"]
    (note,) = shown["notes"]
    assert note.startswith("B: C-1.mha: its grid is size (40, 40, 20)")
    assert {tuple(lesion["status"]) for lesion in shown["lesions"] if lesion["source"] == "reference"} == {("A",)}


def test_a_resampled_prediction_is_noted(toy: ToyCohort, nodes: np.ndarray, cohort: ViewerCohort) -> None:
    """By the rule of 2020 and 2021 a mask may lie half a voxel lower."""
    toy.predict("B", "C-1", nodes, replace(GRID, origin_mm=(GRID.origin_mm[0] - 1.0, *GRID.origin_mm[1:])))
    sources = cohort.cases["C-1"]
    rules = sources.rules.model_copy(update={"geometry": "resample_nearest"})
    shown = build_case(replace(sources, rules=rules))
    assert [mask["name"] for mask in shown["masks"]] == ["reference", "A", "B"]
    (note,) = shown["notes"]
    assert note.startswith("B: on another grid than the reference (its grid is ")


def test_a_prediction_of_a_whole_body_is_noted(cohort: ViewerCohort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Team A's mask has 64 + 18 + 1 voxels, team B's 64."""
    monkeypatch.setattr(case_module, "MAX_LABELLED_VOXELS", 80)
    assert build_case(cohort.cases["C-1"])["notes"] == ["A: C-1.mha: 83 labelled voxels, expected at most 80"]


def test_an_unreadable_ct_or_reference_is_an_error(cohort: ViewerCohort) -> None:
    """A case is shown without an unreadable PET."""
    files = cohort.cases["C-1"].files
    files.pet.write_bytes(b"nothing")
    shown = build_case(cohort.cases["C-1"])
    assert shown["pet"] is None
    assert shown["notes"][0].startswith("PET: C-1__PT.nii.gz")
    assert {lesion["suv_max"] for lesion in shown["lesions"]} == {None}
    content_of_ct = files.ct.read_bytes()
    files.ct.write_bytes(b"nothing")
    with pytest.raises(HecktorError, match="C-1__CT"):
        build_case(cohort.cases["C-1"])
    files.ct.write_bytes(content_of_ct)
    files.reference.write_bytes(b"nothing")
    with pytest.raises(GroundTruthError, match=r"C-1.nii.gz"):
        build_case(cohort.cases["C-1"])


def test_a_pet_in_bq_per_ml_has_no_suv(toy: ToyCohort, nodes: np.ndarray) -> None:
    """A PET of 4,000 Bq/ml has 20,000 Bq/ml in the lesions, fewer than 0.5% of the voxels, so that the window ends at the
    background. The record's factor gives SUV: 20,000 Bq/ml x 0.00025 = 5.
    """
    toy.add("C-1", nodes, Volume(np.where(nodes > 0, 20_000, 4_000).astype(np.float32), GRID))
    case = toy.find().cases["C-1"]
    shown = build_case(case)
    assert (shown["pet"]["window"], shown["pet"]["unit"]) == ((0.0, 4000.0), "Bq/ml")
    assert {lesion["suv_max"] for lesion in shown["lesions"]} == {None}
    shown = build_case(replace(case, suv_factor=0.00025))
    assert (shown["pet"]["window"], shown["pet"]["unit"]) == ((0.0, 10.0), "SUV")
    assert read_volume_of(shown["pet"]["volume"]).array.max() == pytest.approx(5.0)
    assert {lesion["suv_max"] for lesion in shown["lesions"]} == {5.0}


def test_a_pet_of_any_scale_fits_its_type(toy: ToyCohort, nodes: np.ndarray) -> None:
    """Steps are 0.01 up to SUV 5 and 100 up to 3,276,700 Bq/ml, so that 140 becomes 100."""
    for background, highest, expected in ((1.234, 5.0, 1.23), (140.0, 3_276_700.0, 100.0)):
        pet = np.where(nodes > 0, highest, background).astype(np.float32)
        toy.add("C-1", nodes, Volume(pet, GRID))
        shown = read_volume_of(build_case(toy.find().cases["C-1"])["pet"]["volume"]).array
        assert (shown.min(), shown.max()) == (pytest.approx(expected), pytest.approx(highest))


def show_case(cohort: ViewerCohort, case: str = "C-1") -> dict:
    return build_case(cohort.cases[case])


def test_the_list_of_a_case(cohort: ViewerCohort) -> None:
    """Voxels of 2 x 2 x 3 mm are 0.012 ml: GTVp 64 voxels, 0.768 ml, GTVn 18 voxels, 0.216 ml, and one voxel.

    The GTVp's indices are x 10 to 13, y 16 to 19, z 8 to 11, with the middle at 11.5, 17.5, 9.5; the grid starts at
    (-40, -40, -500) LPS, so the middle is at LPS (-17, -5, -471.5) and at RAS (17, 5, -471.5). Team A has the
    reference's mask; team B has only its GTVp. The PET is 5 in the lesions.
    """
    shown = show_case(cohort)
    assert shown["facts"] == "GTVp 0.8 ml · GTVn 0.2 ml in 2 lesions"
    assert shown["notes"] == []
    reference = [lesion for lesion in shown["lesions"] if lesion["source"] == "reference"]
    assert [(lesion["id"], lesion["label"], lesion["volume_ml"], lesion["suv_max"]) for lesion in reference] == [
        ("reference-1", "GTVp", 0.768, 5.0),
        ("reference-2", "GTVn", 0.216, 5.0),
        ("reference-3", "GTVn", 0.012, 5.0),
    ]
    assert reference[0]["centroid_ras_mm"] == [17.0, 5.0, -471.5]
    assert [lesion["status"]["A"] for lesion in reference] == ["found", "found", "found"]
    assert [lesion["status"]["B"] for lesion in reference] == ["found", "missed", "missed"]
    own = [(lesion["id"], lesion["status"]) for lesion in shown["lesions"] if lesion["source"] in "AB"]
    assert own == [("A-1", "true"), ("A-2", "true"), ("A-3", "true"), ("B-1", "true")]


def test_a_label_does_not_match_another_one(rules, nodes: np.ndarray) -> None:
    """GTVp voxels marked as GTVn are a missed GTVp and a false GTVn."""
    reference = find_lesions(np.where(nodes == 1, 1, 0), GRID, 26)
    predicted = find_lesions(np.where(nodes == 1, 2, 0), GRID, 26)
    matched = match_masks(reference, predicted, rules())
    assert (matched.dsc, matched.predicted) == ({}, frozenset())


@given(
    arrays(np.bool_, (2, 5, 6)), arrays(np.bool_, (2, 5, 6)), st.sampled_from(["one_to_one", "any_overlap", "greedy"])
)
def test_matches_agree_with_the_counts_of_the_evaluation(
    reference: np.ndarray, predicted: np.ndarray, matching: str
) -> None:
    (profile,) = load_profile().find_task("segmentation").answers.values()
    assert isinstance(profile.rules, MaskRules)
    rules = profile.rules.model_copy(update={"matching": matching})
    grid = Geometry((6, 5, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    actual, marked = (
        find_lesions(2 * mask.astype(np.uint8), grid, rules.connectivity) for mask in (reference, predicted)
    )
    matched, counts = match_masks(actual, marked, rules), compare_lesions(reference, predicted, rules).counts
    assert len(matched.predicted) == counts.true_positives
    assert marked.sizes.size - 1 - len(matched.predicted) == counts.false_positives
    assert actual.sizes.size - 1 - len(matched.dsc) == counts.false_negatives


def test_suv_max_is_interpolated_at_the_lesion_on_the_mask_grid(toy: ToyCohort) -> None:
    """PET voxels of 4 mm along x with SUV 2 and 10 at centres 0 and 4: at x = 1 mm the PET is 2 + 8 / 4 = 4."""
    fine = Geometry((8, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    mask = np.zeros(fine.array_shape, np.uint8)
    mask[1, 1, 1] = 1
    pet = np.broadcast_to(np.array([2.0, 10.0], np.float32), (4, 4, 2)).copy()
    toy.add(
        "C-1", mask, Volume(pet, Geometry((2, 4, 4), (4.0, 1.0, 1.0), (0.0, 0.0, 0.0))),
        Volume(np.zeros(fine.array_shape, np.int16), fine),
    )  # fmt: skip
    assert show_case(toy.find())["lesions"][0]["suv_max"] == 4.0


def test_specks_beyond_the_limit_are_noted(toy: ToyCohort, nodes: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_LESIONS", 2)
    toy.add("C-1", nodes)
    shown = show_case(toy.find())
    assert [lesion["id"] for lesion in shown["lesions"]] == ["reference-1", "reference-2"]
    assert shown["notes"] == ["reference: the largest 2 of 3 lesions are listed"]
    assert shown["facts"].endswith("in 2 lesions")


def test_the_point_of_a_ring_is_a_voxel_of_it() -> None:
    """A ring's centroid lies in its hole; the nearest voxels of this ring are 2 mm away."""
    ring = np.zeros((1, 5, 5), np.uint8)
    ring[0] = 1
    ring[0, 1:4, 1:4] = 0
    grid = Geometry((5, 5, 1), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    (lesion,) = measure_lesions(find_lesions(ring, grid, 26), None)
    x, y, _ = np.rint(lesion.point_mm).astype(int)
    assert ring[0, y, x] == 1
    assert abs(x - 2) + abs(y - 2) == 2
