"""Distances between the surfaces of two masks: HD95, average surface distance, surface DSC at a tolerance.

The surface of a mask is the set of its voxels with a face on the background, distances are between voxel centres, and
every surface voxel has the same weight. Everything outside the image is background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from contract.images.geometry import is_within
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric, find_foreground_box, mean_metric, median_metric
from evaluation.metrics.rules import MaskRules

Spacing: TypeAlias = tuple[float, float, float]

State: TypeAlias = Literal["measured", "both_empty", "one_empty", "no_prediction"]
MEASURED: Final[State] = "measured"
BOTH_EMPTY: Final[State] = "both_empty"
ONE_EMPTY: Final[State] = "one_empty"
NO_PREDICTION: Final[State] = "no_prediction"
# States in which the distances are infinite.
LOST: Final = (ONE_EMPTY, NO_PREDICTION)

_PERCENT: Final = 95
# A search tree handles only surface voxels, a distance transform the whole box. The transform is faster if the box has
# fewer voxels than this for each surface voxel.
_MAX_BOX_VOXELS_PER_SURFACE_VOXEL: Final = 4


@dataclass(frozen=True)
class SurfaceValues:
    """Values of one label's surfaces in one case, by the key of each `SurfaceMetric`.

    `state` is one of the constants above. If both masks are empty, the values are None and the case does not count. If
    one mask is empty, or there is no prediction, the values are the worst possible: infinite distances and a surface
    DSC of 0.
    """

    state: State
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Surfaces:
    """Distances in mm from each voxel of the reference's surface to the predicted surface, and vice versa."""

    distances: tuple[Floats, Floats]

    def mean(self) -> float:
        """Return the mean distance over the voxels of both surfaces."""
        return float(np.concatenate(self.distances).mean())

    def fraction_within(self, tolerance_mm: float) -> float:
        """Return the fraction of both surfaces that lies within a distance of the other surface.

        The bound is included, up to the precision of the spacing in the header.
        """
        return float(np.mean(is_within(np.concatenate(self.distances), tolerance_mm)))

    def hd95(self) -> float:
        """Return the larger of the 95th percentiles of the two directions."""
        return max(float(np.percentile(distances, _PERCENT)) for distances in self.distances)


@dataclass(frozen=True)
class SurfaceMetric:
    """Declaration of a value of the surfaces of one label in one case, and of its metric over cases.

    Attributes:
        key: Name of the value in the rows of metrics.json.
        name: Name of the metric after the label.
        title: Title of the metric after the label.
        measure: Computes the value of a case.
        over_cases: Makes the metric from the values of all cases: `median_metric` or `mean_metric`.
        unit: `mm` for a distance, which is best at 0; empty for a fraction, which is best at 1.
        rules: Names of the rules that change the meaning of the value.
    """

    key: str
    name: str
    title: str
    measure: Callable[[Surfaces, MaskRules], float]
    over_cases: Callable[[Floats], WeightedMetric]
    unit: str = ""
    rules: tuple[str, ...] = ()

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, np.inf) if self.unit else (0.0, 1.0)

    @property
    def best(self) -> float:
        return 0.0 if self.unit else 1.0

    @property
    def worst(self) -> float:
        """The value if one mask is empty or there is no prediction."""
        return np.inf if self.unit else 0.0


SURFACE_METRICS: tuple[SurfaceMetric, ...] = (
    SurfaceMetric(
        "hd95_mm",
        "hd95_median_mm",
        "median HD95 (mm)",
        lambda surfaces, _: surfaces.hd95(),
        median_metric,
        "mm",
    ),
    SurfaceMetric(
        "asd_mm",
        "asd_median_mm",
        "median surface distance (mm)",
        lambda surfaces, _: surfaces.mean(),
        median_metric,
        "mm",
    ),
    SurfaceMetric(
        "surface_dsc",
        "surface_dsc_mean",
        "mean surface DSC",
        lambda surfaces, rules: surfaces.fraction_within(rules.surface_tolerance_mm),
        mean_metric,
        rules=("surface_tolerance_mm",),
    ),
)


