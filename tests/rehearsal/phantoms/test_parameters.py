"""Distributions of 1,000 patients that are drawn without rendering."""

from __future__ import annotations

import numpy as np
import pytest

from contract.errors import InputError
from rehearsal.phantoms import lesions
from rehearsal.phantoms.centres import CENTRES, TRAINING_CENTRES, UNSEEN_CENTRES, find_centre
from rehearsal.phantoms.cohort import PhantomCase, make_case, widen_ct_pixels
from rehearsal.phantoms.lesions import Lesion, Surface, n_stage, t_stage
from rehearsal.phantoms.outcome import HAZARD, HPV, MISSING, compute_hazard_terms


@pytest.fixture(scope="module")
def cohort() -> list[PhantomCase]:
    return [make_case(11, index, CENTRES) for index in range(1000)]


def c_index(cohort: list[PhantomCase], risk: np.ndarray) -> float:
    """Return Harrell's C by its definition: among pairs whose earlier time is an event, the share with the higher risk."""
    days = np.array([case.outcome.rfs_days for case in cohort])
    right = pairs = 0.0
    for index in np.flatnonzero([case.outcome.relapse for case in cohort]):
        later = days > days[index]
        right += (risk[index] > risk[later]).sum() + 0.5 * (risk[index] == risk[later]).sum()
        pairs += later.sum()
    return right / pairs


def compute_partial_risk(cohort: list[PhantomCase], names: tuple[str, ...]) -> np.ndarray:
    terms = [compute_hazard_terms(case.clinical, case.disease, case.outcome.hpv_positive) for case in cohort]
    return np.array([sum(HAZARD[name] * row[name] for name in names) for row in terms])


def test_a_patient_does_not_depend_on_the_cohort_size(cohort: list[PhantomCase]) -> None:
    assert make_case(11, 37, CENTRES) == cohort[37]
    assert make_case(12, 37, CENTRES) != cohort[37]


def test_slices_of_long_scans_are_thick(cohort: list[PhantomCase]) -> None:
    """A CT of more than 600 mm, up to a whole body, has slices of 2.5 mm or more; most centres' own are thinner."""
    grids = [case.protocol.ct for case in cohort]
    thickness = [(grid.size[2] * grid.spacing_mm[2] > 605, grid.spacing_mm[2]) for grid in grids]
    assert min(mm for is_long, mm in thickness if is_long) == 2.5
    assert min(mm for is_long, mm in thickness if not is_long) < 2.5


def test_wider_pixels_of_a_ct(cohort: list[PhantomCase]) -> None:
    """Pixels of the centres' CTs, 0.7 to 0.98 mm, are doubled; those of 1.17 and 1.37 mm become 1.755 and 2.055 mm."""
    pixels = {}
    for case in cohort:
        pixels[case.protocol.ct.spacing_mm[0]] = widen_ct_pixels(case.protocol).ct
    assert {before: after.spacing_mm[0] for before, after in pixels.items()} == pytest.approx(
        {0.7: 1.4, 0.853: 1.706, 0.9: 1.8, 0.98: 1.96, 1.17: 1.755, 1.37: 2.055}
    )
    assert {after.size[0] for after in pixels.values()} == {256, 341}


def test_ids_are_unique_and_carry_the_centre(cohort: list[PhantomCase]) -> None:
    assert len({case.patient_id for case in cohort}) == len(cohort)
    assert all(case.patient_id == f"{case.centre.code}-{case.index + 1:03d}" for case in cohort)
    assert {case.centre.code for case in cohort} == set(TRAINING_CENTRES + UNSEEN_CENTRES)


def test_patients_come_from_the_chosen_centres() -> None:
    unseen = [find_centre(code) for code in UNSEEN_CENTRES]
    assert {make_case(1, index, unseen).centre.code for index in range(60)} == set(UNSEEN_CENTRES)
    with pytest.raises(InputError, match="found 'XYZ'"):
        find_centre("XYZ")


def test_primary_tumours_follow_the_stated_distribution(cohort: list[PhantomCase]) -> None:
    """Among 1,000 patients, a share of five per cent has a standard error of 0.7 points; the log of a median has about
    1.1 x 1.25 / sqrt(950) = 0.045.
    """
    volumes = np.array([case.disease.gtvp_ml for case in cohort])
    assert (volumes == 0).mean() == pytest.approx(lesions.NO_GTVP_SHARE, abs=0.02)
    present = volumes[volumes > 0]
    assert np.log(np.median(present)) == pytest.approx(np.log(lesions.GTVP_MEDIAN_ML), abs=0.12)
    assert present.min() >= lesions.GTVP_RANGE_ML[0]
    assert present.max() <= lesions.GTVP_RANGE_ML[1]


