"""Phantoms in an edition's words: `ehr.json` and the release's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from contract.editions import Algorithm, Edition
from contract.editions.clinical import CENTRE
from contract.errors import InputError
from rehearsal.phantoms.anatomy.stages import n_stage, t_stage
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.outcome import VARIABLES

Cell = int | str | None
PATIENT_ID: Final = "PatientID"
_HPV: Final = "hpv_status"
# Order of the columns of one answer in the release's tables.
_ROLES: Final = ("event", "time", "class")
# Outcomes by column, spelled in small letters without blanks and signs.
_OUTCOMES: Final[dict[str, Callable[[PhantomCase], Cell]]] = {
    "relapse": lambda case: int(case.outcome.relapse),
    "rfs": lambda case: case.outcome.rfs_days,
    "hpv": lambda case: int(case.outcome.hpv_positive),
    "hpvstatus": lambda case: int(case.outcome.hpv_positive),
    "tstage": lambda case: t_stage(case.disease),
    "nstage": lambda case: n_stage(case.disease),
}


def require_known(edition: Edition) -> None:
    """Check that phantoms have all clinical variables and outcomes of an edition.

    Raises:
        InputError: a variable or an outcome column is unknown.
    """
    for variable in edition.clinical:
        if variable.name not in (CENTRE, _HPV, *VARIABLES):
            expected = f"one of {', '.join((*VARIABLES, _HPV))}"
            raise InputError(f"edition {edition.name}", f"no phantom has the variable {variable.name!r}", expected)
    for column in (column for algorithm in edition.algorithms for column in _outcome_columns(algorithm)):
        if _plain(column) not in _OUTCOMES:
            expected = "Relapse, RFS, HPV Status, T-stage or N-stage"
            raise InputError(f"edition {edition.name}", f"no phantom has the outcome column {column!r}", expected)


def table_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """One row of the release's table for an algorithm; None is missing."""
    outcomes = {column: _OUTCOMES[_plain(column)](case) for column in _outcome_columns(algorithm)}
    return {PATIENT_ID: case.patient_id, **_centre(case, edition), **_clinical(case, edition), **outcomes}


def platform_ehr(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """A patient's `ehr.json`; missing values are null for some patients and absent for others, as on the platform."""
    keep_null = bool(np.random.default_rng(case.noise_seed).random() < 0.5)
    present = {key: value for key, value in _clinical(case, edition).items() if value is not None or keep_null}
    return {**present, **_centre(case, edition)}


def _clinical(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    """Clinical variables as recorded by the centre; HPV status as an input is always known."""
    values = {**case.record, _HPV: int(case.outcome.hpv_positive)}
    return {one.key: values[one.name] for one in edition.clinical if one.name != CENTRE}


def _centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {one.key: case.centre.code for one in edition.clinical if one.name == CENTRE}


def _outcome_columns(algorithm: Algorithm) -> list[str]:
    return [answer.columns[role] for answer in algorithm.answers for role in _ROLES if role in answer.columns]


def _plain(column: str) -> str:
    return "".join(letter for letter in column.lower() if letter.isalnum())
