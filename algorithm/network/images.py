"""A case as the networks of one spacing and normalisation see it, and the way of their logits to the answer's grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.masks.segmentation import log_probabilities, softmax
from algorithm.network.windows import TILE_STEP, Box, PassPlan, Starts, whole
from algorithm.region.grids import resample
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

COARSER_STEPS: Final = (0.75, 1.0)
# Logit of the background, and minus that of the lesions, outside the box of a smaller plan or outside the image.
NOT_LOOKED_AT: Final = 20.0

_Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MemberImage:
    """The image of one or more members of a package.

    Attributes:
        shape: voxels (z, y, x).
        channels: returns the normalised channels (channel, z, y, x); called once, before the first pass.
        focus: returns the box of (z, y, x) in which lesions are suspected, or None; called only if time is short.
        to_answer: returns the logits (label, z, y, x) of the answer's grid, given those of the whole image.
        starts: returns where the tiles of a patch (z, y, x) begin; None spreads them evenly over the image.
    """

    shape: tuple[int, ...]
    channels: Callable[[], _Float]
    focus: Callable[[], Box | None] = lambda: None
    to_answer: Callable[[_Float], _Float] = lambda logits: logits
    starts: Callable[[tuple[int, int, int]], Starts | None] = lambda _: None

    @classmethod
    def of(cls, data: _Float) -> MemberImage:
        """The image of normalised channels (channel, z, y, x) on the answer's grid."""
        return cls(data.shape[1:], lambda: data)

    @cached_property
    def data(self) -> _Float:
        """Normalised channels (channel, z, y, x)."""
        return self.channels()

    @cached_property
    def _focus_box(self) -> Box | None:
        return self.focus()

    def plans(self, patch: tuple[int, int, int]) -> Iterator[PassPlan]:
        """Plans of a pass with a patch (z, y, x), best first. Plans of two images with one name correspond."""
        region = whole(self.shape)
        yield PassPlan(region, TILE_STEP, patch, "the whole region", self.starts(patch))
        for step in COARSER_STEPS:
            yield PassPlan(region, step, patch, f"the whole region, tiles {step:g} of a patch apart")
        if (box := self._focus_box) is not None:
            for step in (TILE_STEP, *COARSER_STEPS):
                yield PassPlan(box, step, patch, f"the PET-avid part, tiles {step:g} of a patch apart")

    def answer(self, logits: _Float, box: Box) -> _Float:
        """Logits of a box of the image on the answer's grid, background outside the box."""
        if logits.shape[1:] == self.shape:
            return self.to_answer(logits)
        full = np.full((logits.shape[0], *self.shape), -NOT_LOOKED_AT, dtype=np.float32)
        full[0] = NOT_LOOKED_AT
        full[(slice(None), *box)] = logits
        return self.to_answer(full)


def resampled_logits(logits: _Float, grid: Geometry, target: Geometry, of_probabilities: bool) -> _Float:
    """Logits (label, z, y, x) interpolated linearly at the voxels of another grid, background outside `grid`.

    With `of_probabilities` the probabilities are interpolated instead; the result is their logarithm.
    """
    if grid == target:
        return logits
    values = softmax(logits) if of_probabilities else logits
    background, lesions = (1.0, 0.0) if of_probabilities else (NOT_LOOKED_AT, -NOT_LOOKED_AT)
    outside = (background, *(lesions for _ in values[1:]))
    moved = np.stack([resample(Volume(one, grid), target, value) for one, value in zip(values, outside, strict=True)])
    return log_probabilities(moved) if of_probabilities else moved
