"""Heights of organs: in the painted anatomy, and in one patient.

The medians, spreads and correlations are those of 150 real FDG PET/CTs whose organs were segmented
(MIC-DKFZ/autopet-3-submission).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rehearsal.phantoms.anatomy.shapes import Floats

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
# Beyond the last landmark on either side a millimetre is a millimetre.
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
        """Millimetres above the patient's origin."""
        heights, mm = zip(*self.knots, strict=True)
        return np.asarray(np.interp(anatomical, heights, mm))

    def to_anatomical(self, mm: Floats | float) -> Floats:
        """Anatomical height of a place that lies ``mm`` above the patient's origin."""
        heights, ends = zip(*self.knots, strict=True)
        return np.asarray(np.interp(mm, ends, heights))


def random_heights(rng: np.random.Generator, size: float) -> Heights:
    """Draw a patient's heights; ``size`` is the body's relative size, on which the trunk's heights depend."""
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
