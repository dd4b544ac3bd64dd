"""Clinical variables, HPV status and recurrence-free survival from a known model with a known best C-index and AUC.

Recurrence follows a Weibull proportional-hazards model; its linear predictor is `HAZARD` applied to
`compute_hazard_terms`. HPV status is a Bernoulli draw; its logit is `HPV_LOGIT` applied to `compute_hpv_terms`.

Ages follow the challenge's cohort (60.7 +- 9.1 years, 32 to 90). The coefficients are invented. Their signs agree with
the literature: burden, nodes, smoking and frailty raise the hazard, HPV lowers it. With their sizes a perfect risk
reaches a C-index of about 0.78, the clinical variables reach about 0.6, and 25 to 40% of the patients have an observed
relapse.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from rehearsal.phantoms.centres import Centre
from rehearsal.phantoms.lesions import Disease

HPV: Final = "hpv_status"
# Fraction of patients whose variable is missing in a centre that records the variable.
MISSING: Final = {
    "age_years": 0.005, "gender": 0.01, "tobacco": 0.1, "alcohol": 0.2, "performance_status": 0.2, "treatment": 0.0,
    "m_stage": 0.05, HPV: 0.05,
}  # fmt: skip

# Log hazard ratios per unit of `compute_hazard_terms`.
HAZARD: dict[str, float] = {
    "log_total_volume": 0.90,
    "sqrt_node_count": 0.60,
    "hpv_positive": -0.80,
    "performance_status": 0.45,
    "tobacco": 0.55,
}
# Log odds ratios per unit of `compute_hpv_terms`.
HPV_LOGIT: dict[str, float] = {
    "intercept": 2.6,
    "tobacco": -1.9,
    "age_decades_over_60": -0.70,
    "cystic_share": 2.8,
    "log_gtvp_volume": -0.95,
    "male": 0.3,
}
# Fraction of HPV positive patients that this logit gives.
HPV_POSITIVE_FRACTION: Final = 0.85
WEIBULL_SHAPE = 1.1
BASELINE_SCALE_DAYS = 6500.0
ADMINISTRATIVE_CENSORING_DAYS = 365.25 * 6
FOLLOW_UP_DAYS = (500.0, 2800.0)
MIN_EVENT_DAYS = 30.0


@dataclass(frozen=True)
class Clinical:
    """A patient's true clinical variables, coded as in the release: 1 male, 1 consumption, 1 chemoradiotherapy."""

    age_years: int
    gender: int
    tobacco: int
    alcohol: int
    performance_status: int
    treatment: int
    m_stage: str


@dataclass(frozen=True)
class Outcome:
    """Outcome of a patient. `rfs_days` and `relapse` are observed; the other values are only in the truth file."""

    hpv_positive: bool
    hpv_logit: float
    linear_predictor: float
    event_days: float
    censoring_days: float

    @property
    def relapse(self) -> bool:
        """Return whether the recurrence came before the end of follow-up."""
        return self.event_days <= self.censoring_days

    @property
    def rfs_days(self) -> int:
        """Return the observed days, to the recurrence or to the end of follow-up."""
        return round(min(self.event_days, self.censoring_days))


def draw_clinical(rng: np.random.Generator) -> Clinical:
    """Draw clinical variables; tobacco and alcohol are correlated, performance falls with age and tobacco."""
    age = int(np.clip(rng.normal(60.7, 9.1), 32, 90))
    tobacco = int(rng.random() < 0.48)
    alcohol = int(rng.random() < (0.60 if tobacco else 0.30))
    poor = -0.9 + 0.4 * (age - 60) / 10 + 0.5 * tobacco
    status = int(rng.binomial(3, 1 / (1 + np.exp(-(poor - 0.6)))))
    return Clinical(
        age_years=age,
        gender=int(rng.random() < 0.75),
        tobacco=tobacco,
        alcohol=alcohol,
        performance_status=status,
        treatment=int(rng.random() < (0.9 if age < 72 else 0.55)),
        m_stage="M1" if rng.random() < 0.03 else "M0",
    )


def compute_hpv_terms(clinical: Clinical, disease: Disease) -> dict[str, float]:
    """Compute the terms of the HPV logit by name."""
    return {
        "intercept": 1.0,
        "tobacco": float(clinical.tobacco),
        "age_decades_over_60": (clinical.age_years - 60) / 10,
        "cystic_share": disease.cystic_share,
        "log_gtvp_volume": float(np.log((disease.gtvp_ml + 1) / 9)),
        "male": float(clinical.gender),
    }


def compute_hazard_terms(clinical: Clinical, disease: Disease, hpv_positive: bool) -> dict[str, float]:
    """Compute the terms of the linear predictor by name; volumes are in ml, relative to 20 ml."""
    return {
        "log_total_volume": float(np.log((disease.gtvp_ml + disease.gtvn_ml + 1) / 21)),
        "sqrt_node_count": float(np.sqrt(len(disease.nodes))),
        "hpv_positive": float(hpv_positive),
        "performance_status": float(clinical.performance_status),
        "tobacco": float(clinical.tobacco),
    }


def draw_outcome(rng: np.random.Generator, clinical: Clinical, disease: Disease) -> Outcome:
    """Draw HPV status, then time to recurrence and to the end of follow-up, in days."""
    logit = sum(HPV_LOGIT[name] * value for name, value in compute_hpv_terms(clinical, disease).items())
    positive = bool(rng.random() < 1 / (1 + np.exp(-logit)))
    predictor = sum(HAZARD[name] * value for name, value in compute_hazard_terms(clinical, disease, positive).items())
    return Outcome(positive, float(logit), float(predictor), *draw_survival(rng, predictor))


def draw_survival(rng: np.random.Generator, predictor: float) -> tuple[float, float]:
    """Draw the time to the event and to the end of follow-up, in days."""
    event = BASELINE_SCALE_DAYS * (rng.exponential() * np.exp(-predictor)) ** (1 / WEIBULL_SHAPE)
    censoring = min(float(rng.uniform(*FOLLOW_UP_DAYS)), ADMINISTRATIVE_CENSORING_DAYS)
    return max(float(event), MIN_EVENT_DAYS), censoring


def draw_record(
    rng: np.random.Generator, clinical: Clinical, hpv_positive: bool, centre: Centre
) -> dict[str, int | str | None]:
    """Draw the variables that the centre recorded, including HPV status, by name; None is missing."""
    values = {**asdict(clinical), HPV: int(hpv_positive)}
    draws = rng.random(len(values))
    return {
        name: None if draw < MISSING[name] or name in centre.never_recorded else value
        for draw, (name, value) in zip(draws, values.items(), strict=True)
    }
