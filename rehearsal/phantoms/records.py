"""What a centre recorded of a patient: stages with reading errors, missing values, the unit of the PET.

Used for editions that declare stages by a rule. Patients of other editions have no such record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rehearsal.phantoms.anatomy.lesions import Disease
from rehearsal.phantoms.anatomy.staged import n_stage, t_stage
from rehearsal.phantoms.centres import Centre
from rehearsal.phantoms.outcome import Clinical

Value = int | str | None
HPV: Final = "hpv_status"
NO_PRIMARY: Final = "T0"
# Share of patients with a stage that is recorded as its neighbour. N0 is never mistaken.
T_ERROR_SHARE, N_ERROR_SHARE = 0.08, 0.05
NO_T_SHARE: Final = 0.02
# Share of patients with a variable missing in a centre that records it.
SPORADIC_SHARE: Final = 0.02
ACTIVITY_SHARE, KNOWN_FACTOR_SHARE = 0.07, 0.5
UNLISTED_CENTRE_SHARE: Final = 0.05
UNLISTED_CENTRE: Final = "X99"
_T: Final = ("T1", "T2", "T3", "T4")
_N: Final = ("N1", "N2", "N3")
_RARELY_MISSING: Final = ("age_years", "gender")


@dataclass(frozen=True)
class Activity:
    """A PET in Bq/ml: the patient's weight, the activity at the time of the scan, and whether a factor is recorded."""

    weight_kg: float
    dose_bq: float
    factor_recorded: bool

    @property
    def suv_factor(self) -> float:
        """SUV of 1 Bq/ml, by body weight."""
        return 1000 * self.weight_kg / self.dose_bq


@dataclass(frozen=True)
class Record:
    """A centre's record of one patient.

    Attributes:
        variables: clinical variables by name, with HPV status; None is missing.
        t_anatomy: T stage that the anatomy has, T0 without a primary tumour.
        n_anatomy: N stage that the anatomy has.
        t_stage: recorded T stage; None is missing.
        n_stage: recorded N stage.
        activity: of a PET in Bq/ml; None for a PET in SUV.
        unlisted_centre: whether the platform gives a centre that no table has.
        decimals: whether the release's table writes whole numbers as 1.0.
    """

    variables: Mapping[str, Value]
    t_anatomy: str
    n_anatomy: str
    t_stage: str | None
    n_stage: str
    activity: Activity | None
    unlisted_centre: bool
    decimals: bool


def random_record(
    rng: np.random.Generator, clinical: Clinical, centre: Centre, disease: Disease, hpv_positive: bool
) -> Record:
    """Draw a patient's record."""
    t_anatomy, n_anatomy = t_stage(disease) or NO_PRIMARY, n_stage(disease)
    recorded_t = _misread(rng, t_anatomy, _T, T_ERROR_SHARE)
    return Record(
        variables=_recorded(rng, {**vars(clinical), HPV: int(hpv_positive)}, centre),
        t_anatomy=t_anatomy,
        n_anatomy=n_anatomy,
        t_stage=None if rng.random() < NO_T_SHARE else recorded_t,
        n_stage=_misread(rng, n_anatomy, _N, N_ERROR_SHARE),
        activity=_random_activity(rng),
        unlisted_centre=bool(rng.random() < UNLISTED_CENTRE_SHARE),
        decimals=bool(rng.random() < 0.5),
    )


def _misread(rng: np.random.Generator, stage: str, stages: Sequence[str], share: float) -> str:
    """The stage, or with probability `share` a neighbouring one; a stage outside `stages` is never mistaken."""
    mistaken, up = rng.random() < share, rng.random() < 0.5
    if stage not in stages or not mistaken:
        return stage
    index = stages.index(stage)
    neighbours = [other for other in (index - 1, index + 1) if 0 <= other < len(stages)]
    return stages[neighbours[-1] if up else neighbours[0]]


def _recorded(rng: np.random.Generator, values: Mapping[str, Value], centre: Centre) -> dict[str, Value]:
    draws = rng.random(len(values))
    return {
        name: None if draw < _missing_share(name, centre) else value
        for draw, (name, value) in zip(draws, values.items(), strict=True)
    }


def _missing_share(name: str, centre: Centre) -> float:
    if name in centre.never_recorded:
        return 1.0
    return float(getattr(centre.missing, name)) if name in _RARELY_MISSING else SPORADIC_SHARE


def _random_activity(rng: np.random.Generator) -> Activity | None:
    """A patient who got 3 to 5.5 MBq/kg of FDG and was scanned an hour to 100 minutes later."""
    draw, known = rng.random(), rng.random() < KNOWN_FACTOR_SHARE
    weight_kg = round(float(np.clip(rng.normal(79, 14), 45, 130)), 1)
    decay = 0.5 ** (float(rng.uniform(60, 100)) / 109.8)
    dose_bq = round(weight_kg * float(rng.uniform(3.0e6, 5.5e6)) * decay)
    return Activity(weight_kg, float(dose_bq), bool(known)) if draw < ACTIVITY_SHARE else None
