"""One patient's body: tissue values, physiological uptake, and variation between patients.

CT values are the usual ones of each tissue, in HU. Medians of uptake are typical SUV of a fasting adult an hour
after FDG, rounded, with lognormal spread; neither is fitted to data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FAT_HU, MUSCLE_HU, BONE_HU, MARROW_HU = -95.0, 55.0, 700.0, 220.0


@dataclass(frozen=True)
class Uptake:
    """Physiological SUV of one patient."""

    brain: float
    tonsil_left: float
    tonsil_right: float
    parotid: float
    submandibular: float
    larynx: float
    tongue: float
    adenoid: float
    muscle: float
    marrow: float
    blood: float
    heart: float
    liver: float
    kidney: float
    bladder: float
    brown_fat: float


@dataclass(frozen=True)
class Body:
    """Properties of one patient's body; ``dentate`` is False without teeth."""

    uptake: Uptake
    fat_mm: float
    contrast_hu: float
    dentate: bool
    tonsil_size: tuple[float, float]
    table_y: float
    jaw_drop_mm: float


def _random_uptake(rng: np.random.Generator) -> Uptake:
    def around(median: float, sigma: float, low: float, high: float) -> float:
        return float(np.clip(median * np.exp(sigma * rng.standard_normal()), low, high))

    tonsil = around(3.4, 0.25, 2.2, 5.5)
    # A threshold mistakes unilateral uptake of a tonsil for a tumour.
    asymmetry = float(rng.uniform(1.4, 2.0)) if rng.random() < 0.25 else float(rng.uniform(0.9, 1.15))
    sides = (tonsil * asymmetry, tonsil) if rng.random() < 0.5 else (tonsil, tonsil * asymmetry)
    return Uptake(
        brain=around(9.5, 0.18, 6.5, 14),
        tonsil_left=sides[0],
        tonsil_right=sides[1],
        parotid=around(2.2, 0.25, 1.2, 4),
        submandibular=around(2.8, 0.25, 1.5, 5),
        larynx=around(2.4, 0.35, 1.2, 6),
        tongue=around(2.2, 0.35, 1.0, 6),
        adenoid=around(2.6, 0.3, 1.3, 5),
        muscle=around(0.65, 0.15, 0.4, 1.2),
        marrow=around(1.3, 0.2, 0.8, 2.5),
        blood=around(1.5, 0.12, 1.0, 2.2),
        heart=around(4.5, 0.6, 1.5, 13),
        liver=around(2.2, 0.12, 1.5, 3),
        kidney=around(5.5, 0.25, 3, 10),
        bladder=around(20, 0.4, 8, 45),
        brown_fat=float(rng.uniform(3, 8)) if rng.random() < 0.06 else 0.0,
    )


def random_body(rng: np.random.Generator, contrast: bool) -> Body:
    """Draw a body; the same generator state gives the same body."""
    return Body(
        uptake=_random_uptake(rng),
        fat_mm=float(rng.uniform(4, 13)),
        contrast_hu=float(rng.uniform(90, 190)) if contrast else 0.0,
        dentate=bool(rng.random() < 0.8),
        tonsil_size=(float(rng.uniform(0.8, 1.15)), float(rng.uniform(0.8, 1.15))),
        table_y=float(rng.uniform(120, 148)),
        jaw_drop_mm=float(rng.uniform(-2, 6)),
    )
