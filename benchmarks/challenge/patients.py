"""Simulated patients of several centres: lesions, outcome, HPV status, stages, and how difficult each case is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from contract.editions.declaration import ClassValue
from evaluation.inputs.ground_truth import FollowUp

# Centre, share of the patients, and volume of a voxel in mm3.
CENTRES: Final = (
    ("MDA", 0.30, 0.98 * 0.98 * 2.0),
    ("CHUM", 0.14, 0.98 * 0.98 * 1.5),
    ("CHUP", 0.12, 1.37 * 1.37 * 1.25),
    ("CHUS", 0.11, 1.17 * 1.17 * 3.0),
    ("USZ", 0.10, 1.0 * 1.0 * 3.0),
    ("CHUV", 0.08, 1.37 * 1.37 * 3.27),
    ("CHB", 0.06, 0.98 * 0.98 * 3.0),
    ("HGJ", 0.05, 1.17 * 1.17 * 3.27),
    ("HMR", 0.04, 0.98 * 0.98 * 3.0),
)
_T_LIMITS_ML: Final = (3.0, 10.0, 30.0)
_STAGES: Final = {"t_stage": ("T1", "T2", "T3", "T4"), "n_stage": ("N0", "N1", "N2", "N3")}
# Shares of patients without a primary tumour, and whose class is unknown or does not count.
_NO_PRIMARY, _UNKNOWN, _NOT_COUNTED = 0.04, 0.02, 0.02


@dataclass(frozen=True)
class SimulatedPatient:
    """The reference of one patient.

    `difficulty` and `log_hazard` have a standard deviation of about 1 in the cohort. `classes` holds the class of each
    answer by its name, None if it is unknown; `not_counted` the answers whose class does not count.
    """

    case: str
    centre: str
    voxel_volume_mm3: float
    difficulty: float
    primary_voxels: int
    node_voxels: tuple[int, ...]
    follow_up: FollowUp
    log_hazard: float
    classes: dict[str, ClassValue | None]
    not_counted: frozenset[str]


def simulated_patients(cases: int, rng: np.random.Generator) -> list[SimulatedPatient]:
    """Patients of all centres, in the order of their names."""
    shares = np.array([share for _, share, _ in CENTRES])
    # Every centre gets a patient before the shares count.
    centres = [*range(len(CENTRES)), *rng.choice(len(CENTRES), max(0, cases - len(CENTRES)), p=shares)][:cases]
    offsets = rng.normal(0, 0.3, len(CENTRES))
    counts = [0] * len(CENTRES)
    patients = []
    for centre in sorted(centres):
        counts[centre] += 1
        name, _, voxel_mm3 = CENTRES[centre]
        patients.append(_patient(f"{name}-{counts[centre]:03d}", name, voxel_mm3, float(offsets[centre]), rng))
    return sorted(patients, key=lambda patient: patient.case)


def _patient(case: str, centre: str, voxel_mm3: float, offset: float, rng: np.random.Generator) -> SimulatedPatient:
    primary_ml = 0.0 if rng.random() < _NO_PRIMARY else float(rng.lognormal(np.log(9.0), 0.9))
    nodes_ml = rng.lognormal(np.log(4.0), 1.0, rng.choice(7, p=(0.2, 0.28, 0.22, 0.14, 0.09, 0.05, 0.02)))
    size = np.log1p(primary_ml) - 2.2
    difficulty = float(offset + 0.8 * rng.standard_normal() - 0.5 * size)
    hpv = bool(rng.random() < 1 / (1 + np.exp(-(0.9 - 0.5 * size))))
    log_hazard = float(0.7 * size + 0.15 * len(nodes_ml) - 0.9 * hpv + 0.6 * rng.standard_normal())
    t_stage = int(np.searchsorted(_T_LIMITS_ML, primary_ml * rng.lognormal(0, 0.3)))
    n_stage = min(3, int(len(nodes_ml) > 0) + int(len(nodes_ml) > 1) + int(nodes_ml.max(initial=0.0) > 25))
    classes: dict[str, ClassValue | None] = {
        "hpv": hpv,
        "t_stage": _STAGES["t_stage"][t_stage],
        "n_stage": _STAGES["n_stage"][n_stage],
    }
    chance = rng.random(len(classes))
    return SimulatedPatient(
        case=case,
        centre=centre,
        voxel_volume_mm3=round(voxel_mm3, 4),
        difficulty=difficulty,
        primary_voxels=round(primary_ml * 1000 / voxel_mm3),
        node_voxels=tuple(max(3, round(float(ml) * 1000 / voxel_mm3)) for ml in nodes_ml),
        follow_up=_follow_up(log_hazard, rng),
        log_hazard=log_hazard,
        classes={
            name: None if p < _UNKNOWN else value for (name, value), p in zip(classes.items(), chance, strict=True)
        },
        not_counted=frozenset(
            name for name, p in zip(classes, chance, strict=True) if name != "hpv" and 0 < p - _UNKNOWN < _NOT_COUNTED
        ),
    )


def _follow_up(log_hazard: float, rng: np.random.Generator) -> FollowUp:
    """Exponential time to recurrence, censored at a uniform end of follow-up; about a quarter recurs."""
    recurrence = rng.exponential(5500.0 * np.exp(-log_hazard))
    end = rng.uniform(200.0, 3200.0)
    return FollowUp(float(max(1, round(min(recurrence, end)))), bool(recurrence < end))
