"""Find the head and neck in any scan, from head-only to whole body, from CT and PET together.

The brain is the landmark. If the brain is not visible, use the lung apices; if those are not visible either, use the
top of the body. Without the brain the region is unsure and therefore larger, but bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.region.coarse import COARSE_MM, Coarse, coarse_picture, without_cold
from algorithm.region.grids import triple
from algorithm.region.landmarks import Brain, find_brain, lung_apex_mm
from algorithm.region.neck import beneath_head, front_and_back_mm, is_upside_down, neck_centre_mm, shows_neck
from contract.images.volumes import Volume

# Half width and half depth around head and neck, and extent above the lower end of the brain: 17 litres, at most 28.
HALF_WIDTH_MM: Final = 125.0
HALF_DEPTH_MM: Final = 118.0
ABOVE_BRAIN_END_MM: Final = 92.0
# Visible lungs mark the lower end of the neck; nodes lie down to the clavicles, which reach below the apices.
BELOW_APEX_MM: Final = 45.0
# Lower end below the brain without visible lungs; nearest and farthest one with them, whatever is taken for lungs.
# Apices lie 90 to 162 mm below the brain in 142 patients, but without a PET its end may be found 80 mm too high.
BELOW_BRAIN_END_MM: Final = 230.0
BELOW_BRAIN_END_BY_APEX_MM: Final = (140.0, 290.0)
# Distance from the front and the back of the neck to the region's faces, and the deepest region.
SKIN_MM: Final = 8.0
DEEPEST_MM: Final = 290.0
# Without a brain: extent above the lung apices, or below the top of the body; at most 41 litres.
ABOVE_APEX_MM: Final = 320.0
UNSURE_HALF_WIDTH_MM: Final = 150.0
LONGEST_UNSURE_MM: Final = 450.0
# The body may end between two coarse slices, or with a tilt.
ABOVE_BODY_MM: Final = 12.0

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """An axis-aligned box in LPS millimetres, corners in (x, y, z), clipped to the CT's field of view.

    `brain_lower_mm` is the height of the brain's lower end and `apex_mm` that of the lung apices, None where they are
    not visible; `brain` is a mask of the brain. `no_neck` says why no neck can be in view; it is empty for a scan that
    may show one.
    """

    lower_mm: tuple[float, float, float]
    upper_mm: tuple[float, float, float]
    found_by: str
    brain_lower_mm: float | None = None
    apex_mm: float | None = None
    brain: Volume | None = field(default=None, repr=False, compare=False)
    no_neck: str = ""

    @property
    def sure(self) -> bool:
        """True if the brain is visible above the body."""
        return self.brain_lower_mm is not None and not self.no_neck

    @property
    def volume_litres(self) -> float:
        """Volume of the box in litres."""
        return float(np.prod(np.subtract(self.upper_mm, self.lower_mm))) / 1e6

    def as_json(self) -> dict[str, Any]:
        """Box, landmark and certainty as plain data, heights in mm."""
        names = ("lower_mm", "upper_mm", "found_by", "sure", "brain_lower_mm")
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def summary(self) -> str:
        """One line: the heights searched, the landmark, and whether it is sure."""
        heights = f"z {self.lower_mm[2]:.0f} to {self.upper_mm[2]:.0f} mm, {self.volume_litres:.1f} litres"
        return f"{heights}, found by {self.found_by}, {'sure' if self.sure else 'unsure'}"


def localise(case: Case) -> Region:
    """The region of head and neck with every GTVp and GTVn, clipped to the CT's field of view."""
    corners = case.ct.geometry.corners_mm()
    field_low, field_high = corners.min(0), corners.max(0)
    coarse = coarse_picture(case)
    apex_mm = lung_apex_mm(coarse)
    brain = find_brain(coarse, apex_mm)
    if brain is None:
        low, high = _without_brain(coarse, apex_mm)
        found_by = "body outline" if apex_mm is None else "lung apices"
    else:
        low, high = _beneath_brain(coarse, brain, apex_mm)
        found_by = brain.found_by
    low, high = np.maximum(low, field_low), np.minimum(high, field_high)
    if np.any(high <= low):
        low, high, brain, found_by = field_low, field_high, None, "whole field of view"
    lower_mm, mask = (None, None) if brain is None else (brain.lower_mm, brain.mask)
    no_neck = _no_neck(coarse, brain, apex_mm)
    return Region(triple(low), triple(high), found_by, lower_mm, apex_mm, mask, no_neck)


def _no_neck(coarse: Coarse, brain: Brain | None, apex_mm: float | None) -> str:
    if is_upside_down(coarse, brain):
        return "the head lies at the lower end of the scan"
    if brain is None and apex_mm is None and not shows_neck(coarse):
        return "no brain, no lung apices and no airway of a neck"
    return ""


def _beneath_brain(coarse: Coarse, brain: Brain, apex_mm: float | None) -> tuple[_Vector, _Vector]:
    """The box from above the brain's lower end to below the lung apices, around head and neck."""
    below = BELOW_BRAIN_END_MM
    if apex_mm is not None:
        below = float(np.clip(brain.lower_mm - apex_mm + BELOW_APEX_MM, *BELOW_BRAIN_END_BY_APEX_MM))
    low_z, high_z = brain.lower_mm - below, brain.lower_mm + ABOVE_BRAIN_END_MM
    beneath = beneath_head(coarse, brain)
    x, y = np.add(brain.centre_mm[:2], neck_centre_mm(coarse, brain, beneath)) / 2
    front, back = y - HALF_DEPTH_MM, y + HALF_DEPTH_MM
    skin = front_and_back_mm(coarse, beneath, x, (low_z + BELOW_APEX_MM, brain.lower_mm))
    if skin is not None:
        front, back = _around(front, back, skin)
    return np.array([x - HALF_WIDTH_MM, front, low_z]), np.array([x + HALF_WIDTH_MM, back, high_z])


def _around(front: float, back: float, skin: tuple[float, float]) -> tuple[float, float]:
    """The range from `front` to `back` moved, and lengthened if needed, to hold the skin's front and back."""
    first, last = skin[0] - SKIN_MM, skin[1] + SKIN_MM
    length = min(max(back - front, last - first), DEEPEST_MM)
    start = (first + last - length) / 2 if last - first > length else float(np.clip(front, last - length, first))
    return start, start + length


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
