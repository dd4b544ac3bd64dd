"""Segmentations: logits on the segmenter's own grid, with the images from which they were computed, and their source.

Without a network, a segmentation comes from a PET threshold, the mask of an earlier visit, or contours of the case. The
threshold of 41% of SUVmax is the comparator that a network must beat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import Case
from algorithm.case.units import PADDING_HU
from algorithm.region import grids
from algorithm.region.grids import make_upright_grid
from algorithm.region.localise import Region
from contract import labels
from contract.images.geometry import Geometry, is_below
from contract.images.volumes import Volume, write_volume

# Value of a removed lesion in `PostprocessingResult.lesion_map`, in addition to the labels.
REMOVED: Final = 3
ANY_CORNER: Final = np.ones((3, 3, 3), dtype=np.bool_)
_MIN_PROBABILITY: Final = np.finfo(np.float32).tiny
# PET threshold: voxels above 41% of SUVmax belong to a lesion, on a grid of this spacing; components below 0.3 ml are
# noise.
SPACING_MM: Final = (3.0, 3.0, 3.0)
SUV_MAX_FRACTION: Final = 0.41
MIN_LESION_ML: Final = 0.3
# Width of the margin into which the brain's uptake is blurred, and height above the brain's lower end from which
# uptake belongs to the face.
BRAIN_MARGIN_MM: Final = 12.0
FACE_ABOVE_BRAIN_END_MM: Final = 45.0
# Minimum volume of a hot component at the upper end of a scan without a visible brain that counts as part of the brain.
MIN_CUT_BRAIN_ML: Final = 60.0
TOP_SLICES: Final = 2
# Lesions whose highest uptake lies more than this distance below the lung apices belong to the chest.
NECK_BELOW_APEX_MM: Final = 30.0

_Float = npt.NDArray[np.float32]
_Labels = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]
# Converts logits (label, z, y, x) on the segmenter's grid to labels on the CT's grid.
Restore = Callable[[_Float, Geometry], _Labels]


class MaskSource(StrEnum):
    """The source of the mask of a case's answers."""

    HEADER = "header"  # an empty mask on the grid of the CT, which is not read yet
    NOTHING = "nothing"  # the method segments nothing, or the scan shows no body
    CONTOURS = "contours"  # part of the case
    PET_THRESHOLD = "PET threshold"
    EARLIER_MASK = "earlier mask"
    EMPTY_MASK = "empty mask"  # for MR without an earlier mask
    NETWORK = "network"


# Sources of masks that replace the network's: for PET/CT, for MR with a mask of the earlier visit, and for other MR.
FALLBACK_MASKS: Final = (MaskSource.PET_THRESHOLD, MaskSource.EARLIER_MASK, MaskSource.EMPTY_MASK)


class RemovedLesion(NamedTuple):
    """A removed lesion, and the name of the rule that removed it."""

    label: int
    rule: str


@dataclass(frozen=True)
class PostprocessingResult:
    """The effect of the postprocessing rules on a mask.

    Attributes:
        lesion_map: Array (z, y, x) on the segmenter's grid, 0 outside lesions, the label of a kept lesion or `REMOVED`.
        removed: The removed lesions.
        remaining: Number of kept lesions.
        skipped: Names of the rules that could not be applied.
    """

    lesion_map: _Labels
    removed: tuple[RemovedLesion, ...]
    remaining: int
    skipped: tuple[str, ...] = ()

    def summary(self) -> str:
        """Describe the result in one line for the log."""
        counts = Counter(f"{labels.NAMES[lesion.label]} by {lesion.rule}" for lesion in self.removed)
        reasons = f" ({', '.join(f'{number} {reason}' for reason, number in counts.items())})" if counts else ""
        total = self.remaining + len(self.removed)
        end = "; no lesion is left" if total and not self.remaining else ""
        end += "".join(f"; {rule} not applied without a PET in SUV" for rule in self.skipped)
        return f"{len(self.removed)} of {total} lesions removed{reasons}{end}"


