"""Distances between the surfaces of two masks: HD95, average surface distance, surface DSC at a tolerance.

The surface of a mask is the set of its voxels with a face on the background, distances are between voxel centres, and
every surface voxel has the same weight. The outside of the image is background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from contract.images.geometry import is_within
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric, foreground_box, mean_metric, median_metric
from evaluation.metrics.rules import MaskRules

Spacing: TypeAlias = tuple[float, float, float]

State: TypeAlias = Literal["measured", "both_empty", "one_empty", "no_prediction"]
MEASURED: Final[State] = "measured"
BOTH_EMPTY: Final[State] = "both_empty"
ONE_EMPTY: Final[State] = "one_empty"
NO_PREDICTION: Final[State] = "no_prediction"
# States of a surface whose distances are infinite.
LOST: Final = (ONE_EMPTY, NO_PREDICTION)

_PERCENT: Final = 95
# A tree handles surface voxels only, a distance transform the whole box: this many box voxels cost as much as one.
_BOX_VOXELS_WORTH_ONE_SURFACE_VOXEL: Final = 4


@dataclass(frozen=True)
class SurfaceValues:
    """Values of one label's surfaces in one case, by the key of each `SurfaceMetric`.

    `state` is one of the constants above. With both masks empty the values are None and the case does not count; with
    one mask empty, or no prediction, each value is the worst one: infinite distances and a surface DSC of 0.
    """

    state: State
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Surfaces:
    """Two surfaces: the distances in mm from each voxel of the reference's to the predicted one, and back."""

    distances: tuple[Floats, Floats]

    def mean(self) -> float:
        return float(np.concatenate(self.distances).mean())

    def fraction_within(self, tolerance_mm: float) -> float:
        """Return the fraction of both surfaces within a distance of the other one.

        The bound is included, up to the precision of the spacing in the header.
        """
        return float(np.mean(is_within(np.concatenate(self.distances), tolerance_mm)))

    def hd95(self) -> float:
        """The larger one of both directions' 95th percentiles."""
        return max(float(np.percentile(one, _PERCENT)) for one in self.distances)


@dataclass(frozen=True)
class SurfaceMetric:
    """A value of the surfaces of one label in one case, and the metric that sums it up over cases.

    Attributes:
        key: the value's name in the rows of metrics.json; like `name` and `title` of the metric it follows the label.
        over_cases: `median_metric` or `mean_metric`.
        unit: `mm` for a distance, which is best at 0; empty for a fraction, which is best at 1.
        rules: the rules that change its meaning.
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
        """The value with one mask empty or without a prediction."""
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


def make_missing_row() -> SurfaceValues:
    """The row of a case without a usable prediction."""
    return SurfaceValues(NO_PREDICTION, {metric.key: metric.worst for metric in SURFACE_METRICS})


def compare_surfaces(reference: Booleans, predicted: Booleans, spacing_mm: Spacing, rules: MaskRules) -> SurfaceValues:
    """Compare the surfaces of two masks of the same shape; shape and spacing are (z, y, x).

    The average surface distance is the mean over the voxels of both surfaces. The surface DSC is the
    fraction of both surfaces that lies within the tolerance (bound included) of the other one.
    Source: Nikolov et al. 2021 (surface DSC); the HECKTOR 2021 overview (HD95).
    """
    if not (reference.any() and predicted.any()):
        return make_empty_row(has_reference=bool(reference.any()), has_prediction=bool(predicted.any()))
    box = foreground_box(reference.view(np.uint8), predicted.view(np.uint8))
    distances = surface_distances(surface_voxels(reference[box]), surface_voxels(predicted[box]), spacing_mm)
    surfaces = Surfaces(distances)
    return SurfaceValues(MEASURED, {metric.key: metric.measure(surfaces, rules) for metric in SURFACE_METRICS})


def make_empty_row(*, has_reference: bool, has_prediction: bool) -> SurfaceValues:
    """The row of a case in which one mask, or both, are empty."""
    both = not (has_reference or has_prediction)
    values = {metric.key: None if both else metric.worst for metric in SURFACE_METRICS}
    return SurfaceValues(BOTH_EMPTY if both else ONE_EMPTY, values)


def surface_voxels(mask: Booleans) -> Booleans:
    """The voxels of a (z, y, x) mask that share a face with the background or with the border of the array."""
    inner = mask.copy()
    for axis in range(mask.ndim):
        along, eroded = np.moveaxis(mask, axis, 0), np.moveaxis(inner, axis, 0)
        eroded[1:] &= along[:-1]
        eroded[:-1] &= along[1:]
        eroded[0] = False
        eroded[-1] = False
    outer: Booleans = mask & ~inner
    return outer


def surface_distances(first: Booleans, second: Booleans, spacing_mm: Spacing) -> tuple[Floats, Floats]:
    """The distance in mm of each voxel of one surface to the other surface, both ways; neither is empty.

    Masks of surface voxels and distances of voxel centres are (z, y, x).
    """
    count = np.count_nonzero(first) + np.count_nonzero(second)
    if count * _BOX_VOXELS_WORTH_ONE_SURFACE_VOXEL < first.size:
        return _by_tree(first, second, spacing_mm)
    return _by_transform(first, second, spacing_mm), _by_transform(second, first, spacing_mm)


def _by_transform(these: Booleans, others: Booleans, spacing_mm: Spacing) -> Floats:
    from scipy import ndimage

    # edt is 5 times faster, but its single precision moves the last digits and pieces at the tolerance.
    far: Floats = ndimage.distance_transform_edt(~others, sampling=spacing_mm)
    return far[these]


def _by_tree(first: Booleans, second: Booleans, spacing_mm: Spacing) -> tuple[Floats, Floats]:
    # Grid points lie in equal planes, on which balancing a tree wastes time.
    first_mm, second_mm = (np.argwhere(mask) * np.asarray(spacing_mm) for mask in (first, second))
    return _to_nearest(first_mm, second_mm, second[first]), _to_nearest(second_mm, first_mm, first[second])


def _to_nearest(points: Floats, others: Floats, on_both: Booleans) -> Floats:
    from scipy.spatial import cKDTree

    distances = np.zeros(len(points))
    tree = cKDTree(others, balanced_tree=False, compact_nodes=False)
    distances[~on_both] = tree.query(points[~on_both])[0]
    return distances
