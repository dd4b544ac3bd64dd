"""Tables of phantoms in an edition's words: `ehr.json` and the release's tables.

Clinical variables and outcomes that only your own edition declares are drawn for each patient by name. A risk has the
hazard of the recurrence, a class grows with the tumour's volume, so that heads have something to learn; no outcome
depends on a clinical variable that is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

import numpy as np

from contract.editions import Algorithm, AnswerSpec, ClinicalVariable, Edition
from contract.editions.clinical import CENTRE, ImpossibleValueError, normalise_key
from rehearsal.phantoms.anatomy.surfaces import n_stage, t_stage
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.outcome import random_survival

Cell = int | float | str | None
PATIENT_ID: Final = "PatientID"
NO_PRIMARY: Final = "T0"
# Order of the columns of one answer in the release's tables.
_ROLES: Final = ("event", "time", "class")
_T_STAGES, _N_STAGES = ("T1", "T2", "T3", "T4"), ("N0", "N1", "N2", "N3")
# Outcomes of phantoms by the role and the `normalise_key` of the column, with the classes that occur.
_OUTCOMES: Final[dict[str, dict[str, tuple[Callable[[PhantomCase], Cell], Sequence[Cell]]]]] = {
    "event": {"relapse": (lambda case: int(case.outcome.relapse), ())},
    "time": {"rfs": (lambda case: case.outcome.rfs_days, ())},
    "class": {
        **dict.fromkeys(("hpv", "hpvstatus"), (lambda case: int(case.outcome.hpv_positive), (0, 1))),
        "tstage": (lambda case: t_stage(case.disease) or NO_PRIMARY, _T_STAGES),
        "nstage": (lambda case: n_stage(case.disease), _N_STAGES),
    },
}
_AGES: Final = (32, 90)
# The lowest and highest value of each clinical variable of phantoms.
_LIMITS: Final[dict[str, tuple[Cell, Cell]]] = {
    "age_years": _AGES,
    "performance_status": (0, 3),
    "m_stage": ("M0", "M1"),
    **dict.fromkeys(("gender", "tobacco", "alcohol", "treatment", "hpv_status"), (0, 1)),
}
# Share of patients with a variable missing.
_MISSING_SHARE: Final = 0.02
# Median of the tumour's volume in ml, and the standard deviation of its logarithm; that of a class's noise.
_VOLUME_ML, _VOLUME_SPREAD, _CLASS_NOISE = 15.0, 0.76, 0.3


def table_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """One row of the release's table for an algorithm; None is missing."""
    outcomes = {
        answer.columns[role]: value for answer in algorithm.answers for role, value in _outcomes(case, answer).items()
    }
    return {PATIENT_ID: case.patient_id, **_centre(case, edition), **_clinical(case, edition), **outcomes}


def _outcomes(case: PhantomCase, answer: AnswerSpec) -> dict[str, Cell]:
    """The outcome by the role of its column, as tables write it: that of phantoms, or one drawn for this edition."""
    keys = {role: normalise_key(answer.columns[role]) for role in _ROLES if role in answer.columns}
    problem = {role: _OUTCOMES[role].get(key) for role, key in keys.items()}
    if all(one is not None and _is_readable(answer, one[1]) for one in problem.values()):
        return {role: _known(answer, one[0](case)) for role, one in problem.items() if one is not None}
    return _random_times(case, answer) if answer.kind == "risk" else {"class": _random_class(case, answer)}


def _known(answer: AnswerSpec, value: Cell) -> Cell:
    """The value, or None for T0 in an edition without it."""
    return None if value == NO_PRIMARY and NO_PRIMARY not in answer.not_counted else value


def _is_readable(answer: AnswerSpec, values: Sequence[Cell]) -> bool:
    """True if the answer's classes include these."""
    classes = (0, 1) if answer.classes == (False, True) else answer.classes
    known = {str(word).lower() for word in (*classes, *answer.words)}
    return all(str(value).lower() in known for value in values)


