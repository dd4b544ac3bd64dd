"""A case with files that cannot be used, and a PET in Bq/ml."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from reporting.viewer import case as case_module
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort
from tests.reporting.viewer.conftest import GRID, ToyCohort, read_volume_of


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


def test_a_team_without_a_mask_is_noted(cohort: ViewerCohort) -> None:
    shown = build_case(cohort.cases["C-2"])
    assert shown["notes"] == ["no mask of B"]
    assert [mask["name"] for mask in shown["masks"]] == ["reference", "A"]


def test_a_prediction_of_a_whole_body_is_noted(cohort: ViewerCohort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Team A's mask has 64 + 18 + 1 voxels, team B's 64."""
    monkeypatch.setattr(case_module, "MAX_LABELLED_VOXELS", 80)
    assert build_case(cohort.cases["C-1"])["notes"] == ["A: C-1.mha: 83 labelled voxels, expected at most 80"]


def test_an_unreadable_ct_or_reference_is_an_error(cohort: ViewerCohort) -> None:
    files = cohort.cases["C-1"].files
    content_of_ct = files.ct.read_bytes()
    files.ct.write_bytes(b"nothing")
    with pytest.raises(HecktorError, match="C-1__CT"):
        build_case(cohort.cases["C-1"])
    files.ct.write_bytes(content_of_ct)
    files.reference.write_bytes(b"nothing")
    with pytest.raises(GroundTruthError, match=r"C-1.nii.gz"):
        build_case(cohort.cases["C-1"])


def test_a_case_is_shown_without_an_unreadable_pet(cohort: ViewerCohort) -> None:
    cohort.cases["C-1"].files.pet.write_bytes(b"nothing")
    shown = build_case(cohort.cases["C-1"])
    assert shown["pet"] is None
    assert shown["notes"][0].startswith("PET: C-1__PT.nii.gz")
    assert {lesion["suv_max"] for lesion in shown["lesions"]} == {None}


def make_becquerel_cohort(toy: ToyCohort, nodes: np.ndarray) -> ViewerCohort:
    """Write a PET of 4,000 Bq/ml with 20,000 Bq/ml in the lesions."""
    toy.add("C-1", nodes, Volume(np.where(nodes > 0, 20_000, 4_000).astype(np.float32), GRID))
    return toy.find()


def test_a_pet_in_bq_per_ml_has_no_suv(toy: ToyCohort, nodes: np.ndarray) -> None:
    """Lesions hold fewer than 0.5% of the voxels, so that the window ends at the background."""
    shown = build_case(make_becquerel_cohort(toy, nodes).cases["C-1"])
    assert (shown["pet"]["window"], shown["pet"]["unit"]) == ((0.0, 4000.0), "Bq/ml")
    assert {lesion["suv_max"] for lesion in shown["lesions"]} == {None}


def test_the_factor_of_the_record_gives_suv(toy: ToyCohort, nodes: np.ndarray) -> None:
    """20,000 Bq/ml x 0.00025 = SUV 5."""
    case = replace(make_becquerel_cohort(toy, nodes).cases["C-1"], suv_factor=0.00025)
    shown = build_case(case)
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