def test_nodes_are_none_to_seven_and_all_but_matted_ones_four_to_forty_millimetres(cohort: list[PhantomCase]) -> None:
    counts = np.bincount([len(case.disease.nodes) for case in cohort], minlength=7) / len(cohort)
    assert len(counts) <= 8
    assert counts[:7].min() > 0.01
    diameters = np.array([2 * node.radius_mm for case in cohort for node in case.disease.nodes])
    assert diameters.min() >= 4 - 1e-9
    assert ((diameters <= 40 + 1e-9) | (diameters >= 46 - 1e-9)).all()
    assert diameters.max() <= 50 + 1e-9
    assert all(case.disease.nodes or case.disease.gtvp_ml for case in cohort)


def test_events_and_hpv_are_as_frequent_as_stated(cohort: list[PhantomCase]) -> None:
    assert 0.25 <= np.mean([case.outcome.relapse for case in cohort]) <= 0.40
    assert np.mean([case.outcome.hpv_positive for case in cohort]) == pytest.approx(0.82, abs=0.04)


def test_the_first_twenty_patients_have_every_outcome() -> None:
    """README makes them: `--patients 20 --seed 1`."""
    cases = [make_case(1, index, CENTRES) for index in range(20)]
    assert sum(not case.outcome.hpv_positive for case in cases) >= 2
    assert 4 <= sum(case.outcome.relapse for case in cases) <= 16


def test_every_stage_is_there(cohort: list[PhantomCase]) -> None:
    for stage_of, stages in ((t_stage, ("T1", "T2", "T3", "T4", None)), (n_stage, ("N0", "N1", "N2", "N3"))):
        drawn = [stage_of(case.disease) for case in cohort[:80]]
        assert all(drawn.count(stage) >= 2 for stage in stages)


def test_imaging_can_improve_on_clinical_variables(cohort: list[PhantomCase]) -> None:
    oracle = c_index(cohort, np.array([case.outcome.linear_predictor for case in cohort]))
    clinical = c_index(cohort, compute_partial_risk(cohort, ("performance_status", "tobacco")))
    imaging = c_index(cohort, compute_partial_risk(cohort, ("log_total_volume", "sqrt_node_count")))
    assert 0.74 <= oracle <= 0.81
    assert 0.55 <= clinical <= 0.65
    assert clinical + 0.05 < imaging < oracle


def test_the_hpv_logit_separates_as_stated(cohort: list[PhantomCase]) -> None:
    logits = np.array([case.outcome.hpv_logit for case in cohort])
    positive = np.array([case.outcome.hpv_positive for case in cohort])
    area = (logits[positive][:, None] > logits[~positive][None, :]).mean()
    assert 0.79 <= area <= 0.91


def test_missing_values_follow_the_centre(cohort: list[PhantomCase]) -> None:
    for code, lacking in (("CHB", "tobacco"), ("CHUM", HPV)):
        assert {case.record[lacking] for case in cohort if case.centre == find_centre(code)} == {None}
    missing = [case.record["tobacco"] is None for case in cohort if case.centre == find_centre("MDA")]
    assert np.mean(missing) == pytest.approx(MISSING["tobacco"], abs=0.08)


def test_fields_of_view_hold_the_primary_and_every_node(cohort: list[PhantomCase]) -> None:
    for case in cohort[:300]:
        low = case.protocol.ct.origin_mm[2]
        high = low + case.protocol.ct.spacing_mm[2] * (case.protocol.ct.size[2] - 1)
        for lesion in case.disease.lesions:
            if lesion.label:
                assert low < case.frame.to_patient(lesion.place)[2] < high
    assert {case.protocol.field_of_view for case in cohort} == {"head_and_neck", "cut", "whole_body"}


def test_ct_and_pet_never_share_a_grid(cohort: list[PhantomCase]) -> None:
    assert all(case.protocol.ct.find_differences(case.protocol.pet) for case in cohort)


@pytest.mark.parametrize("shape_seed", range(5))
def test_an_uneven_surface_encloses_the_planned_volume(shape_seed: int) -> None:
    """Counting voxels of 0.5 mm in 8 ml, the error is far below the 5% allowed."""
    lesion = Lesion(1, "tonsil", (0, 0, 0), 8.0, (1.2, 0.9, 1.0), 0.14, 12.0, 85.0, 0.0, shape_seed)
    surface = Surface(lesion, (3.0, -4.0, 50.0))
    low, high = surface.corners()
    x, y, z = (np.arange(a, b, 0.5, dtype=np.float32) for a, b in zip(low, high, strict=True))
    inside = surface.level(x[None, None, :], y[None, :, None], z[:, None, None]) < 1
    assert inside.sum() * 0.125 / 1000 == pytest.approx(8.0, rel=0.05)
    assert not inside[0].any()
    assert not inside[-1].any()
