"""One patient's body: heights of the organs, tissue values, physiological uptake, and variation between patients.

Medians, spreads and correlations of the heights come from 150 real FDG PET/CTs with segmented organs
(MIC-DKFZ/autopet-3-submission).

CT values are the usual HU of each tissue. Medians of uptake are typical SUV of a fasting adult an hour after FDG,
rounded, with lognormal spread. Neither is fitted to data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rehearsal.phantoms.anatomy.shapes import Floats

FAT_HU, MUSCLE_HU, BONE_HU, MARROW_HU = -95.0, 55.0, 700.0, 220.0
# Anatomical heights, in mm, at which the shapes are painted.
BRAIN_TOP: Final = 159.0
GLANDS_TOP: Final = 58.0
BRAIN_BOTTOM: Final = 24.0
GLANDS_BOTTOM: Final = -50.0
LUNG_APEX: Final = -125.0
HEART_TOP: Final = -195.0
LIVER_TOP: Final = -281.0
LUNGS_BOTTOM: Final = -349.0
BLADDER_BOTTOM: Final = -679.0
# Beyond the last landmark at both ends the heights are not stretched.
_BEYOND_MM: Final = 2000.0
# Relative size of the body: mean and standard deviation over women and men.
_SIZE_MEAN, _SIZE_SD = 0.985, 0.044


@dataclass(frozen=True)
class Heights:
    """One patient's heights as pairs (anatomical height, mm above the patient's origin), both ascending.

    Between two landmarks the body is stretched evenly. The brain's lower end is `BRAIN_BOTTOM` mm above the origin.
    """

    knots: tuple[tuple[float, float], ...]

    def to_mm(self, anatomical: Floats | float) -> Floats:
        """Convert anatomical heights to millimetres above the patient's origin."""
        heights, mm = zip(*self.knots, strict=True)
        return np.asarray(np.interp(anatomical, heights, mm))

    def to_anatomical(self, mm: Floats | float) -> Floats:
        """Convert millimetres above the patient's origin to anatomical heights."""
        heights, ends = zip(*self.knots, strict=True)
        return np.asarray(np.interp(mm, ends, heights))


def draw_heights(rng: np.random.Generator, size: float) -> Heights:
    """Draw a patient's heights; `size` is the body's relative size, on which the trunk's heights depend."""
    tall = float(np.clip((size - _SIZE_MEAN) / _SIZE_SD, -2.6, 2.6))
    head, face, neck, heart, lungs, liver, pelvis = (float(value) for value in np.clip(rng.normal(0, 1, 7), -2.6, 2.6))
    brain_mm = float(np.clip(126 + 3.5 * tall + 11.5 * head, 100, 152))
    glands_top_mm = float(np.clip(37 + 5 * head + 11.5 * face, 12, min(66.0, brain_mm - 50)))
    glands_bottom_mm = float(np.clip(78 + 9.6 * neck, 52, 102))
    apex_mm = float(np.clip(132 + 14 * tall, max(94.0, glands_bottom_mm + 28), 164))
    heart_mm = max(202 + 17 * tall + 11 * heart, apex_mm + 45)
    lungs_mm = max(354 + 1.2 * (heart_mm - 202) + 18 * lungs, heart_mm + 95)
    liver_mm = lungs_mm - float(np.clip(64 + 13 * liver, 32, 95))
    bladder_mm = max(686 + 31 * tall + 23 * pelvis, lungs_mm + 220)
    below_brain = (
        (BLADDER_BOTTOM - _BEYOND_MM, bladder_mm + _BEYOND_MM),
        (BLADDER_BOTTOM, bladder_mm),
        (LUNGS_BOTTOM, lungs_mm),
        (LIVER_TOP, liver_mm),
        (HEART_TOP, heart_mm),
        (LUNG_APEX, apex_mm),
        (GLANDS_BOTTOM, glands_bottom_mm),
        (BRAIN_BOTTOM, 0.0),
        (GLANDS_TOP, -glands_top_mm),
        (BRAIN_TOP, -brain_mm),
        (BRAIN_TOP + _BEYOND_MM, -brain_mm - _BEYOND_MM),
    )
    return Heights(tuple((height, BRAIN_BOTTOM - mm) for height, mm in below_brain))


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
    """Properties of one patient's body; `dentate` tells whether it has teeth."""

    uptake: Uptake
    fat_mm: float
    contrast_hu: float
    dentate: bool
    tonsil_size: tuple[float, float]
    table_y: float
    jaw_drop_mm: float


def _draw_uptake(rng: np.random.Generator) -> Uptake:
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


def draw_body(rng: np.random.Generator, contrast: bool) -> Body:
    """Draw a body; the same generator state gives the same body."""
    return Body(
        uptake=_draw_uptake(rng),
        fat_mm=float(rng.uniform(4, 13)),
        contrast_hu=float(rng.uniform(90, 190)) if contrast else 0.0,
        dentate=bool(rng.random() < 0.8),
        tonsil_size=(float(rng.uniform(0.8, 1.15)), float(rng.uniform(0.8, 1.15))),
        table_y=float(rng.uniform(120, 148)),
        jaw_drop_mm=float(rng.uniform(-2, 6)),
    )