@dataclass(frozen=True)
class Segmentation:
    """Logits (label, z, y, x) on `grid`, with CT (HU) and PET (SUV, or None) on the same grid.

    `device` describes the devices that made the passes of the networks; it is empty without passes. `restore` converts
    the logits to labels of the scan by nnU-Net's resampling; None is linear interpolation. `postprocessed` describes
    the removed lesions, None for a package without rules; the logits are those after postprocessing.
    """

    logits: _Float
    ct: _Float
    pet: _Float | None
    grid: Geometry
    passes_done: int = 1
    passes_planned: int = 1
    device: str = ""
    restore: Restore | None = None
    postprocessed: PostprocessingResult | None = None

    @classmethod
    def from_mask(cls, mask: npt.NDArray[np.uint8], ct: _Float, pet: _Float | None, grid: Geometry) -> Segmentation:
        """Make a segmentation of a mask (labels 0, 1, 2), with logits of 1 for its labels and -1 for all others."""
        logits = np.stack([np.where(mask == label, 1.0, -1.0).astype(np.float32) for label in sorted(labels.NAMES)])
        return cls(logits, ct, pet, grid)

    def mask(self) -> npt.NDArray[np.uint8]:
        """Return the label of each voxel of `grid`, (z, y, x)."""
        return argmax(self.logits)

    def mask_on(self, ct: Geometry) -> npt.NDArray[np.uint8]:
        """Return the label of each voxel of the CT's grid, (z, y, x); background beyond the segmenter's grid."""
        if self.restore is not None:
            return self.restore(self.logits, ct)
        return grids.restore_labels(self.logits, self.grid, ct)


@dataclass(frozen=True)
class CaseSegmentation:
    """A case with its segmentation and region.

    Both are None for a method that segments nothing, and for a case if only its header has been read.
    """

    case: Case
    by: MaskSource
    segmentation: Segmentation | None = None
    region: Region | None = None


def argmax(logits: _Float) -> npt.NDArray[np.uint8]:
    """Return the label with the highest logit at each voxel; of equal logits the lower label wins.

    This is three times as fast as NumPy's argmax. The logits, (label, ...), must not be NaN.
    """
    highest, winner = logits[0], np.zeros(logits.shape[1:], dtype=np.uint8)
    for label, own in enumerate(logits[1:], start=1):
        winner[own > highest] = label
        highest = np.maximum(highest, own)
    return winner


def softmax(logits: _Float) -> _Float:
    """Return probabilities over the first axis."""
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0))


def log_probabilities(probabilities: _Float) -> _Float:
    """Return the logarithms of probabilities; the logarithm of 0 is large and negative, but finite."""
    return np.log(np.maximum(probabilities, _MIN_PROBABILITY))


def expected_dsc(logits: npt.NDArray[np.float32]) -> dict[str, float | None]:
    """Compute the DSC that `logits` (label, z, y, x) predict for each lesion label of their argmax.

    It is twice the expected overlap over the sum of both sizes: 2 sum_A p / (|A| + sum p), where p is the softmax and A
    the voxels of the label. For independent voxels it is close to the expected DSC of A against the truth (soft Dice
    confidence, Borges, Pacheco and Silva 2024, arXiv 2402.10665).

    Returns:
        The expected DSC by the name of the label; None for an absent label.
    """
    size, inside, everywhere = np.zeros((3, len(labels.NAMES)))
    for z in range(logits.shape[1]):  # probabilities of the whole grid would need the most memory of the whole case
        probability, mask = softmax(logits[:, z]), argmax(logits[:, z])
        size += np.bincount(mask.ravel(), minlength=size.size)
        everywhere += probability.sum((1, 2), dtype=np.float64)
        for label in labels.FOREGROUND:
            inside[label] += probability[label][mask == label].sum(dtype=np.float64)
    return {
        labels.NAMES[label]: float(2 * inside[label] / (size[label] + everywhere[label])) if size[label] else None
        for label in labels.FOREGROUND
    }


