"""Tables of phantoms: `ehr.json` and the release's tables in an edition's words, and the truth files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from contract.editions import Algorithm, Answer, Edition
from contract.editions.clinical import CENTRE
from contract.errors import InputError
from rehearsal.phantoms import outcome
from rehearsal.phantoms.anatomy import lesions
from rehearsal.phantoms.anatomy.heights import BRAIN_BOTTOM, LUNG_APEX
from rehearsal.phantoms.anatomy.stages import n_stage, t_stage
from rehearsal.phantoms.cohort import CohortOptions, PhantomCase
from rehearsal.phantoms.outcome import VARIABLES
from rehearsal.phantoms.records import HPV, UNLISTED_CENTRE

Cell = float | str | None
PATIENT_ID: Final = "PatientID"
SUV_FACTOR: Final = "SUV Factor"
# Order of the columns of one answer in the release's tables.
_ROLES: Final = ("event", "time", "class")
# Outcomes by column, spelled in small letters without blanks and signs.
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
        if variable.name not in (CENTRE, HPV, *VARIABLES):
            expected = f"one of {', '.join((*VARIABLES, HPV))}"
            raise InputError(f"edition {edition.name}", f"no phantom has the variable {variable.name!r}", expected)
    for column in (column for algorithm in edition.algorithms for column, _ in _outcome_columns(algorithm)):
        if _plain(column) not in _OUTCOMES:
            expected = "Relapse, RFS, HPV Status, T-stage or N-stage"
            raise InputError(f"edition {edition.name}", f"no phantom has the outcome column {column!r}", expected)


def table_row(case: PhantomCase, edition: Edition, algorithm: Algorithm) -> dict[str, Cell]:
    """One row of the release's table for an algorithm; None is missing."""
    outcomes = {
        column: _known(answer, _OUTCOMES[_plain(column)](case)) for column, answer in _outcome_columns(algorithm)
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
    values = {HPV: int(case.outcome.hpv_positive), **case.record}
    return {one.key: values[one.name] for one in edition.clinical if one.name != CENTRE}


def _centre(case: PhantomCase, edition: Edition) -> dict[str, Cell]:
    return {one.key: case.centre.code for one in edition.clinical if one.name == CENTRE}


def _outcome_columns(algorithm: Algorithm) -> list[tuple[str, Answer]]:
    """Columns with the answers that they belong to."""
    return [(answer.columns[role], answer) for answer in algorithm.answers for role in _ROLES if role in answer.columns]


def _plain(column: str) -> str:
    return "".join(letter for letter in column.lower() if letter.isalnum())


def truth_row(case: PhantomCase) -> dict[str, Any]:
    """One row of `truth/truth.csv`: true causes and outcomes; planned volumes in ml, heights below the CT's top."""
    disease, clinical, result = case.disease, case.clinical, case.outcome
    primary = [lesion for lesion in disease.lesions if lesion.label == 1]
    protocol = case.protocol
    return {
        PATIENT_ID: case.patient_id,
        "CenterID": case.centre.code,
        "linear_predictor": round(result.linear_predictor, 6),
        "hpv_logit": round(result.hpv_logit, 6),
        "hpv_positive": int(result.hpv_positive),
        "relapse": int(result.relapse),
        "rfs_days": result.rfs_days,
        "true_event_days": round(result.event_days, 1),
        "censoring_days": round(result.censoring_days, 1),
        "gtvp_site": primary[0].site if primary else "none",
        "gtvp_volume_ml": round(disease.gtvp_ml, 4),
        "gtvp_suv": round(primary[0].suv, 3) if primary else 0.0,
        "gtvn_volume_ml": round(disease.gtvn_ml, 4),
        "gtvn_count": len(disease.nodes),
        "cystic_share": round(disease.cystic_share, 4),
        "age": clinical.age_years,
        **{name: getattr(clinical, name) for name in VARIABLES if name != "age_years"},
        "field_of_view": protocol.field_of_view,
        "psf_fwhm_mm": round(protocol.psf_fwhm_mm, 3),
        "suv_factor": round(protocol.suv_factor, 4),
        "contrast": int(case.body.contrast_hu > 0),
        "dental_metal": len(case.body.metal),
        "arms": case.body.arms,
        "padding_hu": protocol.padding_hu,
        "brain_bottom_mm": round(_below_top_mm(case, BRAIN_BOTTOM), 1),
        "lung_apex_mm": round(_below_top_mm(case, LUNG_APEX), 1),
    }


def _below_top_mm(case: PhantomCase, anatomical: float) -> float:
    """How far an anatomical height lies below the CT's upper end; negative above it."""
    return float(case.protocol.ct.corners_mm()[:, 2].max()) - case.frame.height_mm(anatomical)


def truth_document(options: CohortOptions, cases: Sequence[PhantomCase]) -> dict[str, Any]:
    """The content of `truth/truth.json`: the model's coefficients and the cohort's counts."""
    events = sum(case.outcome.relapse for case in cases)
    return {
        "cohort": options.as_json(),
        "patients": len(cases),
        "events": events,
        "hpv_positive": sum(case.outcome.hpv_positive for case in cases),
        "recurrence": {
            "model": "Weibull proportional hazards: t = scale * (E * exp(-linear_predictor)) ** (1 / shape), "
            "E standard exponential",
            "coefficients": outcome.HAZARD,
            "terms": "log_total_volume = ln((GTVp + GTVn ml + 1) / 21); sqrt_node_count; hpv_positive 0/1; "
            "performance_status 0 to 3; tobacco 0/1",
            "shape": outcome.WEIBULL_SHAPE,
            "scale_days": outcome.BASELINE_SCALE_DAYS,
            "administrative_censoring_days": outcome.ADMINISTRATIVE_CENSORING_DAYS,
            "follow_up_days_uniform": list(outcome.FOLLOW_UP_DAYS),
        },
        "hpv": {
            "model": "Bernoulli with this logit",
            "coefficients": outcome.HPV_LOGIT,
            "terms": "tobacco 0/1; age_decades_over_60; cystic_share = share of nodal volume in cystic nodes; "
            "log_gtvp_volume = ln((GTVp ml + 1) / 9); male 0/1",
        },
        "lesions": {
            "gtvp_median_ml": lesions.GTVP_MEDIAN_ML,
            "gtvp_log_sigma": lesions.GTVP_LOG_SIGMA,
            "gtvp_range_ml": list(lesions.GTVP_RANGE_ML),
            "no_gtvp_share": lesions.NO_GTVP_SHARE,
            "node_count_shares": list(lesions.NODE_COUNT_SHARES),
            "node_range_mm": list(lesions.NODE_RANGE_MM),
        },
    }
