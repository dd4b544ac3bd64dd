"""Read and write images with their geometry.

Headers are checked before pixels are read, so that a false size in a header allocates no memory. SimpleITK takes 0.4 s
to import, so only the functions that read or write an image import it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import HecktorError, InputError, OutputError, make_read_error, make_write_error
from contract.images import metaimage, nifti
from contract.images.geometry import Geometry
from contract.io.files import atomic_path, check_free_space, format_utf8_path, write_bytes
from contract.platform import (
    NAMED_IMAGE_SUFFIXES,
    ONE_FILE_SUFFIXES,
    READABLE_IMAGE_SUFFIXES,
    TIFF_SUFFIXES,
    is_system_name,
)

if TYPE_CHECKING:
    import SimpleITK as sitk

# A CT of 1,000 slices of 1024 x 1024 pixels is accepted.
MAX_VOXELS: Final = 2**30
_NIFTI_SUFFIXES: Final = (".nii.gz", ".nii")
# TIFFs are images by name, so that one in a folder is refused instead of overlooked.
_KNOWN_SUFFIXES: Final = (*READABLE_IMAGE_SUFFIXES, *TIFF_SUFFIXES)
# Chosen by suffix: ITK would reject capitals, and would read another format under a known suffix.
_ITK_READERS: Final = {
    ".mha": "MetaImageIO",
    ".mhd": "MetaImageIO",
    ".nii.gz": "NiftiImageIO",
    ".nii": "NiftiImageIO",
}

# Of ITK's refusal, which begins at cosines of 2e-4.
_NOT_ORTHONORMAL: Final = "orthonormal"
# Channels of a picture; ITK takes the last axis of an array (1, z, y, x) for channels.
_COLOURS: Final = 4
_EXTRA_AXIS: Final = ", without an extra axis: of an array (1, z, y, x) save array[0]"

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Volume:
    """A scalar image: `array` of shape `geometry.array_shape`, (z, y, x).

    Raises:
        ValueError: the array has another shape.
    """

    array: _Array
    geometry: Geometry

    def __post_init__(self) -> None:
        if self.array.shape != self.geometry.array_shape:
            raise ValueError(f"array of shape {self.array.shape} on a grid of {self.geometry.array_shape}")


@dataclass(frozen=True)
class ImageHeader:
    """Header of an image file: geometry and pixel type, such as "16-bit signed integer"."""

    geometry: Geometry
    pixel_type: str

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The pixel type in native byte order."""
        bits, _, kind = self.pixel_type.partition("-bit ")
        return np.dtype(f"{kind[0]}{int(bits) // 8}".replace("s", "i"))


def find_image_suffix(path: Path, suffixes: Sequence[str] = _KNOWN_SUFFIXES) -> str | None:
    """Image suffix of a file name (by default `.mha`, `.tif`, `.tiff` or `.nii.gz`) in lower case, or None."""
    name = path.name.lower()
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def list_images(folder: Path, suffixes: Sequence[str] = _KNOWN_SUFFIXES) -> list[Path]:
    """Images directly in `folder`, sorted by name, without hidden files."""
    visible = (path for path in folder.iterdir() if not is_system_name(path.name))
    return sorted(path for path in visible if find_image_suffix(path, suffixes) is not None)


def find_single_image(folder: Path, *, error: type[HecktorError] = InputError) -> Path:
    """Path of the only image in a socket's folder.

    Raises:
        HecktorError: of class `error`: no such folder, no image or several images.
    """
    expected = f"exactly one image ({', '.join(READABLE_IMAGE_SUFFIXES)})"
    name = "/".join(folder.parts[-2:])
    if not folder.is_dir():
        raise error(name, "no such folder", expected)
    images = list_images(folder)
    if not images:
        others = sorted(path.name for path in folder.iterdir())[:3]
        raise error(name, f"found {', '.join(others) or 'nothing'}", expected)
    if len(images) > 1:
        shown = ", ".join(path.name for path in images[:3])
        raise error(name, f"found {len(images)} images ({shown})", expected)
    return images[0]


def read_header(path: Path, *, error: type[HecktorError] = InputError) -> ImageHeader:
    """Read an image's header and check it: three dimensions, one channel, a valid geometry, at most `MAX_VOXELS`.

    A name with an unknown suffix is taken for a MetaImage.

    Raises:
        HecktorError: of class `error`: no such file, unreadable, or a failed check.
    """
    header = _opened(path, error)
    header.geometry.check(path.name, error)
    if header.geometry.voxel_count > MAX_VOXELS:
        raise error(path.name, f"{header.geometry.voxel_count} voxels", f"at most {MAX_VOXELS}")
    return header


