"""Find the head and neck in any scan, from head-only to whole body, from CT and PET together.

The brain is the landmark. If the brain is not visible, use the lung apices; if those are not visible either, use the
top of the body. Without the brain the region is unsure and therefore larger, but bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.region.coarse import COARSE_MM, Coarse, coarse_picture, without_cold
from algorithm.region.grids import triple
from algorithm.region.landmarks import brain_centre_mm, lung_apex_mm, neck_centre_mm

# Half widths around the head, and extent below and above the centre of the brain: 20 litres, at most 23.
HALF_WIDTH_MM: Final = 125.0
BELOW_BRAIN_MM: Final = 280.0
MOST_BELOW_BRAIN_MM: Final = 330.0
ABOVE_BRAIN_MM: Final = 32.0
# Visible lungs mark the lower end of the neck; without them the region reaches further down.
NECK_BELOW_APEX_MM: Final = 25.0
# Without a brain: extent below and above the lung apices, or below the top of the body; at most 41 litres.
BELOW_APEX_MM: Final = 100.0
ABOVE_APEX_MM: Final = 320.0
UNSURE_HALF_WIDTH_MM: Final = 150.0
LONGEST_UNSURE_MM: Final = 450.0
# The body may end between two coarse slices, or with a tilt.
ABOVE_BODY_MM: Final = 12.0

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """An axis-aligned box in LPS millimetres, corners in (x, y, z), clipped to the CT's field of view.

    `brain_z_mm` is the height of the brain's centre, None without a visible brain.
    """

    lower_mm: tuple[float, float, float]
    upper_mm: tuple[float, float, float]
    found_by: str
    brain_z_mm: float | None = None

    @property
    def sure(self) -> bool:
        """True if the brain is visible."""
        return self.brain_z_mm is not None

    @property
    def volume_litres(self) -> float:
        """Volume of the box in litres."""
        return float(np.prod(np.subtract(self.upper_mm, self.lower_mm))) / 1e6


def localise(case: Case) -> Region:
    """The region of head and neck with every GTVp and GTVn, clipped to the CT's field of view."""
    corners = case.ct.geometry.corners_mm()
    field_low, field_high = corners.min(0), corners.max(0)
    coarse = coarse_picture(case)
    apex_mm = lung_apex_mm(coarse)
    brain = brain_centre_mm(coarse, apex_mm)
    if brain is None:
        low, high = _without_brain(coarse, apex_mm)
        brain_z_mm, found_by = None, "body outline" if apex_mm is None else "lung apices"
    else:
        brain_mm, found_by = brain
        low, high = _around_brain(brain_mm, apex_mm, coarse)
        brain_z_mm = float(brain_mm[2])
    low, high = np.maximum(low, field_low), np.minimum(high, field_high)
    if np.any(high <= low):
        low, high, brain_z_mm, found_by = field_low, field_high, None, "whole field of view"
    return Region(triple(low), triple(high), found_by, brain_z_mm)


def _around_brain(brain_mm: _Vector, apex_mm: float | None, coarse: Coarse) -> tuple[_Vector, _Vector]:
    """The box below a brain, centred between the head and the neck beneath it."""
    below = MOST_BELOW_BRAIN_MM
    if apex_mm is not None:
        below = float(np.clip(brain_mm[2] - apex_mm + NECK_BELOW_APEX_MM, BELOW_BRAIN_MM, MOST_BELOW_BRAIN_MM))
    middle = (brain_mm + neck_centre_mm(brain_mm, coarse)) / 2
    low = np.array([middle[0] - HALF_WIDTH_MM, middle[1] - HALF_WIDTH_MM, brain_mm[2] - below])
    high = np.array([middle[0] + HALF_WIDTH_MM, middle[1] + HALF_WIDTH_MM, brain_mm[2] + ABOVE_BRAIN_MM])
    return low, high


def _without_brain(coarse: Coarse, apex_mm: float | None) -> tuple[_Vector, _Vector]:
    """The box around and above the lung apices; without lungs the upper end of the body."""
    body = without_cold(coarse)
    if not body.any():
        body = np.ones_like(body)
    z, y, x = np.nonzero(body)
    z_mm = coarse.z_mm
    top = z_mm[z.max()] + ABOVE_BODY_MM
    bottom = max(z_mm[z.min()] - COARSE_MM, top - LONGEST_UNSURE_MM)
    if apex_mm is not None:
        top = min(top, apex_mm + ABOVE_APEX_MM)
        bottom = max(z_mm[z.min()] - COARSE_MM, apex_mm - BELOW_APEX_MM)
    here = (z_mm[z] >= bottom) & (z_mm[z] <= top)
    middle = coarse.place_mm((0.0, float(np.median(y[here])), float(np.median(x[here]))))
    low = np.array([middle[0] - UNSURE_HALF_WIDTH_MM, middle[1] - UNSURE_HALF_WIDTH_MM, bottom])
    high = np.array([middle[0] + UNSURE_HALF_WIDTH_MM, middle[1] + UNSURE_HALF_WIDTH_MM, top])
    return low, high
