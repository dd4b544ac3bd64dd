"""Pixels of a series as volumes in HU and SUV."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from tqdm import tqdm

from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import MAX_VOXELS, Volume, to_sitk
from convert.dicom.files import read_pixels
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.slices import SliceStack
from convert.dicom.suv import SuvScale

AIR_HU: Final = -1024
# Padding is air or less; a padding value of soft tissue is a fault of the file.
_HIGHEST_PADDING_HU: Final = -900
_SMALLEST_TILT_DEGREES: Final = 0.1


@dataclass(frozen=True)
class SeriesVolume:
    """A volume and the UID of its series."""

    volume: Volume
    uid: str


def read_ct(stack: SliceStack) -> tuple[Volume, tuple[Finding, ...]]:
    """CT in HU, int16, on a regular grid. Padding (0028,0120) becomes air, -1024 HU.

    Raises:
        InputError: pixels that cannot be read, or no rescale slope and intercept.
    """
    array = np.empty(_shape(stack), dtype=np.int16)
    limits = np.iinfo(np.int16)
    findings: list[Finding] = []
    for index, header in enumerate(tqdm(stack.headers, desc="read CT", unit="slice", disable=None, leave=False)):
        stored, slope, intercept = _stored(header, stack)
        hu = stored * slope + intercept
        padding = _padding(header, stored.dtype)
        if padding is not None and max(padding) * slope + intercept <= _HIGHEST_PADDING_HU:
            hu[(stored >= padding[0]) & (stored <= padding[1])] = AIR_HU
        elif padding is not None and not findings:
            found = f"{tag_name('PixelPaddingValue')} {padding[1]} is {max(padding) * slope + intercept:g} HU"
            findings.append(Finding(header.name, found, "air", "not taken as padding"))
        array[index] = np.rint(np.clip(hu, limits.min, limits.max))
    return untilted(Volume(array, stack.geometry), stack.tilt, AIR_HU), tuple(findings)


def read_pet(stack: SliceStack, scale: SuvScale) -> Volume:
    """PET in SUV, float32, on a regular grid; `scale` has one factor a slice, in the order of `stack`.

    Raises:
        InputError: pixels that cannot be read, or no rescale slope and intercept.
    """
    array = np.empty(_shape(stack), dtype=np.float32)
    headers = tqdm(stack.headers, desc="read PET", unit="slice", disable=None, leave=False)
    for index, (header, factor) in enumerate(zip(headers, scale.factors, strict=True)):
        stored, slope, intercept = _stored(header, stack)
        array[index] = (stored * slope + intercept) * factor
    return untilted(Volume(array, stack.geometry), stack.tilt, 0.0)


def _shape(stack: SliceStack) -> tuple[int, int, int]:
    if stack.geometry.voxel_count > MAX_VOXELS:
        found = f"a series of {stack.geometry.voxel_count} voxels"
        raise InputError(stack.headers[0].name, found, f"at most {MAX_VOXELS}")
    return stack.geometry.array_shape


def _stored(header: DicomHeader, stack: SliceStack) -> tuple[npt.NDArray[Any], float, float]:
    """Stored values of a slice, rescale slope and rescale intercept."""
    slope = header.number("RescaleSlope", "the slope from stored values to HU or activity")
    if slope <= 0:
        raise InputError(header.name, f"found {tag_name('RescaleSlope')} {slope:g}", "a number above 0")
    intercept = header.number("RescaleIntercept", "the intercept from stored values to HU or activity")
    stored = read_pixels(header)
    if stored.shape != stack.geometry.array_shape[1:]:
        shape = " x ".join(map(str, stored.shape))
        raise InputError(header.name, f"found pixels of shape {shape}", "one frame of rows x columns")
    return stored, slope, intercept


def _padding(header: DicomHeader, dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Lowest and highest stored value of padding, None if not declared."""
    value = header.optional_number("PixelPaddingValue")
    if value is None:
        return None
    limit = header.optional_number("PixelPaddingRangeLimit")
    ends = [_wrapped(int(end), dtype) for end in (value, value if limit is None else limit)]
    return min(ends), max(ends)


def _wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """The value in the pixels' type: some files write -2000 as 63536."""
    bits = dtype.itemsize * 8
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >= 1 << (bits - 1) else value


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
