"""Read and write images with their geometry.

Headers are checked before pixels are read, so a false size in a header allocates no memory. SimpleITK takes 0.4 s
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
from contract.processes import count_usable_cpus

if TYPE_CHECKING:
    import SimpleITK as sitk

# A CT of 1,000 slices of 1024 x 1024 pixels is accepted.
MAX_VOXELS: Final = 2**30
_NIFTI_SUFFIXES: Final = (".nii.gz", ".nii")
# A TIFF counts as an image, so that it is refused instead of overlooked in a folder.
_KNOWN_SUFFIXES: Final = (*READABLE_IMAGE_SUFFIXES, *TIFF_SUFFIXES)
# The reader is chosen by the suffix: ITK would refuse a suffix in upper case, and read a file whose format is not the
# one that its suffix names.
_ITK_READERS: Final = {
    ".mha": "MetaImageIO",
    ".mhd": "MetaImageIO",
    ".nii.gz": "NiftiImageIO",
    ".nii": "NiftiImageIO",
}

# Word of ITK's message for axes that are not perpendicular. ITK's tolerance of cosines is 2e-4.
_NOT_ORTHONORMAL: Final = "orthonormal"
# A picture has up to four channels. ITK takes the last axis of an array (1, z, y, x) for channels.
_MAX_COLOURS: Final = 4
_EXTRA_AXIS: Final = ", without an extra axis: of an array (1, z, y, x) save array[0]"

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Volume:
    """A scalar image: `array` of shape `geometry.array_shape`, (z, y, x).

    Raises:
        ValueError: The array has another shape.
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


def limit_simpleitk_threads() -> None:
    """Let SimpleITK use only the CPUs that this process may use; by default it uses all CPUs of the host."""
    import SimpleITK as sitk

    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, count_usable_cpus()))


def find_image_suffix(path: Path, suffixes: Sequence[str] = _KNOWN_SUFFIXES) -> str | None:
    """Find the image suffix of a file name, in lower case; None if it has no such suffix.

    By default `.mha`, `.nii.gz`, `.tif` and `.tiff` are image suffixes.
    """
    name = path.name.lower()
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def list_images(folder: Path, suffixes: Sequence[str] = _KNOWN_SUFFIXES) -> list[Path]:
    """List the images directly in a folder, sorted by name, without hidden files."""
    visible = (path for path in folder.iterdir() if not is_system_name(path.name))
    return sorted(path for path in visible if find_image_suffix(path, suffixes) is not None)


def find_single_image(folder: Path, *, error: type[HecktorError] = InputError) -> Path:
    """Find the only image in a socket's folder.

    Raises:
        HecktorError: Of class `error`: the folder does not exist, or contains no image or several images.
    """
    expected = f"exactly one image ({', '.join(READABLE_IMAGE_SUFFIXES)})"
    name = "/".join(folder.parts[-2:])
    if not folder.is_dir():
        raise error(name, "no such folder", expected)
    images = list_images(folder)
    if not images:
        names = sorted(path.name for path in folder.iterdir())[:3]
        raise error(name, f"found {', '.join(names) or 'nothing'}", expected)
    if len(images) > 1:
        shown = ", ".join(path.name for path in images[:3])
        raise error(name, f"found {len(images)} images ({shown})", expected)
    return images[0]


def read_header(path: Path, *, error: type[HecktorError] = InputError) -> ImageHeader:
    """Read an image's header and check it: three dimensions, one channel, a valid geometry, at most `MAX_VOXELS`.

    A file with an unknown suffix is read as a MetaImage.

    Raises:
        HecktorError: Of class `error`: the file does not exist, cannot be read, or fails a check.
    """
    header = _read_unchecked_header(path, error)
    header.geometry.check(path.name, error)
    if header.geometry.voxel_count > MAX_VOXELS:
        raise error(path.name, f"{header.geometry.voxel_count} voxels", f"at most {MAX_VOXELS}")
    return header


