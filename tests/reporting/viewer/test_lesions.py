"""Volumes, SUVmax, points and matches of lesions, derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.rules import MaskRules
from reporting.viewer import case as findings
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.lesions import find_lesions, match_masks, measure_lesions
from tests.reporting.viewer.conftest import GRID, ToyCohort


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
