"""Fields of view: between which heights a patient is scanned.

The upper ends and the lengths follow those of 150 real FDG PET/CTs (MIC-DKFZ/autopet-3-submission): the top of the
head is often cut, some scans show no brain, and some reach down to the feet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rehearsal.phantoms.anatomy.canvas import Frame
from rehearsal.phantoms.anatomy.heights import BLADDER_BOTTOM, BRAIN_BOTTOM
from rehearsal.phantoms.centres import Centre

Range = tuple[float, float]


@dataclass(frozen=True)
class Quantiles:
    """A distribution by some of its quantiles, linear between them."""

    shares: tuple[float, ...]
    values: tuple[float, ...]

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a value."""
        return float(np.interp(rng.random(), self.shares, self.values))


# Upper end of a scan in mm above the brain's lower end.
_SHARES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
TOP = Quantiles(_SHARES, (44, 63, 70, 79, 92, 105, 134, 148, 200))
TOP_OF_LONG_SCAN = Quantiles(_SHARES, (58, 63, 73, 88, 130, 155, 205, 230, 265))
TOP_BELOW_BRAIN = Quantiles((0.0, 1.0), (-40, -2))
CUT_TOP = Quantiles((0.0, 1.0), (6, 66))
# Length of scans that end at the thighs, and of those that go on to the feet.
LENGTH = Quantiles((0.0, 0.05, 0.09, 0.41, 0.5, 0.59, 0.93, 1.0), (726, 777, 852, 852, 915, 978, 978, 1227))
LENGTH_OF_LONG_SCAN = Quantiles(_SHARES, (1353, 1479, 1529, 1605, 1731, 1767, 1857, 1857, 1857))
NO_BRAIN_SHARE, LONG_SCAN_SHARE = 0.05, 0.17
BELOW_BLADDER_MM = 30
# Upper end, and anatomical heights between which the lower end lies; a whole-body scan is drawn with a length instead.
VIEWS: dict[str, tuple[Quantiles, Range]] = {
    "head_and_neck": (TOP, (-230, -120)),
    "head": (TOP, (-105, -75)),
    "cut": (CUT_TOP, (-230, -100)),
}
WHOLE_BODY = "whole_body"


def random_view(rng: np.random.Generator, centre: Centre) -> str:
    """Draw a field of view by the centre's shares."""
    shares = {WHOLE_BODY: centre.whole_body_share, "head": centre.head_only_share, "cut": centre.cut_share}
    draw = float(rng.random())
    for name, share in shares.items():
        if draw < share:
            return name
        draw -= share
    return "head_and_neck"


def random_extent(rng: np.random.Generator, view: str, frame: Frame) -> Range:
    """Patient z of a scan's lower and upper end."""
    brain = frame.height_mm(BRAIN_BOTTOM)
    if view == WHOLE_BODY:
        return _whole_body_extent(rng, brain, frame.height_mm(BLADDER_BOTTOM))
    top, (low, high) = VIEWS[view]
    return frame.height_mm(float(rng.uniform(low, high))), brain + top.draw(rng)


def _whole_body_extent(rng: np.random.Generator, brain: float, bladder: float) -> Range:
    long = rng.random() < LONG_SCAN_SHARE
    top = TOP_OF_LONG_SCAN if long else TOP
    if rng.random() < NO_BRAIN_SHARE:
        top = TOP_BELOW_BRAIN
    upper = brain + top.draw(rng)
    lower = upper - (LENGTH_OF_LONG_SCAN if long else LENGTH).draw(rng)
    return min(lower, bladder - BELOW_BLADDER_MM), upper
