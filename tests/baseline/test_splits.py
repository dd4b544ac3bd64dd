from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baseline.release import ReleaseCase
from baseline.splits import as_nnunet_splits, balanced_folds
from contract.patient import Patient

STRATA = st.tuples(
    st.sampled_from(["MDA", "CHUM", "USZ"]), st.sampled_from([True, False, None]), st.sampled_from([True, False])
)


def cases_of(strata: list[tuple[str, bool | None, bool]]) -> list[ReleaseCase]:
    nowhere = Path("x")
    return [
        ReleaseCase(f"{centre}-{n:03d}", centre, nowhere, nowhere, nowhere, Patient(), relapse, 100.0, hpv)
        for n, (centre, relapse, hpv) in enumerate(strata)
    ]


@given(st.lists(STRATA, min_size=1, max_size=80), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_folds_share_out_everyone_and_every_stratum_evenly(
    strata: list[tuple[str, bool | None, bool]], folds: int, seed: int
) -> None:
    cases = cases_of(strata)
    dealt = balanced_folds(cases, folds, np.random.default_rng(seed))
    assert len(dealt) == folds
    everyone = [patient for fold in dealt for patient in fold]
    assert sorted(everyone) == sorted(case.patient_id for case in cases)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    stratum = {case.patient_id: (case.centre, case.relapse, case.hpv) for case in cases}
    counts = [Counter(stratum[patient] for patient in fold) for fold in dealt]
    for key in set(stratum.values()):
        assert max(c[key] for c in counts) - min(c[key] for c in counts) <= 1


@given(st.lists(STRATA, min_size=2, max_size=40), st.integers(2, 5))
def test_no_patient_validates_a_network_that_was_trained_on_it(
    strata: list[tuple[str, bool | None, bool]], folds: int
) -> None:
    cases = cases_of(strata)
    splits = as_nnunet_splits(balanced_folds(cases, folds, np.random.default_rng(0)))
    for split in splits:
        assert not set(split["train"]) & set(split["val"])
        assert set(split["train"]) | set(split["val"]) == {case.patient_id for case in cases}
    assert Counter(patient for split in splits for patient in split["val"]) == {case.patient_id: 1 for case in cases}


def test_the_seed_decides_and_nothing_else() -> None:
    cases = cases_of([("MDA", bool(n % 3), True) for n in range(30)])
    first = balanced_folds(cases, 3, np.random.default_rng(1))
    assert first == balanced_folds(cases[::-1], 3, np.random.default_rng(1))
    assert first != balanced_folds(cases, 3, np.random.default_rng(2))