def write_probabilities(paths: Sequence[Path], segmentation: Segmentation, ct: Geometry) -> None:
    """Write the probabilities of GTVp and GTVn in percent, uint8 on the CT's grid, to one path for each.

    Raises:
        OutputError: A file cannot be written.
    """
    for path, percent in zip(paths, compute_percent(segmentation, ct), strict=True):
        write_volume(path, Volume(percent, ct))


def compute_percent(segmentation: Segmentation, ct: Geometry) -> npt.NDArray[np.uint8]:
    """Compute the probabilities of GTVp and GTVn in percent, (label, z, y, x) on the CT's grid.

    The logits are interpolated linearly and then become probabilities, so that the mask is where a label's probability
    is the highest. Outside the segmented region the probabilities are 0.
    """
    percent = np.zeros((len(labels.FOREGROUND), *ct.array_shape), np.uint8)
    corners = segmentation.grid.corners_mm()
    part = grids.crop_to_box(ct, corners.min(0), corners.max(0))
    logits = np.stack(
        [
            grids.resample(
                Volume(of_label, segmentation.grid), part, grids.OUTSIDE_LOGIT if label else -grids.OUTSIDE_LOGIT
            )
            for label, of_label in enumerate(segmentation.logits)
        ]
    )
    # In place, since for thin slices the region takes hundreds of megabytes for each label.
    logits -= logits.max(0)
    np.exp(logits, out=logits)
    logits *= 100 / logits.sum(0)
    z, y, x = grids.find_first_voxel(part, ct)
    percent[(slice(None), *grids.make_slices((x, y, z), part.size))] = np.rint(logits[1:])
    return percent


def segment_by_contours(
    case: Case, contours: Volume, region: Region, spacing_mm: tuple[float, float, float]
) -> Segmentation:
    """Make a segmentation from contours, on a grid of `spacing_mm` (x, y, z) that covers the region and all contours.

    The training measures the features of reference masks on such a grid.
    """
    low, high = np.asarray(region.lower_mm), np.asarray(region.upper_mm)
    if (marked := np.argwhere(contours.array > 0)[:, ::-1]).size:
        first, last = marked.min(0), marked.max(0)
        size = (last - first + 1).tolist()
        corners = contours.geometry.crop(tuple(first.tolist()), (size[0], size[1], size[2])).corners_mm()
        low, high = np.minimum(low, corners.min(0)), np.maximum(high, corners.max(0))
    grid = make_upright_grid(case.scan.geometry, grids.to_triple(low), grids.to_triple(high), spacing_mm)
    ct = grids.resample(case.scan, grid, PADDING_HU)
    pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
    return Segmentation.from_mask(grids.resample_mask(contours, grid), ct, pet, grid)


def find_fallback(case: Case) -> MaskSource:
    """Return the source of the mask that `segment_by_threshold` makes for a case."""
    if case.has_pet_threshold:
        return MaskSource.PET_THRESHOLD
    return MaskSource.EMPTY_MASK if case.earlier is None else MaskSource.EARLIER_MASK


def segment_by_threshold(case: Case, region: Region) -> Segmentation:
    """Segment all voxels above 41% of the neck's SUVmax; the largest 26-connected component is GTVp, others are GTVn.

    The neck lies between brain and lung apices, if they are visible. Components below 0.3 ml, the brain, and components
    whose highest uptake lies in the chest are left out. Without a usable PET the mask is empty. For MR the mask is the
    mask of the earlier visit on the scan's grid, or empty without such a mask.
    """
    if not case.has_pet_threshold:
        empty = np.zeros(case.scan.geometry.array_shape, np.uint8)
        mask = empty if case.earlier is None else grids.resample_mask(case.earlier, case.scan.geometry)
        return Segmentation.from_mask(mask, case.scan.array, None, case.scan.geometry)
    grid = grids.make_grid_over(region.lower_mm, region.upper_mm, SPACING_MM)
    ct = grids.resample(case.scan, grid, PADDING_HU)
    pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
    if pet is None or region.is_empty:
        return Segmentation.from_mask(np.zeros(grid.array_shape, np.uint8), ct, pet, grid)
    uptake = np.where(_find_voxels_outside_brain(pet, region, grid), pet, np.float32(0))
    hot = _find_hot_voxels_of_neck(uptake, region, grid)
    return Segmentation.from_mask(label_largest_as_primary(hot, grid.voxel_volume_mm3), ct, pet, grid)


