"""A tilted gantry: slices shifted against each other, resampled onto a regular grid."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract.errors import Finding
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from convert.dicom.headers import tag_name
from convert.dicom.slices import SliceStack

_SMALLEST_TILT_DEGREES: Final = 0.1


def tilt_findings(*stacks: SliceStack) -> list[Finding]:
    """A warning for each series with a tilted gantry, by the positions of its slices or by the tag."""
    return [finding for stack in stacks if (finding := _finding(stack)) is not None]


def untilted(volume: Volume, tilt: tuple[float, float], fill: float) -> Volume:
    """Resample slices that are shifted along a tilted table onto a grid that holds all of them.

    Slices keep their planes: pixels are interpolated within a slice only, by less than one pixel. `fill` is the value
    outside the scan.
    """
    if tilt == (0.0, 0.0):
        return volume
    grid = volume.geometry
    height_mm = (grid.size[2] - 1) * grid.spacing_mm[2]
    size, start = list(grid.size), [0, 0, 0]
    for axis, slope in enumerate(tilt):
        pixels = math.ceil(abs(slope) * height_mm / grid.spacing_mm[axis] - 1e-6)
        size[axis] += pixels
        start[axis] = -pixels if slope < 0 else 0
    target = grid.cropped((start[0], start[1], start[2]), (size[0], size[1], size[2]))
    resampler = sitk.ResampleImageFilter()
    resampler.SetSize(target.size)
    resampler.SetOutputSpacing(target.spacing_mm)
    resampler.SetOutputOrigin(target.origin_mm)
    resampler.SetOutputDirection(target.direction)
    resampler.SetTransform(_shear(grid, tilt))
    resampler.SetInterpolator(sitk.sitkLinear)
    resampler.SetDefaultPixelValue(fill)
    # ITK truncates integers instead of rounding.
    image = to_sitk(Volume(volume.array.astype(np.float32), grid))
    array: npt.NDArray[Any] = sitk.GetArrayFromImage(resampler.Execute(image))
    integer = np.issubdtype(volume.array.dtype, np.integer)
    return Volume((np.rint(array) if integer else array).astype(volume.array.dtype), target)


def _shear(grid: Geometry, tilt: tuple[float, float]) -> sitk.AffineTransform:
    """From a point in the patient to the place of its pixel in the grid without the shift."""
    axes = np.asarray(grid.direction).reshape(3, 3)
    shift = axes[:, 0] * tilt[0] + axes[:, 1] * tilt[1]
    matrix = np.eye(3) - np.outer(shift, axes[:, 2])
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(matrix.ravel().tolist())
    transform.SetCenter(grid.origin_mm)
    return transform


def _finding(stack: SliceStack) -> Finding | None:
    header = stack.headers[0]
    if stack.tilt != (0.0, 0.0):
        found = f"slices shifted as by a gantry tilt of {stack.tilt_degrees:.3g} degrees"
        return Finding(header.name, found, action="resampled within the slices onto a regular grid")
    degrees = header.optional_number("GantryDetectorTilt") or 0.0
    is_straight = abs(stack.geometry.direction[8]) > math.cos(math.radians(_SMALLEST_TILT_DEGREES))
    if abs(degrees) > _SMALLEST_TILT_DEGREES and is_straight:
        found = f"found {tag_name('GantryDetectorTilt')} {degrees:g}, but the slices lie straight above each other"
        return Finding(header.name, found, action="their positions are used")
    return None