def read_volume(path: Path, dtype: npt.DTypeLike | None = None, *, error: type[HecktorError] = InputError) -> Volume:
    """Read a three-dimensional scalar image.

    Args:
        path: `.mha`, `.nii.gz`, `.nii`, or `.mhd` with its pixels in a file beside it.
        dtype: type of the array; None keeps the type of the file.
        error: class of the exceptions raised.

    Returns:
        The voxels in (z, y, x) order with their geometry; NaN and infinities are kept.

    Raises:
        HecktorError: of class `error`: absent, unreadable, truncated, not 3D, not scalar, invalid geometry, or
            changed while it was read; NaN or infinity for an integer `dtype`.
    """
    stamp = _stamp(path)
    try:
        header = read_header(path, error=error)
        array = _read_voxels(path, header)
    except nifti.ImageFault as fault:
        raise error(path.name, *fault.args) from None
    except OSError as problem:
        raise make_read_error(path.name, problem, error, "a readable file") from None
    if _stamp(path) != stamp:
        raise error(path.name, "changed while it was being read", "an unchanged file")
    if dtype is not None:
        if array.dtype.kind == "f" and np.dtype(dtype).kind in "iu" and (count := _not_finite(array)):
            raise error(path.name, f"{count} voxels are NaN or infinite", "numbers")
        array = array.astype(dtype, copy=False)
    return Volume(array, header.geometry)


def replace_nonfinite(volume: Volume, fill: float) -> tuple[Volume, int]:
    """The volume with `fill` in place of NaN and infinities, and their number."""
    count = _not_finite(volume.array) if volume.array.dtype.kind == "f" else 0
    if not count:
        return volume, 0
    array = np.where(np.isfinite(volume.array), volume.array, np.asarray(fill, volume.array.dtype))
    return Volume(array, volume.geometry), count


def _not_finite(array: _Array) -> int:
    return array.size - int(np.count_nonzero(np.isfinite(array)))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and modification time, which tell whether a file changed; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_voxels(path: Path, header: ImageHeader) -> _Array:
    if _is_nifti(path):
        return nifti.read_voxels(path, header.geometry.array_shape)
    return metaimage.read_voxels(path, header.geometry.array_shape, header.dtype)


def _is_nifti(path: Path) -> bool:
    return find_image_suffix(path, _NIFTI_SUFFIXES) is not None


def to_sitk(volume: Volume) -> sitk.Image:
    """Convert to a SimpleITK image with the same geometry."""
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(volume.array)
    image.SetSpacing(volume.geometry.spacing_mm)
    image.SetOrigin(volume.geometry.origin_mm)
    image.SetDirection(volume.geometry.direction)
    return image


def write_volume(path: Path, volume: Volume, *, compress: bool = True) -> None:
    """Write a volume atomically in the format of the suffix.

    Raises:
        OutputError: unknown suffix, or the file cannot be written.
    """
    if find_image_suffix(path, ONE_FILE_SUFFIXES) is None:
        raise OutputError(path.name, "unknown image suffix", f"{', '.join(ONE_FILE_SUFFIXES)}")
    try:
        with atomic_path(path) as partial:
            _write_completely(partial, volume, compress)
    except RuntimeError as problem:
        if os.strerror(errno.ENOSPC) in str(problem):
            raise make_write_error(path.name, problem) from None
        raise OutputError(path.name, f"cannot be written ({_itk_reason(problem, path)})") from None


def _write_completely(partial: Path, volume: Volume, compress: bool) -> None:
    import SimpleITK as sitk

    sitk.WriteImage(
        to_sitk(volume), format_utf8_path(partial, OutputError), useCompression=compress, compressionLevel=1
    )
    try:
        read_volume(partial)
    except InputError as fault:  # ITK does not report a full disk
        check_free_space(partial.parent)
        raise RuntimeError(fault.found) from None


def convert_to_labels(mask: Volume, name: str) -> Volume:
    """A mask that was read, as uint8; `name` is its file's. Raises `InputError` for a label that is unknown."""
    if others := [value for value in np.unique(mask.array).tolist() if value not in labels.NAMES]:
        raise InputError(name, f"label {others[0]:g}", ", ".join(f"{k} {v}" for k, v in labels.NAMES.items()))
    return Volume(mask.array.astype(np.uint8), mask.geometry)