def read_volume(path: Path, dtype: npt.DTypeLike | None = None, *, error: type[HecktorError] = InputError) -> Volume:
    """Read a three-dimensional scalar image.

    Args:
        path: `.mha`, `.nii.gz`, `.nii`, or `.mhd` with its pixels in another file of the same folder.
        dtype: Type of the array; None keeps the type of the file.
        error: Class of the exceptions raised.

    Returns:
        The voxels in (z, y, x) order with their geometry. NaN and infinities are kept.

    Raises:
        HecktorError: Of class `error`: the file does not exist, cannot be read, is truncated, is not a scalar 3D image,
            has an invalid geometry or changed while it was read; or it contains NaN or infinity and `dtype` is an
            integer.
    """
    stamp = _read_stamp(path)
    try:
        header = read_header(path, error=error)
        array = _read_voxels(path, header)
    except nifti.ImageFormatError as problem:
        raise error(path.name, *problem.args) from None
    except OSError as problem:
        raise make_read_error(path.name, problem, error, "a readable file") from None
    if _read_stamp(path) != stamp:
        raise error(path.name, "changed while it was being read", "an unchanged file")
    if dtype is not None:
        nonfinite_count = _count_nonfinite(array) if np.dtype(dtype).kind in "iu" else 0
        if nonfinite_count:
            raise error(path.name, f"{nonfinite_count} voxels are NaN or infinite", "numbers")
        array = array.astype(dtype, copy=False)
    return Volume(array, header.geometry)


def replace_nonfinite(volume: Volume, fill: float) -> tuple[Volume, int]:
    """Replace NaN and infinities by `fill`.

    Returns:
        The volume, and the number of replaced voxels. The volume is unchanged if this number is 0.
    """
    count = _count_nonfinite(volume.array)
    if not count:
        return volume, 0
    array = np.where(np.isfinite(volume.array), volume.array, np.asarray(fill, volume.array.dtype))
    return Volume(array, volume.geometry), count


def _count_nonfinite(array: _Array) -> int:
    if array.dtype.kind != "f":
        return 0
    return array.size - int(np.count_nonzero(np.isfinite(array)))


def _read_stamp(path: Path) -> tuple[int, int, int] | None:
    """Read inode, size and modification time of a file, which show whether it changed; None if it does not exist."""
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
    """Convert a volume to a SimpleITK image with the same geometry."""
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(volume.array)
    image.SetSpacing(volume.geometry.spacing_mm)
    image.SetOrigin(volume.geometry.origin_mm)
    image.SetDirection(volume.geometry.direction)
    return image


def write_volume(path: Path, volume: Volume, *, compress: bool = True) -> None:
    """Write a volume atomically in the format of the suffix.

    Raises:
        OutputError: The suffix is unknown, or the file cannot be written.
    """
    if find_image_suffix(path, ONE_FILE_SUFFIXES) is None:
        raise OutputError(path.name, "unknown image suffix", f"{', '.join(ONE_FILE_SUFFIXES)}")
    try:
        with atomic_path(path) as partial:
            _write_and_check(partial, volume, compress)
    except RuntimeError as problem:
        if os.strerror(errno.ENOSPC) in str(problem):
            raise make_write_error(path.name, problem) from None
        raise OutputError(path.name, f"cannot be written ({_extract_reason(problem, path)})") from None


def _write_and_check(partial: Path, volume: Volume, compress: bool) -> None:
    """Write a volume and read it again; raise OSError or RuntimeError if it was not written completely."""
    import SimpleITK as sitk

    sitk.WriteImage(
        to_sitk(volume), format_utf8_path(partial, OutputError), useCompression=compress, compressionLevel=1
    )
    try:
        read_volume(partial)
    except InputError as problem:  # ITK does not report a full disk
        check_free_space(partial.parent)
        raise RuntimeError(problem.found) from None


def convert_to_labels(mask: Volume, name: str) -> Volume:
    """Convert a mask to uint8 after checking its labels.

    Args:
        mask: Image of any type.
        name: Name of the file in messages.

    Raises:
        InputError: The mask contains an unknown label.
    """
    unknown = [value for value in np.unique(mask.array).tolist() if value not in labels.NAMES]
    if unknown:
        known = ", ".join(f"{label} {structure}" for label, structure in labels.NAMES.items())
        raise InputError(name, f"label {unknown[0]:g}", known)
    return Volume(mask.array.astype(np.uint8), mask.geometry)


def write_mask(path: Path, mask: _Array, geometry: Geometry) -> None:
    """Write a label mask (0 background, 1 GTVp, 2 GTVn) as uint8 atomically.

    Args:
        path: Output file, `.mha` for the platform.
        mask: Integer array of shape `geometry.array_shape`, (z, y, x).
        geometry: Grid of the CT.

    Raises:
        OutputError: The mask has another shape or an unknown label, or the file cannot be written.
    """
    if find_image_suffix(path) == ".mha":
        write_bytes(path, encode_mask(path.name, mask, geometry))
    else:
        write_volume(path, Volume(_convert_mask(path.name, mask, geometry), geometry))