def make_missing_values() -> SurfaceValues:
    """Make the values of a case that has no usable prediction."""
    return SurfaceValues(NO_PREDICTION, {metric.key: metric.worst for metric in SURFACE_METRICS})


def compare_surfaces(reference: Booleans, predicted: Booleans, spacing_mm: Spacing, rules: MaskRules) -> SurfaceValues:
    """Compare the surfaces of two masks of the same shape; shape and spacing are (z, y, x).

    The average surface distance is the mean over the voxels of both surfaces. The surface DSC is the fraction of both
    surfaces that lies within the tolerance (bound included) of the other surface.
    Source: Nikolov et al. 2021 (surface DSC); the HECKTOR 2021 overview (HD95).
    """
    if not (reference.any() and predicted.any()):
        return make_values_of_empty_masks(has_reference=bool(reference.any()), has_prediction=bool(predicted.any()))
    box = find_foreground_box(reference.view(np.uint8), predicted.view(np.uint8))
    distances = compute_surface_distances(
        find_surface_voxels(reference[box]), find_surface_voxels(predicted[box]), spacing_mm
    )
    surfaces = Surfaces(distances)
    return SurfaceValues(MEASURED, {metric.key: metric.measure(surfaces, rules) for metric in SURFACE_METRICS})


def make_values_of_empty_masks(*, has_reference: bool, has_prediction: bool) -> SurfaceValues:
    """Make the values of a case in which at least one of the two masks is empty."""
    if has_reference or has_prediction:
        return SurfaceValues(ONE_EMPTY, {metric.key: metric.worst for metric in SURFACE_METRICS})
    return SurfaceValues(BOTH_EMPTY, {metric.key: None for metric in SURFACE_METRICS})


def find_surface_voxels(mask: Booleans) -> Booleans:
    """Find the voxels of a (z, y, x) mask that have a face on the background or on the border of the array."""
    inner = mask.copy()
    for axis in range(mask.ndim):
        along, eroded = np.moveaxis(mask, axis, 0), np.moveaxis(inner, axis, 0)
        eroded[1:] &= along[:-1]
        eroded[:-1] &= along[1:]
        eroded[0] = False
        eroded[-1] = False
    outer: Booleans = mask & ~inner
    return outer


def compute_surface_distances(first: Booleans, second: Booleans, spacing_mm: Spacing) -> tuple[Floats, Floats]:
    """Compute the distance in mm of each voxel of one surface to the other surface, in both directions.

    Args:
        first: Mask of the voxels of the first surface, (z, y, x), not empty.
        second: Mask of the voxels of the second surface, not empty.
        spacing_mm: Distances of neighbouring voxel centres, (z, y, x).
    """
    count = np.count_nonzero(first) + np.count_nonzero(second)
    if count * _MAX_BOX_VOXELS_PER_SURFACE_VOXEL >= first.size:
        return _measure_by_transform(first, second, spacing_mm), _measure_by_transform(second, first, spacing_mm)
    first_mm, second_mm = (np.argwhere(mask) * np.asarray(spacing_mm) for mask in (first, second))
    return (
        _measure_by_tree(first_mm, second_mm, is_common=second[first]),
        _measure_by_tree(second_mm, first_mm, is_common=first[second]),
    )


def _measure_by_transform(surface: Booleans, target: Booleans, spacing_mm: Spacing) -> Floats:
    from scipy import ndimage

    # The package edt is 5 times faster, but its single precision changes the last digits, and with them which distances
    # are within the tolerance.
    distances: Floats = ndimage.distance_transform_edt(~target, sampling=spacing_mm)
    return distances[surface]


def _measure_by_tree(points: Floats, targets: Floats, *, is_common: Booleans) -> Floats:
    from scipy.spatial import cKDTree

    distances = np.zeros(len(points))
    # Many grid points share a coordinate, so balancing the tree would only cost time.
    tree = cKDTree(targets, balanced_tree=False, compact_nodes=False)
    distances[~is_common] = tree.query(points[~is_common])[0]
    return distances
