"""The lesions of a mask: volume, SUVmax, a point inside, and which of two masks' lesions match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.images.geometry import Geometry
from evaluation.metrics.lesions import MatchedLesions, label_components, match_lesions
from evaluation.metrics.overlap import MM3_PER_ML, Floats, Integers, foreground_box
from evaluation.metrics.rules import MaskRules
from reporting.viewer.region import to_index, to_mm

# Values of the PET at LPS points of shape (n, 3).
Uptake = Callable[[Floats], Floats]


@dataclass(frozen=True)
class ListedLesion:
    """A connected component of one label; `point_mm` is its centroid, or its voxel next to that, in LPS mm."""

    label: int
    number: int
    volume_ml: float
    suv_max: float | None
    point_mm: Floats


@dataclass(frozen=True)
class LesionVoxels:
    """The labelled voxels of a mask, in the order of the array, with the lesion that each belongs to.

    `geometry` is the whole mask's grid, `index` the (x, y, z) of each voxel. A lesion is a component of one label;
    `numbers` count from 1, and `sizes`, the voxels of each lesion by number, are 0 at number 0.
    """

    geometry: Geometry
    index: npt.NDArray[np.int32]
    labels: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.int32]
    sizes: Integers

    @property
    def points_mm(self) -> Floats:
        """LPS position of each voxel's centre."""
        return to_mm(self.geometry, self.index)

    def places(self) -> npt.NDArray[np.int64]:
        """The place of each voxel in the flat array, rising."""
        return np.asarray(np.ravel_multi_index(tuple(self.index.T[::-1]), self.geometry.array_shape))


def lesion_voxels(mask: npt.NDArray[Any], geometry: Geometry, connectivity: int) -> LesionVoxels:
    """The lesions of a label mask, (z, y, x): the components of each label."""
    region = foreground_box(mask)
    inside = mask[region]
    voxels = np.nonzero(inside)
    of_voxel = inside[voxels].astype(np.uint8)
    numbers = np.zeros(len(of_voxel), dtype=np.int32)
    total = 0
    for label in labels.FOREGROUND:
        components, count = label_components(inside == label, connectivity)
        components = components[voxels]
        numbers += np.where(components > 0, components + np.int32(total), 0)
        total += count
    index = [places + part.start for places, part in zip(voxels, region, strict=True)][::-1]
    sizes = np.bincount(numbers, minlength=total + 1)
    return LesionVoxels(geometry, np.stack(index, axis=-1).astype(np.int32), of_voxel, numbers, sizes)


def lesions_of(mask: LesionVoxels, uptake: Uptake | None) -> list[ListedLesion]:
    """The lesions of a mask, the largest first; without `uptake` (None) their SUVmax is None."""
    points, number = mask.points_mm, mask.numbers
    sums = np.stack([np.bincount(number, points[:, axis], mask.sizes.size) for axis in range(3)], axis=-1)
    centroids = sums / np.maximum(mask.sizes, 1)[:, None]
    # Ordered by lesion, and within a lesion by the distance to its centroid.
    order = np.lexsort((((points - centroids[number]) ** 2).sum(axis=1), number))
    nearest = order[np.searchsorted(number[order], np.arange(1, mask.sizes.size))]
    peaks = np.full(mask.sizes.size, -np.inf)
    if uptake is not None:
        np.maximum.at(peaks, number, uptake(points))
    lesions = [
        ListedLesion(
            label=int(mask.labels[voxel]),
            number=int(number[voxel]),
            volume_ml=float(mask.sizes[number[voxel]] * mask.geometry.voxel_volume_mm3 / MM3_PER_ML),
            suv_max=None if uptake is None else float(peaks[number[voxel]]),
            point_mm=_point_inside(mask.geometry, centroids[number[voxel]], points[voxel]),
        )
        for voxel in nearest
    ]
    return sorted(lesions, key=lambda one: -one.volume_ml)


def _point_inside(geometry: Geometry, centroid: Floats, nearest: Floats) -> Floats:
    """The centroid if it lies in the lesion's nearest voxel, else the centre of that voxel."""
    apart = np.abs(to_index(geometry, centroid) - to_index(geometry, nearest))
    return centroid if (apart <= 0.5 + 1e-9).all() else nearest


def match(reference: LesionVoxels, predicted: LesionVoxels, rules: MaskRules) -> MatchedLesions:
    """Numbers of the detected reference lesions and of the true predicted ones, by the edition's rules.

    Both masks have one grid. The rules are those of GTVn lesions, used here for GTVp as well.
    """
    _, in_reference, in_predicted = np.intersect1d(
        reference.places(), predicted.places(), assume_unique=True, return_indices=True
    )
    same = reference.labels[in_reference] == predicted.labels[in_predicted]
    numbers = reference.numbers[in_reference[same]], predicted.numbers[in_predicted[same]]
    return match_lesions(*numbers, reference.sizes, predicted.sizes, rules)
