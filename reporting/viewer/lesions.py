"""The lesions of a mask: volume, SUVmax, a point inside, and which lesions of two masks match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.images.geometry import Geometry
from evaluation.metrics.lesions import MatchedLesions, label_components, match_lesions
from evaluation.metrics.overlap import MM3_PER_ML, Floats, Integers, find_foreground_box
from evaluation.metrics.rules import MaskRules
from reporting.viewer.region import to_index, to_mm

# Returns the values of the PET at LPS points of shape (n, 3).
SampleUptake = Callable[[Floats], Floats]


@dataclass(frozen=True)
class ListedLesion:
    """A connected component of one label.

    `point_mm` is its centroid in LPS mm or, if the centroid lies outside the lesion, the nearest voxel of the lesion.
    """

    label: int
    number: int
    volume_ml: float
    suv_max: float | None
    point_mm: Floats


@dataclass(frozen=True)
class LesionVoxels:
    """The labelled voxels of a mask in the order of the array, with the lesion of each voxel.

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

    def compute_flat_index(self) -> npt.NDArray[np.int64]:
        """Return the index of each voxel in the flat array, in increasing order."""
        return np.asarray(np.ravel_multi_index(tuple(self.index.T[::-1]), self.geometry.array_shape))


def find_lesions(mask: npt.NDArray[Any], geometry: Geometry, connectivity: int) -> LesionVoxels:
    """Find the lesions of a label mask, (z, y, x): the components of each label."""
    region = find_foreground_box(mask)
    inside = mask[region]
    voxels = np.nonzero(inside)
    label_of_voxel = inside[voxels].astype(np.uint8)
    numbers = np.zeros(len(label_of_voxel), dtype=np.int32)
    total = 0
    for label in labels.FOREGROUND:
        components, count = label_components(inside == label, connectivity)
        components = components[voxels]
        numbers += np.where(components > 0, components + np.int32(total), 0)
        total += count
    index_xyz = [index + part.start for index, part in zip(voxels, region, strict=True)][::-1]
    sizes = np.bincount(numbers, minlength=total + 1)
    return LesionVoxels(geometry, np.stack(index_xyz, axis=-1).astype(np.int32), label_of_voxel, numbers, sizes)


def measure_lesions(mask: LesionVoxels, sample_uptake: SampleUptake | None) -> list[ListedLesion]:
    """Measure the lesions of a mask and return the largest first; without `sample_uptake` their SUVmax is None."""
    points = mask.points_mm
    numbers = mask.numbers
    sums = np.stack([np.bincount(numbers, points[:, axis], mask.sizes.size) for axis in range(3)], axis=-1)
    centroids = sums / np.maximum(mask.sizes, 1)[:, None]
    # Ordered by lesion, and within a lesion by the distance to its centroid.
    order = np.lexsort((((points - centroids[numbers]) ** 2).sum(axis=1), numbers))
    nearest_voxels = order[np.searchsorted(numbers[order], np.arange(1, mask.sizes.size))]
    peaks = np.full(mask.sizes.size, -np.inf)
    if sample_uptake is not None:
        np.maximum.at(peaks, numbers, sample_uptake(points))
    lesions = []
    for voxel in nearest_voxels:
        number = int(numbers[voxel])
        lesions.append(
            ListedLesion(
                label=int(mask.labels[voxel]),
                number=number,
                volume_ml=float(mask.sizes[number] * mask.geometry.voxel_volume_mm3 / MM3_PER_ML),
                suv_max=None if sample_uptake is None else float(peaks[number]),
                point_mm=_choose_point(mask.geometry, centroids[number], points[voxel]),
            )
        )
    return sorted(lesions, key=lambda lesion: -lesion.volume_ml)


def _choose_point(geometry: Geometry, centroid: Floats, nearest: Floats) -> Floats:
    """Return the centroid if it lies in the lesion's nearest voxel, otherwise the centre of this voxel."""
    distance = np.abs(to_index(geometry, centroid) - to_index(geometry, nearest))
    return centroid if (distance <= 0.5 + 1e-9).all() else nearest


def match_masks(reference: LesionVoxels, predicted: LesionVoxels, rules: MaskRules) -> MatchedLesions:
    """Match the lesions of two masks of one grid by the edition's rules.

    The rules are made for GTVn lesions; the viewer uses them for GTVp as well.
    """
    _, in_reference, in_predicted = np.intersect1d(
        reference.compute_flat_index(), predicted.compute_flat_index(), assume_unique=True, return_indices=True
    )
    has_same_label = reference.labels[in_reference] == predicted.labels[in_predicted]
    reference_numbers = reference.numbers[in_reference[has_same_label]]
    predicted_numbers = predicted.numbers[in_predicted[has_same_label]]
    return match_lesions(reference_numbers, predicted_numbers, reference.sizes, predicted.sizes, rules)
