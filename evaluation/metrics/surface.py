"""Distances between the surfaces of two masks: HD95, average surface distance, surface DSC at a tolerance.

By default the surface of a mask is the set of its voxels with a face on the background, distances are between voxel
centres, and every surface voxel has the same weight. With `surface_weights: area` the surface runs between the voxel
centres, and each of its pieces weighs its area (`evaluation.metrics.areas`). The outside of the image is background.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from evaluation.editions.rules import MaskRules
from evaluation.metrics.areas import N_CODES, Spacing, cell_areas, cell_codes
from evaluation.metrics.overlap import Booleans, Floats, foreground_box

MEASURED: Final = "measured"
BOTH_EMPTY: Final = "both_empty"
ONE_EMPTY: Final = "one_empty"
NO_PREDICTION: Final = "no_prediction"

_PERCENT: Final = 95
# Distances of equal grid steps differ in their last digits by the way of computing them.
_ROUNDING: Final = 1 + 1e-12
# A tree handles surface voxels only, a distance transform the whole box: this many box voxels cost as much as one.
_BOX_VOXELS_WORTH_ONE_SURFACE_VOXEL: Final = 4


@dataclass(frozen=True)
class SurfaceRow:
    """Surface distances of one label in one case.

    `state` is one of the constants above. With both masks empty the figures are None and the case does not count;
    with one mask empty, or no prediction, the distances are infinite and the surface DSC is 0.
    """

    state: str
    hd95_mm: float | None
    asd_mm: float | None
    surface_dsc: float | None

    def as_json(self, prefix: str) -> dict[str, Any]:
        """The row for metrics.json, with null for an infinite distance; `state` separates it from an excluded case."""
        figures = {"hd95_mm": self.hd95_mm, "asd_mm": self.asd_mm, "surface_dsc": self.surface_dsc}
        plain = {
            f"{prefix}_{name}": value if value is not None and np.isfinite(value) else None
            for name, value in figures.items()
        }
        return {f"{prefix}_surface": self.state, **plain}


WITHOUT_PREDICTION: Final = SurfaceRow(NO_PREDICTION, np.inf, np.inf, 0.0)


def compare_surfaces(reference: Booleans, predicted: Booleans, spacing_mm: Spacing, rules: MaskRules) -> SurfaceRow:
    """Compare the surfaces of two masks of one shape, (z, y, x); so are the distances of voxel centres.

    The average surface distance is the mean over the voxels (or the area) of both surfaces. The surface DSC is the
    fraction of both surfaces that lies within the tolerance (bound included) of the other one.
    Source: Nikolov et al. 2021 (surface DSC, areas); the HECKTOR 2021 overview (HD95).
    """
    if not (reference.any() and predicted.any()):
        return _with_an_empty_mask(reference, predicted, rules)
    box = foreground_box(reference.view(np.uint8), predicted.view(np.uint8))
    if rules.surface_weights == "area":
        return _compare_by_area(reference[box], predicted[box], spacing_mm, rules)
    surfaces = surface_voxels(reference[box]), surface_voxels(predicted[box])
    distances = surface_distances(*surfaces, spacing_mm)
    pooled = np.concatenate(distances)
    if rules.hd95 == "pooled":
        hd95 = float(np.percentile(pooled, _PERCENT))
    else:
        # The code of 2021 hands the spacing over as (x, y, z).
        of_2021 = rules.hd95 == "hecktor2021_code"
        directed = surface_distances(*surfaces, spacing_mm[::-1]) if of_2021 else distances
        hd95 = float(max(np.percentile(one_way, _PERCENT) for one_way in directed))
    within = pooled <= rules.surface_tolerance_mm * _ROUNDING
    return SurfaceRow(MEASURED, hd95, float(pooled.mean()), float(within.mean()))


def _compare_by_area(reference: Booleans, predicted: Booleans, spacing_mm: Spacing, rules: MaskRules) -> SurfaceRow:
    """Distances between the cells that hold a piece of surface, each weighted by the area of its piece."""
    codes = cell_codes(reference), cell_codes(predicted)
    surfaces = [(code > 0) & (code < N_CODES - 1) for code in codes]
    distances = surface_distances(surfaces[0], surfaces[1], spacing_mm)
    areas = [cell_areas(spacing_mm)[code[surface]] for code, surface in zip(codes, surfaces, strict=True)]
    pooled, area = np.concatenate(distances), np.concatenate(areas)
    if rules.hd95 == "pooled":
        hd95 = _percentile_by_area(pooled, area)
    else:
        hd95 = max(map(_percentile_by_area, distances, areas))
    within = pooled <= rules.surface_tolerance_mm * _ROUNDING
    return SurfaceRow(MEASURED, hd95, float(pooled @ area / area.sum()), float(area[within].sum() / area.sum()))


def _percentile_by_area(distances: Floats, areas: Floats) -> float:
    """The smallest distance up to which 95% of the area lies."""
    order = np.lexsort((areas, distances))
    share = np.cumsum(areas[order]) / areas.sum()
    return float(distances[order][min(int(np.searchsorted(share, _PERCENT / 100)), order.size - 1)])


def _with_an_empty_mask(reference: Booleans, predicted: Booleans, rules: MaskRules) -> SurfaceRow:
    both = not (reference.any() or predicted.any())
    if rules.hd95 == "hecktor2021_code" and not predicted.any():
        return SurfaceRow(BOTH_EMPTY if both else ONE_EMPTY, 0.0, None if both else np.inf, None if both else 0.0)
    return SurfaceRow(BOTH_EMPTY, None, None, None) if both else SurfaceRow(ONE_EMPTY, np.inf, np.inf, 0.0)


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
    far: Floats = ndimage.distance_transform_edt(~others, sampling=spacing_mm)
    return far[these]


def _by_tree(first: Booleans, second: Booleans, spacing_mm: Spacing) -> tuple[Floats, Floats]:
    # Grid points lie in equal planes, on which balancing a tree wastes time.
    mine, theirs = (np.argwhere(mask) * np.asarray(spacing_mm) for mask in (first, second))
    return _to_nearest(mine, theirs, second[first]), _to_nearest(theirs, mine, first[second])


def _to_nearest(points: Floats, others: Floats, on_both: Booleans) -> Floats:
    distances = np.zeros(len(points))
    tree = cKDTree(others, balanced_tree=False, compact_nodes=False)
    distances[~on_both] = tree.query(points[~on_both])[0]
    return distances