def write_mask(path: Path, mask: _Array, geometry: Geometry) -> None:
    """Write a label mask (0 background, 1 GTVp, 2 GTVn) as uint8 atomically.

    Args:
        path: output file, `.mha` for the platform.
        mask: integer array of shape `geometry.array_shape`, (z, y, x).
        geometry: grid of the CT.

    Raises:
        OutputError: another shape, another label, or the file cannot be written.
    """
    if find_image_suffix(path) == ".mha":
        write_bytes(path, encode_mask(path.name, mask, geometry))
    else:
        write_volume(path, Volume(_compact(path.name, mask, geometry), geometry))


def encode_mask(name: str, mask: _Array, geometry: Geometry) -> bytes:
    """Content of an `.mha` file with a label mask, as `write_mask` writes it; `name` is for errors (`OutputError`)."""
    return metaimage.pack_mask(_compact(name, mask, geometry), geometry)


def _compact(name: str, mask: _Array, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """The mask as uint8, its shape and labels checked."""
    if mask.shape != geometry.array_shape:
        raise OutputError(name, f"a mask of shape {mask.shape}", f"{geometry.array_shape}")
    compact = mask.astype(np.uint8, copy=False)
    highest = int(compact.max(initial=0))
    if highest > max(labels.FOREGROUND) or (compact is not mask and not np.array_equal(compact, mask)):
        raise OutputError(name, "labels other than 0, 1 and 2", "0, 1 and 2 only")
    return compact


def _opened(path: Path, error: type[HecktorError]) -> ImageHeader:
    """The header by ITK, without files that ITK misreads.

    A NIfTI whose axes ITK finds too far from perpendicular, but `Geometry.check` does not, gives its own header.
    """
    name, suffix = format_utf8_path(path, error), find_image_suffix(path, (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES))
    if not path.exists():
        raise error(path.name, f"not found in {path.parent.name}", "an image")
    if not path.is_file():
        raise error(path.name, "not a regular file", "an image")
    if path.stat().st_size == 0:
        raise error(path.name, "empty file", "an image")
    if suffix in TIFF_SUFFIXES:
        raise error(path.name, "a TIFF, which stores no origin and no slice spacing", "an .mha or .nii.gz file")
    if suffix in (".mha", ".mhd"):
        metaimage.check_header(path, error)
    try:
        own = nifti.read_header(path) if _is_nifti(path) else None
    except nifti.ImageFault as fault:
        raise error(path.name, *fault.args) from None
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(name)
    reader.SetImageIO(_ITK_READERS[suffix or ".mha"])
    try:
        reader.ReadImageInformation()
    except RuntimeError as problem:
        if own is not None and _NOT_ORTHONORMAL in str(problem):
            return ImageHeader(own.geometry, own.pixel_type)
        raise error(path.name, f"not a readable image ({_itk_reason(problem, path)})") from None
    return _header_of(reader, path, error)


def _header_of(reader: sitk.ImageFileReader, path: Path, error: type[HecktorError]) -> ImageHeader:
    import SimpleITK as sitk

    size, channels = [int(n) for n in reader.GetSize()], int(reader.GetNumberOfComponents())
    shape = " x ".join(map(str, size))
    if channels != 1:
        raise error(path.name, f"{channels} channels", f"one{_EXTRA_AXIS if channels > _COLOURS else ''}")
    if len(size) != 3:
        raise error(path.name, f"{len(size)} dimensions ({shape})", f"a 3D image{_EXTRA_AXIS if len(size) > 3 else ''}")
    pixel_type = sitk.GetPixelIDValueAsString(reader.GetPixelID())
    if "complex" in pixel_type.lower():
        raise error(path.name, "complex pixels", "real numbers")
    return ImageHeader(Geometry.from_image(reader), pixel_type)


def _itk_reason(problem: BaseException, path: Path) -> str:
    """The last sentence of an ITK message, without paths and memory addresses, which differ between runs."""
    text = re.sub(r"\(0x[0-9a-fA-F]+\)", "", str(problem).replace(str(path), path.name))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else type(problem).__name__
    if last == "Reason: Success":  # ITK's words for an error that no system call caused
        return "its header cannot be parsed"
    return re.sub(r"(/[^\s:\"']+)+/", "", last)[:200]
