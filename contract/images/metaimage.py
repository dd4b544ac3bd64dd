"""Read MetaImages: check the header, and read the pixels and check that they are complete in the same pass.

ITK fills the rest of a damaged stream with zeros, so a check after ITK would have to decompress the stream a second
time. ITK also reads pixels from any other file that a header names. A submitted `.mha` could name the reference mask,
so this module reads the pixels of an `.mha` only from the same file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.nifti import ImageFormatError, make_too_long_error, make_truncated_error

# MetaIO takes the grid from these header keys.
_GEOMETRY_FIELDS: Final = frozenset(
    {"Offset", "Position", "Origin", "TransformMatrix", "Rotation", "Orientation", "ElementSpacing", "ElementSize"}
)
# The last key of a header.
_PIXELS_KEY: Final = "ElementDataFile"
_LAST_LINE: Final = b"ElementDataFile = LOCAL\n"
_MAX_LINE_BYTES: Final = 4096
# Maximum size of the whole text header. Comments may be long, but the time to parse them grows with their length.
MAX_HEADER_BYTES: Final = 1 << 18
_READ_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 18
_ZEROS: Final = bytes(_CHUNK_BYTES)
# HeaderSize of an `.mhd` whose pixels are the last bytes of their file.
_AT_END: Final = "-1"


def read_voxels(path: Path, shape: tuple[int, int, int], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Read the pixels of an image with one channel.

    Args:
        path: An `.mha`, or an `.mhd` whose pixels are in another file of its folder.
        shape: (z, y, x) by the header.
        dtype: Type of the pixels by the header.

    Returns:
        The array in native byte order.

    Raises:
        ImageFormatError: The pixels are in another folder, stored as text, damaged, or fewer or more than `shape`.
    """
    with path.open("rb") as file:
        fields = _read_fields(file)
        if not _is_true(fields.get("BinaryData", "True")):
            raise ImageFormatError("pixels as text", "binary pixels")
        is_big_endian = _is_true(fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False")))
        stored = dtype.newbyteorder(">" if is_big_endian else "<")
        if path.suffix.lower() == ".mhd":
            with _find_pixel_file(path, fields).open("rb") as pixels:
                voxels = _read_pixels(pixels, fields, shape, stored)
        else:
            _check_local(fields)
            voxels = _read_pixels(file, fields, shape, stored)
    return voxels.astype(dtype, copy=False)


def _check_local(fields: Mapping[str, str]) -> None:
    if fields.get(_PIXELS_KEY, "").upper() != "LOCAL":
        raise ImageFormatError("the pixels are in another file", "pixels in the same file")
    if fields.get("HeaderSize", "0") != "0":
        raise ImageFormatError(f"HeaderSize {fields['HeaderSize'][:40]!r}", "the pixels directly after the header")


def _find_pixel_file(path: Path, fields: Mapping[str, str]) -> Path:
    name = fields.get(_PIXELS_KEY, "")
    pixels = path.parent / name
    if not name or Path(name).name != name or not pixels.is_file():
        raise ImageFormatError(f"its pixels are in {name[:40]!r}", "an existing file in the same folder")
    if fields.get("HeaderSize", "0") not in ("0", _AT_END):
        raise ImageFormatError(f"HeaderSize {fields['HeaderSize'][:40]!r}", "a file that contains only the pixels")
    return pixels


def _read_pixels(
    file: BinaryIO, fields: Mapping[str, str], shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    """Read the pixels, compressed or not, from the current position of the file."""
    if not _is_true(fields.get("CompressedData", "False")):
        return _read_uncompressed(file, shape, dtype, is_at_end=fields.get("HeaderSize") == _AT_END)
    size = fields.get("CompressedDataSize", "0")
    if not size.isdecimal():
        raise ImageFormatError(f"CompressedDataSize {size[:40]!r}", "a number of bytes")
    voxels = np.zeros(shape, dtype=dtype)
    _inflate_into(voxels.reshape(-1).view(np.uint8), file)
    return voxels


def _read_uncompressed(
    file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[np.generic], *, is_at_end: bool
) -> npt.NDArray[np.generic]:
    count = math.prod(shape)
    expected_bytes = count * dtype.itemsize
    # Checked before the array is allocated: the size in the header may be false.
    stored_bytes = os.fstat(file.fileno()).st_size - file.tell()
    if stored_bytes < expected_bytes:
        raise make_truncated_error(stored_bytes, expected_bytes)
    if is_at_end:
        file.seek(-expected_bytes, os.SEEK_END)
    voxels = np.fromfile(file, dtype, count)
    if voxels.size < count:  # the file became shorter while it was read
        raise make_truncated_error(voxels.nbytes, expected_bytes)
    return voxels.reshape(shape)


def _inflate_into(target: npt.NDArray[np.uint8], file: BinaryIO) -> None:
    """Inflate a stream into `target`, an array of zeros.

    Zeros are not copied, so most pages of a mask take no memory.
    """
    inflater = zlib_ng.decompressobj()
    size, pending = 0, b""
    while not inflater.eof:
        pending = pending or file.read(_READ_BYTES)
        try:
            chunk = inflater.decompress(pending, _CHUNK_BYTES)
        except zlib_ng.error as problem:  # type: ignore[misc]  # not an exception class by its stub
            raise ImageFormatError(f"damaged compressed pixel data ({problem})", f"{target.size} bytes") from None
        if size + len(chunk) > target.size:
            raise make_too_long_error(target.size)
        if not (pending or chunk):
            break
        pending = inflater.unconsumed_tail
        if chunk != _ZEROS[: len(chunk)]:
            target[size : size + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        size += len(chunk)
    if not inflater.eof or size < target.size:
        raise make_truncated_error(size, target.size)


def pack_mask(voxels: npt.NDArray[np.uint8], geometry: Geometry) -> bytes:
    """Compress a mask as the content of an `.mha` file, with the exact geometry.

    Args:
        voxels: Labels of shape `geometry.array_shape`.
        geometry: Grid of the mask.
    """
    pixels = zlib_ng.compress(np.ascontiguousarray(voxels).data, 1)
    # The axes are the rows of the file's matrix, but the columns of ITK's matrix.
    axes = np.asarray(geometry.direction).reshape(3, 3).T.ravel()
    fields = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": "True",
        "CompressedDataSize": str(len(pixels)),
        "TransformMatrix": _join_numbers(axes),
        "Offset": _join_numbers(geometry.origin_mm),
        "CenterOfRotation": "0 0 0",
        "AnatomicalOrientation": "RAI",
        "ElementSpacing": _join_numbers(geometry.spacing_mm),
        "DimSize": " ".join(map(str, geometry.size)),
        "ElementType": "MET_UCHAR",
        "ElementDataFile": "LOCAL",
    }
    return "".join(f"{key} = {value}\n" for key, value in fields.items()).encode("ascii") + pixels


def unpack_mask(content: bytes, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """Return the voxels (z, y, x) of a file that `pack_mask` made on this grid."""
    pixels = zlib_ng.decompress(content.partition(_LAST_LINE)[2])
    return np.frombuffer(pixels, dtype=np.uint8).reshape(geometry.array_shape).copy()


def check_header(path: Path, error: type[HecktorError]) -> None:
    """Refuse a MetaImage header that ITK misreads; raise `error`.

    ITK reads out of bounds on an absurd NDims, takes a non-numeric origin for 0, and needs 7 s for 60 MB of comments.
    """
    with path.open("rb") as file:
        fields = _read_fields(file)
        if file.tell() > MAX_HEADER_BYTES:
            raise error(path.name, f"a header of more than {MAX_HEADER_BYTES} bytes", "an image with a shorter one")
    rank = fields.get("NDims", "3")
    if not (rank.isascii() and rank.isdecimal() and len(rank) == 1 and rank != "0"):
        raise error(path.name, f"not a readable image (NDims {rank[:40]!r})", "a 3D image")
    for key in sorted(_GEOMETRY_FIELDS & fields.keys()):
        invalid = [token for token in fields[key].split() if not _is_finite(token)]
        if invalid:
            raise error(path.name, f"{key} contains {invalid[0][:40]!r}", "finite numbers")


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(float(token))
    except ValueError:
        return False


def _join_numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)


def _read_fields(file: BinaryIO) -> dict[str, str]:
    """Read the lines of the text header up to the first pixel or, in a longer header, to `MAX_HEADER_BYTES`."""
    fields: dict[str, str] = {}
    while file.tell() <= MAX_HEADER_BYTES and _PIXELS_KEY not in fields:
        line = file.readline(_MAX_LINE_BYTES)
        if not line:
            break
        key, _, value = line.decode("latin-1").partition("=")
        fields[key.strip()] = value.strip()
    return fields


def _is_true(value: str) -> bool:
    """Return whether MetaIO reads a value as true, for which only its first character matters."""
    return value[:1] in ("T", "t", "1")
