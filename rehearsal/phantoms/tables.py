"""Make the tables of phantoms for an edition: `ehr.json` and the release's tables.

Clinical variables and outcomes that only a custom edition declares are drawn for each patient by name. A risk has the
hazard of the recurrence, and a class grows with the tumour's volume, so that heads can learn them. No outcome depends
on a clinical variable that is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from contract.editions import Algorithm, AnswerSpec, ClinicalVariable, Edition
from contract.editions.clinical import CENTRE, ImpossibleValueError, normalise_key
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.lesions import n_stage, t_stage
from rehearsal.phantoms.outcome import draw_survival

Cell = int | float | str | None
# The true causes and outcomes, below the folder of a cohort.
TRUTH_CSV: Final = Path("truth", "truth.csv")
PATIENT_ID: Final = "PatientID"
NO_PRIMARY: Final = "T0"
# Order of the columns of one answer in the release's tables.
_ROLES: Final = ("event", "time", "class")
_T_STAGES: Final = ("T1", "T2", "T3", "T4")
_N_STAGES: Final = ("N0", "N1", "N2", "N3")
# Outcomes of phantoms by the role and the `normalise_key` of the column: a function of the case, and its classes.
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
# The minimum and maximum of each clinical variable of phantoms.
_LIMITS: Final[dict[str, tuple[Cell, Cell]]] = {
    "age_years": _AGES,
    "performance_status": (0, 3),
    "m_stage": ("M0", "M1"),
    **dict.fromkeys(("gender", "tobacco", "alcohol", "treatment", "hpv_status"), (0, 1)),
}
# Fraction of patients whose variable is missing.
_MISSING_FRACTION: Final = 0.02
# Median of the tumour's volume, standard deviation of its logarithm, and standard deviation of the noise of a class.
_MEDIAN_VOLUME_ML: Final = 15.0
_LOG_VOLUME_SD: Final = 0.76
_CLASS_NOISE_SD: Final = 0.3


def make_table_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """Make a row of the release's table for an algorithm; None is missing."""
    outcomes = {
        answer.columns[role]: value
        for answer in algorithm.answers
        for role, value in _make_outcomes(case, answer).items()
    }
    return {PATIENT_ID: case.patient_id, **_make_centre(case, edition), **_make_clinical(case, edition), **outcomes}


def _make_outcomes(case: PhantomCase, answer: AnswerSpec) -> dict[str, Cell]:
    """Make the outcome by the role of its column, as tables write it.

    It is an outcome of the phantoms if they have one with this name and these classes; otherwise it is drawn.
    """
    keys = {role: normalise_key(answer.columns[role]) for role in _ROLES if role in answer.columns}
    outcomes = {role: _OUTCOMES[role][key] for role, key in keys.items() if key in _OUTCOMES[role]}
    if len(outcomes) == len(keys) and all(_is_readable(answer, classes) for _, classes in outcomes.values()):
        return {role: _hide_absent_stage(answer, compute(case)) for role, (compute, _) in outcomes.items()}
    return _draw_times(case, answer) if answer.kind == "risk" else {"class": _draw_class(case, answer)}


def _hide_absent_stage(answer: AnswerSpec, value: Cell) -> Cell:
    """Return the value, or None for T0 in an edition without T0."""
    return None if value == NO_PRIMARY and NO_PRIMARY not in answer.not_counted else value


def _is_readable(answer: AnswerSpec, values: Sequence[Cell]) -> bool:
    """Return whether the answer's classes include these values."""
    classes = (0, 1) if answer.classes == (False, True) else answer.classes
    known = {str(word).lower() for word in (*classes, *answer.words)}
    return all(str(value).lower() in known for value in values)


def make_platform_ehr(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """Make a patient's `ehr.json`; as on the platform, missing values are null for some patients and else absent."""
    keep_null = bool(np.random.default_rng(case.noise_seed).random() < 0.5)
    present = {key: value for key, value in _make_clinical(case, edition).items() if value is not None or keep_null}
    return {**present, **_make_centre(case, edition), **_make_suv_factor(case, edition)}


def _make_suv_factor(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {key: case.activity.suv_factor for key in edition.suv_factor[:1] if case.activity}


def make_suv_factor_rows(cases: Sequence[PhantomCase]) -> list[dict[str, Cell]]:
    """Make the table of factors, with a row for each patient with a PET in Bq/ml."""
    return [
        {
            "pid": case.patient_id,
            "patient_weight_kg": case.activity.weight_kg,
            "dose_for_suv_bq": case.activity.dose_bq,
            "bqml_to_suvbw_factor": case.activity.suv_factor,
        }
        for case in cases
        if case.activity is not None
    ]


def _make_clinical(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """Make the clinical variables as the centre recorded them."""
    return {
        variable.key: case.record[variable.name] if _has_variable(variable) else _draw_value(case, variable)
        for variable in edition.clinical
        if variable.name != CENTRE
    }


def _make_centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {variable.key: case.centre.code for variable in edition.clinical if variable.name == CENTRE}


def make_truth_row(case: PhantomCase) -> dict[str, Cell]:
    """Make a row of `truth/truth.csv`: true causes and outcomes, planned lesions, and the scan; volumes in ml."""
    disease = case.disease
    result = case.outcome
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
    """Return whether phantoms have the variable, with values that the declaration can read."""
    try:
        return variable.name in _LIMITS and all(variable.read(value) == value for value in _LIMITS[variable.name])
    except ImpossibleValueError:
        return False


def _draw_value(case: PhantomCase, variable: ClinicalVariable) -> Cell:
    """Draw a value from a uniform distribution, for a number with three digits; it is None for some patients."""
    if variable.type == "centre":
        return case.centre.code
    rng = _make_generator(case, variable.name)
    if rng.random() < _MISSING_FRACTION:
        return None
    if variable.type == "number":
        low, high = variable.range
        return min(max(float(f"{rng.uniform(low, high):.3g}"), low), high)
    if variable.type == "stage":
        return variable.stages[int(rng.integers(len(variable.stages)))]
    low, high = _AGES if variable.type == "years" else variable.codes
    return int(rng.integers(low, high, endpoint=True))


def _draw_class(case: PhantomCase, answer: AnswerSpec) -> Cell:
    """Draw a class as it is written in a table.

    Larger tumours tend to higher classes, and all classes are about equally frequent.
    """
    burden = math.log((case.disease.gtvp_ml + case.disease.gtvn_ml + 1) / (_MEDIAN_VOLUME_ML + 1))
    noise = _make_generator(case, answer.name).normal(0, _CLASS_NOISE_SD)
    standardised = (burden + noise) / math.hypot(_LOG_VOLUME_SD, _CLASS_NOISE_SD)
    share = (1 + math.erf(standardised / math.sqrt(2))) / 2
    value = answer.classes[min(int(share * len(answer.classes)), len(answer.classes) - 1)]
    return int(value) if isinstance(value, bool) else value


def _draw_times(case: PhantomCase, answer: AnswerSpec) -> dict[str, Cell]:
    """Draw the days to the event or the end of follow-up, and whether the event occurred, by the role of the column."""
    event, censoring = draw_survival(_make_generator(case, answer.name), case.outcome.linear_predictor)
    return {"time": round(min(event, censoring)), "event": int(event <= censoring)}


def _make_generator(case: PhantomCase, name: str) -> np.random.Generator:
    return np.random.default_rng([case.noise_seed, *name.encode()])
