"""The truth files of a phantom cohort: each patient's true risk, its causes and lesions, and the outcome model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contract.editions import DEFAULT_EDITION, load_edition
from rehearsal.phantoms import outcome
from rehearsal.phantoms.anatomy import lesions
from rehearsal.phantoms.cohort import PhantomCase

GENERATOR_VERSION = 1


@dataclass(frozen=True)
class CohortOptions:
    """Options that determine a cohort's files.

    ``field_of_view`` None is each centre's own mixture; ``edition`` is a name or the path of a declaration.
    """

    seed: int
    centres: tuple[str, ...]
    layout: str
    field_of_view: str | None = None
    ct_coarsening: int = 1
    edition: str = DEFAULT_EDITION

    def as_json(self) -> dict[str, Any]:
        """The content of `truth/cohort.json`, by which a resumed run recognises its cohort."""
        edition = {} if self.edition == DEFAULT_EDITION else {"edition": load_edition(self.edition).name}
        return {
            "generator_version": GENERATOR_VERSION,
            "seed": self.seed,
            "centres": list(self.centres),
            "layout": self.layout,
            "field_of_view": self.field_of_view,
            "ct_coarsening": self.ct_coarsening,
            **edition,
        }


def truth_row(case: PhantomCase) -> dict[str, Any]:
    """One row of `truth/truth.csv`: true causes and outcomes; planned volumes in ml."""
    disease, clinical, result = case.disease, case.clinical, case.outcome
    primary = [lesion for lesion in disease.lesions if lesion.label == 1]
    protocol = case.protocol
    return {
        "PatientID": case.patient_id,
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
        "gender": clinical.gender,
        "tobacco": clinical.tobacco,
        "alcohol": clinical.alcohol,
        "performance_status": clinical.performance_status,
        "treatment": clinical.treatment,
        "m_stage": clinical.m_stage,
        "field_of_view": protocol.field_of_view,
        "psf_fwhm_mm": round(protocol.psf_fwhm_mm, 3),
        "suv_factor": round(protocol.suv_factor, 4),
        "contrast": int(case.body.contrast_hu > 0),
        "dental_metal": len(case.body.metal),
    }


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