def encode_mask(name: str, mask: _Array, geometry: Geometry) -> bytes:
    """Encode a label mask as the content of the `.mha` file that `write_mask` writes.

    Args:
        name: Name of the file in messages.
        mask: Integer array of shape `geometry.array_shape`, (z, y, x).
        geometry: Grid of the CT.

    Raises:
        OutputError: The mask has another shape or an unknown label.
    """
    return metaimage.pack_mask(_convert_mask(name, mask, geometry), geometry)


def _convert_mask(name: str, mask: _Array, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """Convert a mask to uint8; raise `OutputError` if its shape or a label is wrong."""
    if mask.shape != geometry.array_shape:
        raise OutputError(name, f"a mask of shape {mask.shape}", f"{geometry.array_shape}")
    compact = mask.astype(np.uint8, copy=False)
    highest = int(compact.max(initial=0))
    if highest > max(labels.FOREGROUND) or (compact is not mask and not np.array_equal(compact, mask)):
        raise OutputError(name, "labels other than 0, 1 and 2", "0, 1 and 2 only")
    return compact


def _read_unchecked_header(path: Path, error: type[HecktorError]) -> ImageHeader:
    """Read a header with ITK after refusing files that ITK misreads.

    ITK refuses axes that are less perpendicular than 2e-4. The header of such a NIfTI is read without ITK, so that the
    tolerance of `Geometry.check` decides.
    """
    name = format_utf8_path(path, error)
    suffix = find_image_suffix(path, (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES))
    _check_file(path, suffix, error)
    if suffix in (".mha", ".mhd"):
        metaimage.check_header(path, error)
    try:
        nifti_header = nifti.read_header(path) if _is_nifti(path) else None
    except nifti.ImageFormatError as problem:
        raise error(path.name, *problem.args) from None
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(name)
    reader.SetImageIO(_ITK_READERS[suffix or ".mha"])
    try:
        reader.ReadImageInformation()
    except RuntimeError as problem:
        if nifti_header is not None and _NOT_ORTHONORMAL in str(problem):
            return ImageHeader(nifti_header.geometry, nifti_header.pixel_type)
        raise error(path.name, f"not a readable image ({_extract_reason(problem, path)})") from None
    return _convert_header(reader, path, error)


def _check_file(path: Path, suffix: str | None, error: type[HecktorError]) -> None:
    if not path.exists():
        raise error(path.name, f"not found in {path.parent.name or 'the current folder'}", "an image")
    if not path.is_file():
        raise error(path.name, "not a regular file", "an image")
    if path.stat().st_size == 0:
        raise error(path.name, "empty file", "an image")
    if suffix in TIFF_SUFFIXES:
        raise error(path.name, "a TIFF, which stores no origin and no slice spacing", "an .mha or .nii.gz file")


def _convert_header(reader: sitk.ImageFileReader, path: Path, error: type[HecktorError]) -> ImageHeader:
    """Convert the header that ITK has read; refuse images that are not three-dimensional and scalar."""
    import SimpleITK as sitk

    size = [int(length) for length in reader.GetSize()]
    channels = int(reader.GetNumberOfComponents())
    shape = " x ".join(map(str, size))
    if channels != 1:
        raise error(path.name, f"{channels} channels", f"one{_EXTRA_AXIS if channels > _MAX_COLOURS else ''}")
    if len(size) != 3:
        raise error(path.name, f"{len(size)} dimensions ({shape})", f"a 3D image{_EXTRA_AXIS if len(size) > 3 else ''}")
    pixel_type = sitk.GetPixelIDValueAsString(reader.GetPixelID())
    if "complex" in pixel_type.lower():
        raise error(path.name, "complex pixels", "real numbers")
    return ImageHeader(Geometry.from_image(reader), pixel_type)


def _extract_reason(problem: BaseException, path: Path) -> str:
    """Extract the last sentence of an ITK message, without paths and memory addresses, which differ between runs."""
    text = re.sub(r"\(0x[0-9a-fA-F]+\)", "", str(problem).replace(str(path), path.name))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else type(problem).__name__
    if last == "Reason: Success":  # ITK's words for an error that was not caused by a system call
        return "its header cannot be parsed"
    return re.sub(r"(/[^\s:\"']+)+/", "", last)[:200]
