"""Read label masks, bring a prediction onto the reference's grid, and cut both to a bounding box."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_header, read_volume, to_sitk
from evaluation.inputs.grids import Resampling, describe_grids
from evaluation.inputs.submission import catch_file_errors
from evaluation.metrics.overlap import Booleans, Box, Floats, Integers
from evaluation.metrics.rules import EQUAL_SPACING, EXACT

# About twice 512 x 512 x 1000 voxels, the largest CT that an evaluation must handle; checked before pixels are read.
MAX_PREDICTION_VOXELS: Final = 2**29
# ITK raises an error if the volume of a voxel underflows to 0.
MIN_VOXEL_MM3: Final = 1e-100
# A grid whose direction cosines differ from 0 and 1 by at most this much counts as not oblique; the comparison of grids
# has the same tolerance. It shifts the end of a box of 144 mm by 0.15 mm.
_MAX_ALIGNED_COSINE: Final = 1e-3
# Decimals of a voxel index: a corner this close to the border between two voxels lies on the border. Origins of some
# 100 mm in single precision, as NIfTI stores them, move a corner by up to 1e-4 voxels.
_INDEX_DECIMALS: Final = 3


@dataclass(frozen=True)
class BoxRegion:
    """Voxels of a grid inside a bounding box.

    Attributes:
        slices: Axes (z, y, x).
        inside: Marks the voxels of the slices that are in the box; None if all of them are.
    """

    slices: Box
    inside: Booleans | None = None

    @property
    def is_empty(self) -> bool:
        if self.inside is None:
            return any(part.stop <= part.start for part in self.slices)
        return not self.inside.any()

    def cut(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        part = array[self.slices]
        return part if self.inside is None else np.where(self.inside, part, 0)


WHOLE_IMAGE: Final = BoxRegion((slice(None), slice(None), slice(None)))


@dataclass(frozen=True)
class BoundingBox:
    """Two opposite corners in patient space, (x, y, z) in LPS mm; `low_mm` is below `high_mm` along every axis."""

    low_mm: tuple[float, float, float]
    high_mm: tuple[float, float, float]

    def find_region(self, geometry: Geometry) -> BoxRegion:
        """Return the voxels in the box, clipped at the border of the image.

        On a grid whose axes are the patient's axes, in any order and direction, the region has the box's length in
        voxels and starts at the voxel nearest to the box's corner. On an oblique grid it has the voxels whose centre
        is in the box; a centre exactly at `high_mm` is outside.

        Source: the evaluation code of 2021, which crops by nearest-neighbour resampling from the box's corner.
        """
        directions = np.asarray(geometry.direction)
        if np.abs(directions - np.rint(directions)).max() <= _MAX_ALIGNED_COSINE:
            return BoxRegion(self._crop(geometry))
        return self._select_voxels(geometry)

    def _crop(self, geometry: Geometry) -> Box:
        low, high = _compute_index_bounds(np.array([self.low_mm, self.high_mm]), geometry)
        start = np.floor(low + 0.5).astype(int)
        return _make_slices(start, start + np.rint(np.round(high - low, _INDEX_DECIMALS)).astype(int), geometry)

    def _select_voxels(self, geometry: Geometry) -> BoxRegion:
        low, high = _compute_index_bounds(np.array([*product(*zip(self.low_mm, self.high_mm, strict=True))]), geometry)
        slices = _make_slices(np.floor(low).astype(int), np.ceil(high).astype(int) + 1, geometry)
        z, y, x = np.ogrid[slices]
        inside = np.ones(tuple(part.stop - part.start for part in slices), dtype=np.bool_)
        rows = geometry.index_to_physical_matrix()[:3]
        tolerance_mm = 0.5 * 10**-_INDEX_DECIMALS * min(geometry.spacing_mm)
        for along, low_mm, high_mm in zip(rows, self.low_mm, self.high_mm, strict=True):
            centre_mm = along[0] * x + along[1] * y + along[2] * z + along[3]
            inside &= (low_mm - tolerance_mm <= centre_mm) & (centre_mm < high_mm - tolerance_mm)
        return BoxRegion(slices, inside)


def _compute_index_bounds(corners_mm: Floats, geometry: Geometry) -> tuple[Floats, Floats]:
    """Return the lowest and the highest voxel index (x, y, z) of corners in LPS mm, rounded to `_INDEX_DECIMALS`."""
    matrix = geometry.physical_to_index_matrix()
    index = np.round(np.column_stack([corners_mm, np.ones(len(corners_mm))]) @ matrix.T, _INDEX_DECIMALS)
    return index[:, :3].min(axis=0), index[:, :3].max(axis=0)


def _make_slices(start: Integers, stop: Integers, geometry: Geometry) -> Box:
    start, stop = np.clip(start, 0, geometry.size), np.clip(stop, 0, geometry.size)
    x, y, z = (slice(int(first), int(last)) for first, last in zip(start, stop, strict=True))
    return (z, y, x)


def read_labels(path: Path, error: type[HecktorError]) -> Volume:
    """Read a label mask; a floating-point pixel type is accepted if every value is a label."""
    return _convert_labels(read_volume(path, error=error), path.name, error)


def _convert_labels(volume: Volume, name: str, error: type[HecktorError]) -> Volume:
    if volume.array.dtype.kind == "f":
        return Volume(_convert_floats(volume.array, name, error), volume.geometry)
    low = 0 if volume.array.dtype.kind == "u" else int(volume.array.min())
    _check_labels(low, int(volume.array.max()), name, error)
    return volume


def _convert_floats(array: npt.NDArray[Any], name: str, error: type[HecktorError]) -> npt.NDArray[np.uint8]:
    """Convert floating-point pixels to labels, plane by plane to save memory."""
    converted = np.empty(array.shape, dtype=np.uint8)
    for z, plane in enumerate(array):
        fractions = plane[~(np.floor(plane) == plane)]
        if fractions.size:
            value = "a value" if _must_hide_values(error) else f"value {float(fractions.flat[0]):.9g}"
            raise error(name, f"{value} is not an integer label", "whole numbers")
        _check_labels(float(plane.min()), float(plane.max()), name, error)
        converted[z] = plane
    return converted


def _check_labels(low: float, high: float, name: str, error: type[HecktorError]) -> None:
    if low < labels.BACKGROUND or high > max(labels.FOREGROUND):
        problem = "other labels" if _must_hide_values(error) else f"labels from {low:g} to {high:g}"
        raise error(name, problem, f"only {', '.join(map(str, labels.NAMES))}")


def _must_hide_values(error: type[HecktorError]) -> bool:
    # Submitters read these messages, so they must not show values of the reference.
    return issubclass(error, GroundTruthError)


@dataclass(frozen=True)
class PredictedMask:
    """Predicted mask on the reference's grid, axes (z, y, x); `resampled` is None if the file has the same grid."""

    array: npt.NDArray[Any]
    resampled: Resampling | None = None


