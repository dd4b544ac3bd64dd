"""What centres record of patients with stages."""

from __future__ import annotations

import numpy as np
import pytest

from rehearsal.phantoms.anatomy.lesions import Disease, Lesion
from rehearsal.phantoms.centres import CENTRES, TRAINING_CENTRES, UNSEEN_CENTRES, Centre, centre_named
from rehearsal.phantoms.outcome import Clinical
from rehearsal.phantoms.records import HPV, Activity, Record, random_record

CLINICAL = Clinical(61, 1, 1, 0, 2, 1, "M0")
DRAWS = 3000


def lesion(label: int, volume_ml: float, x_mm: float) -> Lesion:
    return Lesion(label, "tonsil", (x_mm, 0.0, 0.0), volume_ml, (1.0, 1.0, 1.0), 0.1, 10.0, 80.0, 0.0, 1)


# Balls of 14 ml and 4 ml have diameters of 30 and 20 mm: T2, and N1 on the same side.
T2_N1 = Disease((lesion(1, 14.0, 19.0), lesion(2, 4.0, 35.0)), cystic=False)
T2_N0 = Disease((lesion(1, 14.0, 19.0),), cystic=False)
T0_N1 = Disease((lesion(2, 4.0, 35.0),), cystic=False)


def records(centre: Centre, disease: Disease = T2_N1) -> list[Record]:
    rng = np.random.default_rng(3)
    return [random_record(rng, CLINICAL, centre, disease, hpv_positive=True) for _ in range(DRAWS)]


@pytest.mark.parametrize("centre", CENTRES, ids=lambda centre: centre.code)
def test_values_are_missing_as_a_block(centre: Centre) -> None:
    """2% of 3,000 have a standard error of 0.26 points."""
    drawn = records(centre)
    for name in ("tobacco", "alcohol", "performance_status", HPV):
        missing = np.mean([record.variables[name] is None for record in drawn])
        assert missing == (1.0 if name in centre.never_recorded else pytest.approx(0.02, abs=0.012))
    assert {record.variables["age_years"] for record in drawn} <= {61, None}


def test_every_variable_is_a_block_somewhere_and_one_training_centre_is_complete() -> None:
    lacking = [set(centre_named(code).never_recorded) for code in TRAINING_CENTRES]
    assert set.union(*lacking) == {"tobacco", "alcohol", "performance_status", HPV}
    assert set() in lacking
    assert all(centre_named(code).never_recorded for code in UNSEEN_CENTRES)


def test_stages_are_recorded_with_errors_to_their_neighbours() -> None:
    """T2 is read as T1 or T3 in 8% and missing in 2%; N1 has only N2 beside it, in 5%."""
    drawn = records(CENTRES[0])
    assert {record.t_anatomy for record in drawn} == {"T2"}
    shares = {stage: np.mean([record.t_stage == stage for record in drawn]) for stage in ("T1", "T2", "T3", None)}
    assert shares["T1"] == pytest.approx(0.04 * 0.98, abs=0.012)
    assert shares["T3"] == pytest.approx(0.04 * 0.98, abs=0.012)
    assert shares[None] == pytest.approx(0.02, abs=0.01)
    assert sum(shares.values()) == pytest.approx(1)
    shares = {stage: np.mean([record.n_stage == stage for record in drawn]) for stage in ("N1", "N2")}
    assert shares["N2"] == pytest.approx(0.05, abs=0.015)
    assert sum(shares.values()) == pytest.approx(1)


def test_absence_of_primary_and_nodes_is_never_mistaken() -> None:
    assert {record.n_stage for record in records(CENTRES[0], T2_N0)} == {"N0"}
    assert {record.t_stage for record in records(CENTRES[0], T0_N1)} == {"T0", None}


def test_factor_from_bq_per_ml_to_suv() -> None:
    """80 kg and 200 MBq: SUV 1 is 200e6 Bq / 80,000 g = 2,500 Bq/ml, so the factor is 1 / 2,500."""
    assert Activity(80.0, 200e6, factor_recorded=True).suv_factor == pytest.approx(1 / 2500)


def test_shares_of_activity_and_of_unlisted_centres() -> None:
    drawn = records(CENTRES[0])
    activities = [record.activity for record in drawn if record.activity]
    assert len(activities) / DRAWS == pytest.approx(0.07, abs=0.015)
    assert np.mean([activity.factor_recorded for activity in activities]) == pytest.approx(0.5, abs=0.12)
    assert all(1e-4 < activity.suv_factor < 1e-3 for activity in activities)
    assert np.mean([record.unlisted_centre for record in drawn]) == pytest.approx(0.05, abs=0.013)
    assert np.mean([record.decimals for record in drawn]) == pytest.approx(0.5, abs=0.03)
