"""The truth files of a cohort: causes, true outcomes, and the best results that any method can reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from contract import labels
from rehearsal.phantoms import outcome, records
from rehearsal.phantoms.anatomy import lesions, staged
from rehearsal.phantoms.anatomy.heights import BRAIN_BOTTOM, LUNG_APEX
from rehearsal.phantoms.anatomy.lesions import Disease
from rehearsal.phantoms.anatomy.surfaces import largest_diameter_mm
from rehearsal.phantoms.cohort import CohortOptions, PhantomCase
from rehearsal.phantoms.outcome import VARIABLES
from rehearsal.phantoms.records import HPV, Record
from rehearsal.phantoms.tables import PATIENT_ID

_T_CLASSES = ("T1", "T2", "T3", "T4")
_N_CLASSES = ("N0", "N1", "N2", "N3")


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
        **({} if case.staging is None else _staging_columns(case.staging, disease)),
    }


def _staging_columns(record: Record, disease: Disease) -> dict[str, Any]:
    """Stages of the anatomy and of the record, largest diameters in mm, the unit of the PET."""
    return {
        "t_stage_anatomy": record.t_anatomy,
        "t_stage": record.t_stage,
        "n_stage_anatomy": record.n_anatomy,
        "n_stage": record.n_stage,
        "gtvp_diameter_mm": _largest_mm(disease, labels.GTVP),
        "gtvn_diameter_mm": _largest_mm(disease, labels.GTVN),
        "hpv_recorded": int(record.variables[HPV] is not None),
        "pet_unit": "Bq/ml" if record.activity else "SUV",
        "bqml_to_suvbw_factor": record.activity.suv_factor if record.activity else None,
        "unlisted_centre": int(record.unlisted_centre),
    }


def _largest_mm(disease: Disease, label: int) -> float:
    return round(max((largest_diameter_mm(one) for one in disease.lesions if one.label == label), default=0.0), 2)


def _below_top_mm(case: PhantomCase, anatomical: float) -> float:
    """How far an anatomical height lies below the CT's upper end; negative above it."""
    return float(case.protocol.ct.corners_mm()[:, 2].max()) - case.frame.height_mm(anatomical)


def truth_document(options: CohortOptions, cases: Sequence[PhantomCase]) -> dict[str, Any]:
    """The content of `truth/truth.json`: the model's coefficients and the cohort's counts."""
    with_stages = any(case.staging for case in cases)
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
            "scale_days": outcome.STAGED_SCALE_DAYS if with_stages else outcome.BASELINE_SCALE_DAYS,
            "administrative_censoring_days": outcome.ADMINISTRATIVE_CENSORING_DAYS,
            "follow_up_days_uniform": list(outcome.FOLLOW_UP_DAYS),
        },
        "hpv": {
            "model": "Bernoulli with this logit",
            "coefficients": outcome.HPV_LOGIT,
            "terms": "tobacco 0/1; age_decades_over_60; cystic_share = share of nodal volume in cystic nodes; "
            "log_gtvp_volume = ln((GTVp ml + 1) / 9); male 0/1",
        },
        **(_stages_of(cases) if with_stages else {"lesions": _drawn_sizes()}),
    }


def _drawn_sizes() -> dict[str, Any]:
    return {
        "gtvp_median_ml": lesions.GTVP_MEDIAN_ML,
        "gtvp_log_sigma": lesions.GTVP_LOG_SIGMA,
        "gtvp_range_ml": list(lesions.GTVP_RANGE_ML),
        "no_gtvp_share": lesions.NO_GTVP_SHARE,
        "node_count_shares": list(lesions.NODE_COUNT_SHARES),
        "node_range_mm": list(lesions.NODE_RANGE_MM),
    }


def _stages_of(cases: Sequence[PhantomCase]) -> dict[str, Any]:
    return {
        "stages": {
            "rule": "AJCC/UICC, 7th edition, oropharynx; T4 is invasion of bone",
            "t_shares_drawn": staged.T_SHARES,
            "n_shares_drawn": staged.N_SHARES,
            "t_error_share": records.T_ERROR_SHARE,
            "n_error_share": records.N_ERROR_SHARE,
            "t_missing_share": records.NO_T_SHARE,
        },
        "best_possible": best_possible(cases),
    }


def best_possible(cases: Sequence[PhantomCase]) -> dict[str, float | None]:
    """C-index of the true risk, and balanced accuracy of the anatomical stages against the recorded ones.

    No risk orders recurrences better than the true linear predictor, and no stage agrees better with the record than
    that of the anatomy, whose errors are random.
    """
    record = [case.staging for case in cases if case.staging]
    return {
        "c_index": c_index(
            [case.outcome.rfs_days for case in cases],
            [case.outcome.relapse for case in cases],
            [case.outcome.linear_predictor for case in cases],
        ),
        "t_balanced_accuracy": balanced_accuracy([(one.t_stage, one.t_anatomy) for one in record], _T_CLASSES),
        "n_balanced_accuracy": balanced_accuracy([(one.n_stage, one.n_anatomy) for one in record], _N_CLASSES),
    }


def c_index(days: Sequence[float], events: Sequence[bool], risks: Sequence[float]) -> float | None:
    """Harrell's C-index of a risk, ties of the risk count half; None without a comparable pair."""
    time, event, risk = np.asarray(days), np.asarray(events, dtype=bool), np.asarray(risks)
    comparable = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    if not comparable.any():
        return None
    higher = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return round(float(higher[comparable].mean()), 4)


def balanced_accuracy(pairs: Sequence[tuple[str | None, str]], classes: Sequence[str]) -> float | None:
    """Mean recall over the classes that the reference has; pairs are (reference, answer); None without any class.

    A pair with a reference outside `classes` does not count.
    """
    recalls = [
        np.mean([answer == reference for reference, answer in pairs if reference == one])
        for one in classes
        if any(reference == one for reference, _ in pairs)
    ]
    return round(float(np.mean(recalls)), 4) if recalls else None