def _heights_mm(grid: Geometry) -> npt.NDArray[np.float64]:
    return np.asarray(grid.origin_mm[2] + np.arange(grid.array_shape[0]) * grid.spacing_mm[2])


def _find_voxels_outside_brain(pet: _Float, region: Region, grid: Geometry) -> _Mask:
    """Find the voxels of `grid` that do not belong to the brain, its margin, or the face above its lower end."""
    brain = _find_cut_brain(pet, grid) if region.brain is None else grids.resample(region.brain, grid, 0.0) > 0.5
    outside = ~ndimage.binary_dilation(brain, iterations=round(BRAIN_MARGIN_MM / grid.spacing_mm[0]))
    if region.brain_lower_mm is not None:
        outside[_heights_mm(grid) > region.brain_lower_mm + FACE_ABOVE_BRAIN_END_MM] = False
    return np.asarray(outside)


def _find_cut_brain(pet: _Float, grid: Geometry) -> _Mask:
    """Find large hot components at the upper end of a region without a visible brain; the scan cuts the brain there."""
    parts, _ = ndimage.label(pet >= SUV_MAX_FRACTION * max(float(pet.max()), 1e-6), structure=ANY_CORNER)
    cut = np.bincount(parts.ravel()) * grid.voxel_volume_mm3 / 1000 >= MIN_CUT_BRAIN_ML
    at_top = np.zeros_like(cut)
    at_top[parts[-TOP_SLICES:]] = True
    at_top[0] = False
    return np.asarray((cut & at_top)[parts])


def _find_hot_voxels_of_neck(pet: _Float, region: Region, grid: Geometry) -> _Mask:
    """Find the voxels above 41% of the neck's SUVmax, without components whose highest uptake lies in the chest."""
    z_mm = _heights_mm(grid)
    neck = np.ones_like(z_mm, dtype=np.bool_) if region.apex_mm is None else z_mm >= region.apex_mm
    if not pet[neck].any():
        neck[:] = True
    hot = pet >= SUV_MAX_FRACTION * max(float(pet[neck].max()), 1e-6)
    if region.apex_mm is None:
        return np.asarray(hot)
    parts, count = ndimage.label(hot, structure=ANY_CORNER)
    above_chest = np.where((z_mm >= region.apex_mm - NECK_BELOW_APEX_MM)[:, None, None], pet, np.float32(0))
    numbers = np.arange(1, count + 1)
    in_neck = ndimage.maximum(above_chest, parts, numbers) >= ndimage.maximum(pet, parts, numbers)
    return np.asarray(np.append(False, in_neck)[parts])


def label_largest_as_primary(hot: npt.NDArray[np.bool_], voxel_volume_mm3: float) -> npt.NDArray[np.uint8]:
    """Label the 26-connected components of `hot`: the largest is 1 (GTVp), others 2 (GTVn); below 0.3 ml they are 0."""
    parts, _ = ndimage.label(hot, structure=ANY_CORNER)
    sizes = np.bincount(parts.ravel())
    is_speck = is_below(sizes * voxel_volume_mm3 / 1000, MIN_LESION_ML)
    lookup = np.where(is_speck, labels.BACKGROUND, labels.GTVN).astype(np.uint8)
    lookup[0] = labels.BACKGROUND
    if lookup.any():
        lookup[int(sizes[1:].argmax()) + 1] = labels.GTVP
    return np.asarray(lookup[parts], dtype=np.uint8)