def read_prediction(path: Path, grid: Geometry, geometry_rule: str) -> PredictedMask:
    """Read a predicted mask on the reference's grid.

    Args:
        path: Image.
        grid: The reference's grid.
        geometry_rule: `exact` refuses any other grid. `resample_nearest` resamples by nearest neighbour, with
            background outside the prediction. `resample_equal_spacing` resamples only masks with the reference's
            spacing.

    Raises:
        PredictionError: The mask cannot be read, has other labels, or has a grid that the rule refuses.
    """
    # The grid is compared before any pixel is read, so a header that announces terabytes allocates no memory.
    with catch_file_errors(path.name):
        geometry = read_header(path, error=PredictionError).geometry
    if not geometry.find_differences(grid):
        return PredictedMask(_read_predicted_labels(path).array)
    if geometry_rule == EXACT or (geometry_rule == EQUAL_SPACING and not _has_equal_spacing(geometry, grid)):
        raise PredictionError(path.name, describe_grids(geometry, grid))
    if geometry.voxel_count > MAX_PREDICTION_VOXELS:
        raise PredictionError(path.name, f"{geometry.voxel_count} voxels", f"at most {MAX_PREDICTION_VOXELS}")
    if geometry.voxel_volume_mm3 < MIN_VOXEL_MM3:
        raise PredictionError(path.name, f"spacing {geometry.spacing_mm} mm", "larger voxels")
    return PredictedMask(_resample(_read_predicted_labels(path), grid), Resampling(geometry, grid))


def _has_equal_spacing(mask: Geometry, reference: Geometry) -> bool:
    """Return whether the spacings are equal within the tolerance of the organisers' notebook of 2022."""
    return bool(np.allclose(reference.spacing_mm, mask.spacing_mm, atol=1e-6))


def _read_predicted_labels(path: Path) -> Volume:
    with catch_file_errors(path.name):
        volume = read_volume(path, error=PredictionError)
    return _convert_labels(volume, path.name, PredictionError)


def _resample(mask: Volume, grid: Geometry) -> npt.NDArray[Any]:
    import SimpleITK as sitk

    image = to_sitk(Volume(mask.array.astype(np.uint8, copy=False), mask.geometry))
    frame = (grid.origin_mm, grid.spacing_mm, grid.direction)
    moved = sitk.Resample(image, grid.size, sitk.Transform(), sitk.sitkNearestNeighbor, *frame, labels.BACKGROUND)
    resampled: npt.NDArray[Any] = sitk.GetArrayFromImage(moved)
    return resampled
