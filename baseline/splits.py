"""Folds balanced by centre, event and HPV status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from baseline.release import ReleaseCase


def balanced_folds(cases: Sequence[ReleaseCase], folds: int, rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """Share the patients out over `folds` so that each stratum (centre, relapse, HPV) is spread evenly.

    Every patient is in exactly one fold. Strata are dealt out like cards, one after the other without starting
    anew, so fold sizes differ by at most one.
    """
    strata: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for case in cases:
        strata[(case.centre, str(case.relapse), str(case.hpv))].append(case.patient_id)
    dealt: list[list[str]] = [[] for _ in range(folds)]
    turn = 0
    for key in sorted(strata):
        members = sorted(strata[key])
        for number in rng.permutation(len(members)):
            dealt[turn % folds].append(members[number])
            turn += 1
    return tuple(tuple(sorted(fold)) for fold in dealt)


def as_nnunet_splits(folds: Sequence[Sequence[str]]) -> list[dict[str, list[str]]]:
    """nnU-Net's `splits_final.json`: for each fold its validation patients and all others for training."""
    everyone = sorted(patient for fold in folds for patient in fold)
    return [{"train": [p for p in everyone if p not in set(fold)], "val": list(fold)} for fold in folds]
