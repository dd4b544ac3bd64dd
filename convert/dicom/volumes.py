"""Pixels of a series as volumes in HU and SUV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from contract.errors import Finding, InputError
from contract.images.volumes import MAX_VOXELS, Volume
from convert.dicom.files import read_pixels
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.slices import SliceStack
from convert.dicom.suv import SuvScale
from convert.dicom.tilt import untilted

AIR_HU: Final = -1024
# Padding is air or less; a padding value of soft tissue is a fault of the file.
_HIGHEST_PADDING_HU: Final = -900


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
