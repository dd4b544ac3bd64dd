"""Check the header of a MetaImage, read its pixels with a completeness check in one pass, and pack masks in memory.

ITK fills the rest of a damaged stream with zeros, so that a check would have to inflate it a second time. ITK also
follows a header to pixels in another file, such as the reference mask of a submitted one; this reader does not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.nifti import ImageFault, overlong, truncated

# All header keys from which MetaIO takes the grid.
_GEOMETRY_FIELDS: Final = frozenset(
    {"Offset", "Position", "Origin", "TransformMatrix", "Rotation", "Orientation", "ElementSpacing", "ElementSize"}
)
_PIXELS_BEGIN: Final = "ElementDataFile"
_LAST_LINE: Final = b"ElementDataFile = LOCAL\n"
_MAX_LINE_BYTES: Final = 4096
# Of the whole text header; comments may be long, but a parser's time grows with them.
MAX_HEADER_BYTES: Final = 1 << 18
_BLOCK: Final = 1 << 20
_PIECE: Final = 1 << 18
_ZEROS: Final = bytes(_PIECE)
# HeaderSize of pixels that end the file beside the header.
_AT_END: Final = "-1"


def read_voxels(path: Path, shape: tuple[int, int, int], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Read the pixels of an `.mha`, or those in the file beside an `.mhd`, of one channel.

    Args:
        path: image file.
        shape: (z, y, x) by the header.
        dtype: type of the pixels by the header.

    Returns:
        The array in native byte order.

    Raises:
        ImageFault: pixels elsewhere, stored as text, damaged, or of another length than `shape`.
    """
    with path.open("rb") as file:
        fields = _fields(file)
        if not _is_true(fields.get("BinaryData", "True")):
            raise ImageFault("pixels as text", "binary ones")
        is_big_endian = _is_true(fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False")))
        stored = dtype.newbyteorder(">" if is_big_endian else "<")
        if path.suffix.lower() == ".mhd":
            with _file_beside(path, fields).open("rb") as pixels:
                voxels = _voxels(pixels, fields, shape, stored)
        else:
            _check_local(fields)
            voxels = _voxels(file, fields, shape, stored)
    return voxels.astype(dtype, copy=False)


def _check_local(fields: Mapping[str, str]) -> None:
    if fields.get(_PIXELS_BEGIN, "").upper() != "LOCAL":
        raise ImageFault("the pixels are in another file", "them in the same file")
    if fields.get("HeaderSize", "0") != "0":
        raise ImageFault(f"HeaderSize {fields['HeaderSize'][:40]!r}", "the pixels directly after the header")


def _file_beside(path: Path, fields: Mapping[str, str]) -> Path:
    name = fields.get(_PIXELS_BEGIN, "")
    pixels = path.parent / name
    if not name or Path(name).name != name or not pixels.is_file():
        raise ImageFault(f"its pixels are in {name[:40]!r}", "an existing file beside it")
    if fields.get("HeaderSize", "0") not in ("0", _AT_END):
        raise ImageFault(f"HeaderSize {fields['HeaderSize'][:40]!r}", "the pixels alone in their file")
    return pixels


def _voxels(
    file: BinaryIO, fields: Mapping[str, str], shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    """The pixels from the file's position on, compressed or not."""
    if not _is_true(fields.get("CompressedData", "False")):
        return _copied(file, shape, dtype, at_end=fields.get("HeaderSize") == _AT_END)
    size = fields.get("CompressedDataSize", "0")
    if not size.isdecimal():
        raise ImageFault(f"CompressedDataSize {size[:40]!r}", "a number of bytes")
    voxels = np.zeros(shape, dtype=dtype)
    _inflate_into(voxels.reshape(-1).view(np.uint8), file)
    return voxels


def _copied(
    file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[np.generic], *, at_end: bool
) -> npt.NDArray[np.generic]:
    # Checked before the array is allocated: the size in the header may be false.
    present, count = os.fstat(file.fileno()).st_size - file.tell(), math.prod(shape)
    expected = count * dtype.itemsize
    if present < expected:
        raise truncated(present, expected)
    if at_end:
        file.seek(-expected, os.SEEK_END)
    voxels = np.fromfile(file, dtype, count)
    if voxels.size < count:  # the file became shorter
        raise truncated(voxels.nbytes, expected)
    return voxels.reshape(shape)


def _inflate_into(target: npt.NDArray[np.uint8], file: BinaryIO) -> None:
    """Inflate a stream into `target`, an array of zeros.

    Zeros are not copied, so that most pages of a mask take no memory.
    """
    inflater, size, pending = zlib_ng.decompressobj(), 0, b""
    while not inflater.eof:
        pending = pending or file.read(_BLOCK)
        try:
            piece = inflater.decompress(pending, _PIECE)
        except zlib_ng.error as problem:  # type: ignore[misc]  # not an exception class by its stub
            raise ImageFault(f"damaged compressed pixel data ({problem})", f"{target.size} bytes") from None
        if size + len(piece) > target.size:
            raise overlong(target.size)
        if not (pending or piece):
            break
        pending = inflater.unconsumed_tail
        if piece != _ZEROS[: len(piece)]:
            target[size : size + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        size += len(piece)
    if not inflater.eof or size < target.size:
        raise truncated(size, target.size)


def pack_mask(voxels: npt.NDArray[np.uint8], geometry: Geometry) -> bytes:
    """Content of a compressed `.mha` file of a uint8 image of shape `geometry.array_shape`, with the exact geometry."""
    pixels = zlib_ng.compress(np.ascontiguousarray(voxels).data, 1)
    # Axes are rows of the file's matrix but columns of ITK's.
    axes = np.asarray(geometry.direction).reshape(3, 3).T.ravel()
    fields = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": "True",
        "CompressedDataSize": str(len(pixels)),
        "TransformMatrix": _numbers(axes),
        "Offset": _numbers(geometry.origin_mm),
        "CenterOfRotation": "0 0 0",
        "AnatomicalOrientation": "RAI",
        "ElementSpacing": _numbers(geometry.spacing_mm),
        "DimSize": " ".join(map(str, geometry.size)),
        "ElementType": "MET_UCHAR",
        "ElementDataFile": "LOCAL",
    }
    return "".join(f"{key} = {value}\n" for key, value in fields.items()).encode("ascii") + pixels


def unpack_mask(content: bytes, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """The voxels (z, y, x) of a file that `pack_mask` made on this grid."""
    pixels = zlib_ng.decompress(content.partition(_LAST_LINE)[2])
    return np.frombuffer(pixels, dtype=np.uint8).reshape(geometry.array_shape).copy()


def check_header(path: Path, error: type[HecktorError]) -> None:
    """Reject a MetaImage header that ITK misreads.

    ITK reads out of bounds on an absurd NDims, takes a non-numeric origin for 0, and needs 7 s for 60 MB of comments.
    """
    with path.open("rb") as file:
        fields = _fields(file)
        if file.tell() > MAX_HEADER_BYTES:
            raise error(path.name, f"a header of more than {MAX_HEADER_BYTES} bytes", "an image with a shorter one")
    rank = fields.get("NDims", "3")
    if not (rank.isascii() and rank.isdecimal() and len(rank) == 1 and rank != "0"):
        raise error(path.name, f"not a readable image (NDims {rank[:40]!r})", "a 3D image")
    for key in sorted(_GEOMETRY_FIELDS & fields.keys()):
        invalid = [token for token in fields[key].split() if not _is_finite(token)]
        if invalid:
            raise error(path.name, f"{key} holds {invalid[0][:40]!r}", "finite numbers")


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(float(token))
    except ValueError:
        return False


def _numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)


def _fields(file: BinaryIO) -> dict[str, str]:
    """Text header of a MetaImage; leaves the file position at the first pixel, or behind the longest header."""
    fields: dict[str, str] = {}
    for raw in _header_lines(file):
        key, _, value = raw.decode("latin-1").partition("=")
        fields[key.strip()] = value.strip()
        if key.strip() == _PIXELS_BEGIN:
            break
    return fields


def _header_lines(file: BinaryIO) -> Iterator[bytes]:
    while file.tell() <= MAX_HEADER_BYTES and (raw := file.readline(_MAX_LINE_BYTES)):
        yield raw


def _is_true(value: str) -> bool:
    """A truth value as MetaIO reads it, by its first letter."""
    return value[:1] in ("T", "t", "1")
