"""Tables of phantoms in an edition's words: `ehr.json` and the release's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from contract.editions import Algorithm, Answer, Edition
from contract.editions.clinical import CENTRE, ClinicalVariable, normalised_key
from contract.errors import InputError
from rehearsal.phantoms.anatomy.staged import n_stage, t_stage
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.outcome import VARIABLES
from rehearsal.phantoms.records import HPV, SPORADIC_SHARE, UNLISTED_CENTRE

Cell = int | float | str | None
PATIENT_ID: Final = "PatientID"
SUV_FACTOR: Final = "SUV Factor"
# Order of the columns of one answer in the release's tables.
_ROLES: Final = ("event", "time", "class")
# Outcomes by `normalised_key` of the column.
_OUTCOMES: Final[dict[str, Callable[[PhantomCase], Cell]]] = {
    "relapse": lambda case: int(case.outcome.relapse),
    "rfs": lambda case: case.outcome.rfs_days,
    "hpv": lambda case: int(case.outcome.hpv_positive),
    "hpvstatus": lambda case: int(case.outcome.hpv_positive),
    "tstage": lambda case: case.staging.t_stage if case.staging else t_stage(case.disease),
    "nstage": lambda case: case.staging.n_stage if case.staging else n_stage(case.disease),
}


def require_known(edition: Edition) -> None:
    """Raise InputError for a clinical variable or an outcome column of an edition that phantoms do not have."""
    for variable in edition.clinical:
        if variable.name not in (CENTRE, HPV, *VARIABLES) and variable.type != "number":
            expected = f"one of {', '.join((*VARIABLES, HPV))}, or a number"
            raise InputError(f"edition {edition.name}", f"no phantom has the variable {variable.name!r}", expected)
    for column in (column for algorithm in edition.algorithms for column, _ in _outcome_columns(algorithm)):
        if normalised_key(column) not in _OUTCOMES:
            expected = "Relapse, RFS, HPV Status, T-stage or N-stage"
            raise InputError(f"edition {edition.name}", f"no phantom has the outcome column {column!r}", expected)


def table_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """One row of the release's table for an algorithm; None is missing."""
    outcomes = {
        column: _known(answer, _OUTCOMES[normalised_key(column)](case))
        for column, answer in _outcome_columns(algorithm)
    }
    return {PATIENT_ID: case.patient_id, **_centre(case, edition), **_clinical(case, edition), **outcomes}


def released_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """The row as the release has it: of some patients with stages, whole numbers are written as 1.0."""
    row = table_row(case, edition, algorithm)
    if case.staging is None or not case.staging.decimals:
        return row
    return {column: float(cell) if isinstance(cell, int) else cell for column, cell in row.items()}


def _known(answer: Answer, value: Cell) -> Cell:
    """The value, or None for a stage such as T0 that the edition does not know."""
    unknown = answer.kind == "class" and isinstance(value, str) and value not in (*answer.classes, *answer.not_counted)
    return None if unknown else value


def platform_ehr(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """A patient's `ehr.json`; missing values are null for some patients and absent for others, as on the platform."""
    keep_null = bool(np.random.default_rng(case.noise_seed).random() < 0.5)
    present = {key: value for key, value in _clinical(case, edition).items() if value is not None or keep_null}
    return {**present, **_platform_centre(case, edition), **_suv_factor(case)}


def _platform_centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    unlisted = case.staging is not None and case.staging.unlisted_centre
    return {key: UNLISTED_CENTRE if unlisted else code for key, code in _centre(case, edition).items()}


def _suv_factor(case: PhantomCase) -> dict[str, Cell]:
    activity = case.staging.activity if case.staging else None
    return {SUV_FACTOR: activity.suv_factor} if activity and activity.factor_recorded else {}


def suv_factor_rows(cases: Sequence[PhantomCase]) -> list[dict[str, Cell]]:
    """The table of factors: one row for each patient with a PET in Bq/ml; the factor is missing for some."""
    return [
        {
            "pid": case.patient_id,
            "patient_weight_kg": activity.weight_kg,
            "dose_for_suv_bq": activity.dose_bq,
            "bqml_to_suvbw_factor": activity.suv_factor if activity.factor_recorded else None,
        }
        for case in cases
        if case.staging and (activity := case.staging.activity)
    ]


def _clinical(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """Clinical variables as recorded by the centre; HPV status is always known for patients without stages."""
    values: dict[str, Cell] = {HPV: int(case.outcome.hpv_positive), **case.record}
    return {
        one.key: values[one.name] if one.name in values else _free_number(case, one)
        for one in edition.clinical
        if one.name != CENTRE
    }


def _free_number(case: PhantomCase, variable: ClinicalVariable) -> Cell:
    """A number that only this edition has: evenly from its range, of three digits, missing for some; no outcome
    depends on it.
    """
    rng = np.random.default_rng([case.noise_seed, *variable.name.encode()])
    missing, value = bool(rng.random() < SPORADIC_SHARE), float(rng.uniform(*variable.range))
    return None if missing else min(max(float(f"{value:.3g}"), variable.range[0]), variable.range[1])


def _centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {one.key: case.centre.code for one in edition.clinical if one.name == CENTRE}


def _outcome_columns(algorithm: Algorithm) -> list[tuple[str, Answer]]:
    """Columns with the answers that they belong to."""
    return [(answer.columns[role], answer) for answer in algorithm.answers for role in _ROLES if role in answer.columns]
