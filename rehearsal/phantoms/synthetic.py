"""Outcomes and clinical variables that only your own edition declares, drawn for each patient by name.

A risk has the hazard of the recurrence, a class grows with the tumour's volume, so that heads have something to learn;
no outcome depends on a clinical variable that is drawn here.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from contract.editions import Answer, ClinicalVariable
from contract.editions.clinical import ImpossibleValueError
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.outcome import random_survival

Cell = int | float | str | None
# The lowest and highest value of each clinical variable of phantoms.
_LIMITS: Final[dict[str, tuple[Cell, Cell]]] = {
    "age_years": (32, 90),
    "performance_status": (0, 3),
    "m_stage": ("M0", "M1"),
    **dict.fromkeys(("gender", "tobacco", "alcohol", "treatment", "hpv_status"), (0, 1)),
}
# Share of patients with a variable missing.
_MISSING_SHARE: Final = 0.02
_AGES: Final = (32, 90)
# Median of the tumour's volume in ml, and the standard deviation of its logarithm; that of a class's noise.
_VOLUME_ML, _VOLUME_SPREAD, _CLASS_NOISE = 15.0, 0.76, 0.3


def has_variable(variable: ClinicalVariable) -> bool:
    """Whether phantoms have the variable, with values that the declaration can read."""
    try:
        return variable.name in _LIMITS and all(variable.read(value) == value for value in _LIMITS[variable.name])
    except ImpossibleValueError:
        return False


def random_value(case: PhantomCase, variable: ClinicalVariable) -> Cell:
    """A value of the variable from a uniform distribution, numbers with three digits; missing for some patients."""
    rng = _generator(case, variable.name)
    if rng.random() < _MISSING_SHARE:
        return None
    if variable.type == "number":
        low, high = variable.range
        return min(max(float(f"{rng.uniform(low, high):.3g}"), low), high)
    if variable.type == "stage":
        return variable.stages[int(rng.integers(len(variable.stages)))]
    return int(rng.integers(*(_AGES if variable.type == "years" else variable.codes), endpoint=True))


def random_class(case: PhantomCase, answer: Answer) -> Cell:
    """A class as tables write it; larger tumours tend to higher classes, and all classes are about equally frequent."""
    burden = math.log((case.disease.gtvp_ml + case.disease.gtvn_ml + 1) / (_VOLUME_ML + 1))
    noise = _generator(case, answer.name).normal(0, _CLASS_NOISE)
    place = (burden + noise) / math.hypot(_VOLUME_SPREAD, _CLASS_NOISE)
    share = (1 + math.erf(place / math.sqrt(2))) / 2
    value = answer.classes[min(int(share * len(answer.classes)), len(answer.classes) - 1)]
    return int(value) if isinstance(value, bool) else value


def random_times(case: PhantomCase, answer: Answer) -> dict[str, Cell]:
    """Days to the event or to the end of follow-up, and whether the event occurred, by the role of the column."""
    event, censoring = random_survival(_generator(case, answer.name), case.outcome.linear_predictor)
    return {"time": round(min(event, censoring)), "event": int(event <= censoring)}


def _generator(case: PhantomCase, name: str) -> np.random.Generator:
    return np.random.default_rng([case.noise_seed, *name.encode()])
