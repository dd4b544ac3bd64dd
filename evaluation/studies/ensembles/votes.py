"""Combine several masks of one case into one: STAPLE, or the average of the votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract import labels
from evaluation.metrics.overlap import Box, Floats, foreground_box

Labels: TypeAlias = npt.NDArray[np.uint8]
Votes: TypeAlias = npt.NDArray[np.bool_]
Spacing: TypeAlias = tuple[float, float, float]

STAPLE_MARGIN_MM: Final = 10.0
_MAX_ITERATIONS: Final = 1000
_ENOUGH: Final = 0.5


@dataclass(frozen=True)
class CompactMask:
    """A (z, y, x) label mask without the background around it: `inside` fills `box` of the whole grid."""

    box: Box
    inside: Labels

    @classmethod
    def of(cls, mask: npt.NDArray[Any]) -> CompactMask:
        """A mask cut to its foreground."""
        box = foreground_box(mask)
        return cls(box, mask[box].astype(np.uint8))


def average(votes: Votes, spacing_mm: Spacing) -> Floats:
    """The fraction of masks that include each voxel; `votes` has shape (masks, z, y, x)."""
    del spacing_mm
    return np.asarray(np.mean(votes, axis=0))


def staple(votes: Votes, spacing_mm: Spacing) -> Floats:
    """The probability of each voxel under STAPLE, which takes the masks as noisy observations of one truth.

    `votes` has shape (masks, z, y, x), the spacing (z, y, x). STAPLE runs on the votes' bounding box and 10 mm around
    it, cut at the image's border, since the amount of air in an image would change the raters' specificity and the
    prior. If all masks agree in every voxel, the probability is their vote; STAPLE is undefined if such a box has no
    background. Voxels outside all masks have probability 0, even if strong disagreement makes STAPLE assign another
    value.
    Source: Warfield et al. 2004, IEEE Trans Med Imaging 23:903-921, as SimpleITK's filter has it.
    """
    held = np.asarray(votes.any(axis=0), dtype=np.uint8)
    if np.array_equal(held, votes.all(axis=0)):
        return held.astype(np.float64)
    probability: Floats = np.zeros(held.shape)
    region = _widened(foreground_box(held), held.shape, spacing_mm)
    staples = sitk.STAPLEImageFilter()
    staples.SetForegroundValue(1.0)
    staples.SetMaximumIterations(_MAX_ITERATIONS)
    images = [sitk.GetImageFromArray(vote[region].astype(np.uint8)) for vote in votes]
    probability[region] = sitk.GetArrayFromImage(staples.Execute(images)) * held[region]
    return probability


METHODS: Final[dict[str, Callable[[Votes, Spacing], Floats]]] = {"staple": staple, "average": average}


def combine(masks: Sequence[CompactMask], shape: tuple[int, int, int], spacing_mm: Spacing, method: str) -> CompactMask:
    """One mask from several of the same grid: each label where its probability is at least 0.5.

    The grid has the shape and spacing (z, y, x); `method` is a key of `METHODS`. Each label is voted on separately. If
    both reach 0.5, the more probable one wins, GTVp if equal.
    Source: the HECKTOR 2021 overview.
    """
    region = _widened(_union([mask.box for mask in masks]), shape, spacing_mm)
    stack = np.stack([_within(mask, region) for mask in masks])
    gtvp, gtvn = (METHODS[method](stack == label, spacing_mm) for label in labels.FOREGROUND)
    combined = np.zeros(gtvp.shape, dtype=np.uint8)
    combined[gtvn >= _ENOUGH] = labels.GTVN
    combined[(gtvp >= _ENOUGH) & (gtvp >= gtvn)] = labels.GTVP
    return CompactMask(region, combined)


def stacked(masks: Sequence[CompactMask]) -> list[Labels]:
    """The masks over the smallest box that holds all of their foreground, (z, y, x)."""
    region = _union([mask.box for mask in masks])
    return [_within(mask, region) for mask in masks]


def _union(boxes: Sequence[Box]) -> Box:
    """The smallest box around all non-empty boxes; empty if all are empty."""
    filled = [box for box in boxes if all(part.stop > part.start for part in box)]
    if not filled:
        return (slice(0, 0), slice(0, 0), slice(0, 0))
    z, y, x = (slice(min(s.start for s in parts), max(s.stop for s in parts)) for parts in zip(*filled, strict=True))
    return (z, y, x)


def _widened(box: Box, shape: tuple[int, ...], spacing_mm: Spacing) -> Box:
    if any(part.stop == part.start for part in box):
        return box
    steps = [int(np.ceil(STAPLE_MARGIN_MM / spacing)) for spacing in spacing_mm]
    z, y, x = (
        slice(max(0, part.start - step), min(size, part.stop + step))
        for part, step, size in zip(box, steps, shape, strict=True)
    )
    return (z, y, x)


def _within(mask: CompactMask, region: Box) -> Labels:
    """The mask inside a region that contains all of its foreground."""
    inside = np.zeros(tuple(part.stop - part.start for part in region), dtype=np.uint8)
    if mask.inside.size:
        place = tuple(
            slice(mine.start - outer.start, mine.stop - outer.start)
            for mine, outer in zip(mask.box, region, strict=True)
        )
        inside[place] = mask.inside
    return inside