def platform_ehr(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """A patient's `ehr.json`; missing values are null for some patients and absent for others, as on the platform."""
    keep_null = bool(np.random.default_rng(case.noise_seed).random() < 0.5)
    present = {key: value for key, value in _clinical(case, edition).items() if value is not None or keep_null}
    return {**present, **_centre(case, edition), **_suv_factor(case, edition)}


def _suv_factor(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {key: case.activity.suv_factor for key in edition.suv_factor[:1] if case.activity}


def suv_factor_rows(cases: Sequence[PhantomCase]) -> list[dict[str, Cell]]:
    """The table of factors: one row for each patient with a PET in Bq/ml."""
    return [
        {
            "pid": case.patient_id,
            "patient_weight_kg": activity.weight_kg,
            "dose_for_suv_bq": activity.dose_bq,
            "bqml_to_suvbw_factor": activity.suv_factor,
        }
        for case in cases
        if (activity := case.activity)
    ]


def _clinical(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """Clinical variables as recorded by the centre."""
    return {
        one.key: case.record[one.name] if _has_variable(one) else _random_value(case, one)
        for one in edition.clinical
        if one.name != CENTRE
    }


def _centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {one.key: case.centre.code for one in edition.clinical if one.name == CENTRE}


def truth_row(case: PhantomCase) -> dict[str, Cell]:
    """One row of `truth/truth.csv`: true causes and outcomes, planned lesions, and the scan; volumes in ml."""
    disease, result = case.disease, case.outcome
    return {
        PATIENT_ID: case.patient_id,
        "CenterID": case.centre.code,
        "linear_predictor": round(result.linear_predictor, 6),
        "hpv_logit": round(result.hpv_logit, 6),
        "hpv_positive": int(result.hpv_positive),
        "relapse": int(result.relapse),
        "rfs_days": result.rfs_days,
        "t_stage": t_stage(disease) or NO_PRIMARY,
        "n_stage": n_stage(disease),
        "gtvp_volume_ml": round(disease.gtvp_ml, 4),
        "gtvn_volume_ml": round(disease.gtvn_ml, 4),
        "gtvn_count": len(disease.nodes),
        "cystic_share": round(disease.cystic_share, 4),
        **asdict(case.clinical),
        "field_of_view": case.protocol.field_of_view,
        "suv_factor": round(case.protocol.suv_factor, 4),
    }


def _has_variable(variable: ClinicalVariable) -> bool:
    """True if phantoms have the variable, with values that the declaration can read."""
    try:
        return variable.name in _LIMITS and all(variable.read(value) == value for value in _LIMITS[variable.name])
    except ImpossibleValueError:
        return False


def _random_value(case: PhantomCase, variable: ClinicalVariable) -> Cell:
    """A value of the variable from a uniform distribution, numbers with three digits; missing for some patients."""
    if variable.type == "centre":
        return case.centre.code
    rng = _generator(case, variable.name)
    if rng.random() < _MISSING_SHARE:
        return None
    if variable.type == "number":
        low, high = variable.range
        return min(max(float(f"{rng.uniform(low, high):.3g}"), low), high)
    if variable.type == "stage":
        return variable.stages[int(rng.integers(len(variable.stages)))]
    low, high = _AGES if variable.type == "years" else variable.codes
    return int(rng.integers(low, high, endpoint=True))


def _random_class(case: PhantomCase, answer: AnswerSpec) -> Cell:
    """A class as tables write it; larger tumours tend to higher classes, and all classes are about equally frequent."""
    burden = math.log((case.disease.gtvp_ml + case.disease.gtvn_ml + 1) / (_VOLUME_ML + 1))
    noise = _generator(case, answer.name).normal(0, _CLASS_NOISE)
    place = (burden + noise) / math.hypot(_VOLUME_SPREAD, _CLASS_NOISE)
    share = (1 + math.erf(place / math.sqrt(2))) / 2
    value = answer.classes[min(int(share * len(answer.classes)), len(answer.classes) - 1)]
    return int(value) if isinstance(value, bool) else value


def _random_times(case: PhantomCase, answer: AnswerSpec) -> dict[str, Cell]:
    """Days to the event or to the end of follow-up, and whether the event occurred, by the role of the column."""
    event, censoring = random_survival(_generator(case, answer.name), case.outcome.linear_predictor)
    return {"time": round(min(event, censoring)), "event": int(event <= censoring)}


def _generator(case: PhantomCase, name: str) -> np.random.Generator:
    return np.random.default_rng([case.noise_seed, *name.encode()])
