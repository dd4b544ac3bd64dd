"""Read exactly one image, with its geometry; write a mask on a reference geometry.

Headers are checked before any pixel is read, so that a file that lies about its size costs nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract import labels
from contract.errors import HecktorError, InputError, OutputError
from contract.files import atomic_path, write_bytes
from contract.images import completeness, metaimage
from contract.images.geometry import Geometry
from contract.images.metaimage import mha_fields
from contract.platform import READABLE_IMAGE_SUFFIXES

# A CT of 1,000 slices at 1024 x 1024 still passes; what is larger is no patient.
MAX_VOXELS: Final = 2**30

# Named, so that a suffix in capitals is read too and a foreign format under a known suffix is not.
_ITK_READERS: Final = {".mha": "MetaImageIO", ".tif": "TIFFImageIO", ".tiff": "TIFFImageIO", ".nii.gz": "NiftiImageIO"}

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Volume:
    """A scalar image: `array` in (z, y, x) order on `geometry`.

    Raises:
        ValueError: the array's shape is not the geometry's.
    """

    array: _Array
    geometry: Geometry

    def __post_init__(self) -> None:
        if self.array.shape != self.geometry.array_shape:
            raise ValueError(f"array of shape {self.array.shape} on a grid of {self.geometry.array_shape}")


@dataclass(frozen=True)
class ImageHeader:
    """What an image file says of itself before its pixels are read."""

    geometry: Geometry
    pixel_type: str
    is_integer: bool


def image_suffix(path: Path) -> str | None:
    """The readable image suffix (`.mha`, `.tif`, `.tiff`, `.nii.gz`) of a file name, or None."""
    name = path.name.lower()
    return next((suffix for suffix in READABLE_IMAGE_SUFFIXES if name.endswith(suffix)), None)


def list_images(folder: Path) -> list[Path]:
    """The images directly in `folder`, sorted by name; hidden files are not images."""
    return sorted(path for path in folder.iterdir() if image_suffix(path) is not None and not path.name.startswith("."))


def find_single_image(folder: Path, *, error: type[HecktorError] = InputError) -> Path:
    """The one image in a socket's folder.

    Raises:
        HecktorError: of the class `error`: no folder, no image or several images in it.
    """
    wanted = f"expected exactly one image ({', '.join(READABLE_IMAGE_SUFFIXES)})"
    name = "/".join(folder.parts[-2:])
    if not folder.is_dir():
        raise error(name, f"no such folder, {wanted}")
    images = list_images(folder)
    if not images:
        others = sorted(path.name for path in folder.iterdir())[:3]
        raise error(name, f"found {(', '.join(others) if others else 'nothing')}, {wanted}")
    if len(images) > 1:
        shown = ", ".join(path.name for path in images[:3])
        raise error(name, f"found {len(images)} images ({shown}), {wanted}")
    return images[0]


def read_header(path: Path, *, error: type[HecktorError] = InputError) -> ImageHeader:
    """Read and check an image's header: three dimensions, one channel, a sound geometry, a bearable size.

    Raises:
        HecktorError: of the class `error`, naming the file, what was found and what was expected.
    """
    reader = _reader(path, error)
    return _checked_header(reader, path, error)


def read_volume(path: Path, dtype: npt.DTypeLike | None = None, *, error: type[HecktorError] = InputError) -> Volume:
    """Read a three-dimensional scalar image.

    Args:
        path: `.mha`, `.tif`, `.tiff` or `.nii.gz`.
        dtype: the array's type; None keeps the file's own.
        error: the class of what is raised.

    Returns:
        The voxels in (z, y, x) order and their geometry. Values that are not finite are kept.

    Raises:
        HecktorError: of the class `error`: absent, unreadable, truncated, not 3D, not scalar, unsound geometry,
            changed while it was being read.
    """
    stamp = _stamp(path)
    try:
        reader = _reader(path, error)
        header = _checked_header(reader, path, error)
        array = metaimage.read_pixels(path, header.geometry.array_shape, _bytes_per_voxel(header.pixel_type))
        if array is None:
            array = _read_with_itk(reader, header, path, error)
    except OSError as problem:
        raise error(path.name, f"cannot be read ({problem.strerror or problem})", "a readable file") from None
    if _stamp(path) != stamp:
        raise error(path.name, "changed while it was being read", "a file that stays as it is")
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    return Volume(array, header.geometry)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content: inode, size, time of the last change; None where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_with_itk(reader: sitk.ImageFileReader, header: ImageHeader, path: Path, error: type[HecktorError]) -> _Array:
    fault = completeness.defect(path, header.geometry.voxel_count, _bytes_per_voxel(header.pixel_type))
    if fault:
        raise error(path.name, f"{fault}")
    try:
        array: _Array = sitk.GetArrayFromImage(reader.Execute())
    except RuntimeError as problem:
        raise error(path.name, f"its pixels cannot be read ({_itk_reason(problem, path)})") from None
    return array


def to_sitk(volume: Volume) -> sitk.Image:
    """The volume as a SimpleITK image, geometry included."""
    image = sitk.GetImageFromArray(volume.array)
    image.SetSpacing(volume.geometry.spacing_mm)
    image.SetOrigin(volume.geometry.origin_mm)
    image.SetDirection(volume.geometry.direction)
    return image


def write_volume(path: Path, volume: Volume, *, compress: bool = True) -> None:
    """Write a volume whole or not at all; the suffix chooses the format.

    Raises:
        OutputError: the file cannot be written.
    """
    if image_suffix(path) is None:
        raise OutputError(path.name, "unknown image suffix", f"{', '.join(READABLE_IMAGE_SUFFIXES)}")
    try:
        with atomic_path(path) as partial:
            _write_completely(partial, volume, compress)
    except RuntimeError as problem:
        raise OutputError(path.name, f"cannot be written ({_itk_reason(problem, path)})") from None


def _write_completely(partial: Path, volume: Volume, compress: bool) -> None:
    sitk.WriteImage(to_sitk(volume), str(partial), useCompression=compress, compressionLevel=1)
    # ITK does not notice a disk that is full.
    fault = completeness.defect(partial, volume.geometry.voxel_count, volume.array.dtype.itemsize)
    if fault:
        raise RuntimeError(fault)


def write_mask(path: Path, mask: _Array, geometry: Geometry) -> None:
    """Write a label mask (0 background, 1 GTVp, 2 GTVn) as uint8 on `geometry`, whole or not at all.

    A `.mha` leaves nothing behind even if the process is killed.

    Args:
        path: where to, `.mha` for the platform.
        mask: integer array in (z, y, x) order, of the geometry's shape.
        geometry: the grid of the CT.

    Raises:
        OutputError: wrong shape, another label, or a file that cannot be written.
    """
    if mask.shape != geometry.array_shape:
        raise OutputError(path.name, f"a mask of shape {mask.shape}", f"{geometry.array_shape}")
    compact = mask.astype(np.uint8, copy=False)
    highest = int(compact.max(initial=0))
    if highest > max(labels.FOREGROUND) or not np.array_equal(compact, mask):
        raise OutputError(path.name, "labels other than 0, 1 and 2", "only these")
    if image_suffix(path) == ".mha":
        write_bytes(path, metaimage.packed(compact, geometry))
    else:
        write_volume(path, Volume(compact, geometry))


def _reader(path: Path, error: type[HecktorError]) -> sitk.ImageFileReader:
    if not path.exists():
        raise error(path.name, f"not found in {path.parent.name}", "an image")
    if not path.is_file():
        raise error(path.name, "not a regular file", "an image")
    if path.stat().st_size == 0:
        raise error(path.name, "empty file", "an image")
    _check_text(path, error)
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.SetImageIO(_ITK_READERS[image_suffix(path) or ".mha"])
    try:
        reader.ReadImageInformation()
    except RuntimeError as problem:
        raise error(path.name, f"not a readable image ({_itk_reason(problem, path)})") from None
    return reader


def _check_text(path: Path, error: type[HecktorError]) -> None:
    """Refuse a MetaImage whose header ITK would misread.

    It reads beyond its memory on an absurd number of dimensions, and takes an origin that is no number for 0.
    """
    if image_suffix(path) != ".mha":
        return
    with path.open("rb") as file:
        fields = mha_fields(file)
    rank = fields.get("NDims", "3")
    if not (rank.isascii() and rank.isdecimal() and len(rank) == 1 and rank != "0"):
        raise error(path.name, f"not a readable image (NDims {rank[:40]!r})", "a 3D image")
    for key in metaimage.GEOMETRY_FIELDS & fields.keys():
        odd = [token for token in fields[key].split() if not _is_finite(token)]
        if odd:
            raise error(path.name, f"{key} holds {odd[0][:40]!r}", "finite numbers")


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(float(token))
    except ValueError:
        return False


def _checked_header(reader: sitk.ImageFileReader, path: Path, error: type[HecktorError]) -> ImageHeader:
    size = tuple(int(n) for n in reader.GetSize())
    if reader.GetDimension() != 3:
        shape = " x ".join(map(str, size))
        raise error(path.name, f"{reader.GetDimension()} dimensions ({shape})", "a 3D image")
    if reader.GetNumberOfComponents() != 1:
        raise error(path.name, f"{reader.GetNumberOfComponents()} channels", "one")
    pixel_type = sitk.GetPixelIDValueAsString(reader.GetPixelID())
    if "complex" in pixel_type.lower():
        raise error(path.name, "complex pixels", "real numbers")
    geometry = Geometry.of(reader)
    geometry.check(path.name, error)
    if geometry.voxel_count > MAX_VOXELS:
        raise error(path.name, f"{geometry.voxel_count} voxels", f"at most {MAX_VOXELS}")
    return ImageHeader(geometry, pixel_type, "integer" in pixel_type.lower())


def _bytes_per_voxel(pixel_type: str) -> int:
    bits = re.search(r"(\d+)-bit", pixel_type)
    return int(bits.group(1)) // 8 if bits else 1


def _itk_reason(problem: BaseException, path: Path) -> str:
    """The last sentence of an ITK message, without paths and addresses: the same each time."""
    told = re.sub(r"\(0x[0-9a-fA-F]+\)", "", str(problem).replace(str(path), path.name))
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    last = lines[-1] if lines else type(problem).__name__
    return re.sub(r"(/[^\s:\"']+)+/", "", last)[:200]
