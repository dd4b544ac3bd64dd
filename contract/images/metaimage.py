"""Check the header of a MetaImage, read its pixels with a completeness check in one pass, and pack masks in memory.

ITK fills the rest of a damaged stream with zeros, so that a check would have to inflate it a second time. ITK also
follows a header to pixels in another file, such as the reference mask of a submitted one; this reader does not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from contract.errors import HecktorError
from contract.images.geometry import Geometry

# All header keys from which MetaIO takes the grid.
_GEOMETRY_FIELDS: Final = frozenset(
    {"Offset", "Position", "Origin", "TransformMatrix", "Rotation", "Orientation", "ElementSpacing", "ElementSize"}
)
_PIXELS_BEGIN: Final = "ElementDataFile"
_LAST_LINE: Final = b"ElementDataFile = LOCAL\n"
# A line that all parsers read alike: a key of letters, one `=`, a short printable value.
_PLAIN_LINE: Final = re.compile(rb"([A-Za-z]+) *= *[!-~][ -~]{0,199}\r?\n")
_MAX_LINE_BYTES: Final = 4096
# Of the whole text header; comments may be long, but a parser's time grows with them.
MAX_HEADER_BYTES: Final = 1 << 18
_BLOCK: Final = 1 << 20
_PIECE: Final = 1 << 18
_ZEROS: Final = bytes(_PIECE)
_TYPES: Final = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "<i2",
    "MET_USHORT": "<u2",
    "MET_INT": "<i4",
    "MET_UINT": "<u4",
    "MET_FLOAT": "<f4",
    "MET_DOUBLE": "<f8",
}


def read_pixels(path: Path, shape: tuple[int, ...], bytes_per_voxel: int) -> npt.NDArray[np.generic] | None:
    """Read the pixels of an `.mha` of one channel in native byte order.

    Args:
        path: image file.
        shape: (z, y, x) by the header.
        bytes_per_voxel: size of the pixel type by the header.

    Returns:
        The array; None for another format or encoding, and for pixel data that does not match `shape`. ITK or
        `completeness.defect` then handles the file.
    """
    if not path.name.lower().endswith(".mha"):
        return None
    with path.open("rb") as file:
        fields = mha_fields(file)
        dtype = _dtype(fields)
        if dtype is None or dtype.itemsize != bytes_per_voxel:
            return None
        voxels = _inflated(file, shape, dtype) if _is_compressed(fields) else _copied(file, shape, dtype)
    return None if voxels is None else voxels.astype(dtype.newbyteorder("="), copy=False)


def _inflated(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic] | None:
    voxels = np.zeros(shape, dtype=dtype)
    return voxels if _inflate_into(voxels.reshape(-1).view(np.uint8), file) else None


def _copied(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic] | None:
    # Checked before the array is allocated: the size in the header may be false.
    present, count = os.fstat(file.fileno()).st_size - file.tell(), math.prod(shape)
    if present < count * dtype.itemsize:
        return None
    voxels = np.fromfile(file, dtype, count)
    return voxels.reshape(shape) if voxels.size == count else None


def packed(voxels: npt.NDArray[np.uint8], geometry: Geometry) -> bytes:
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


def unpacked(content: bytes, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """The voxels (z, y, x) of a file that `packed` made on this grid."""
    pixels = zlib_ng.decompress(content.partition(_LAST_LINE)[2])
    return np.frombuffer(pixels, dtype=np.uint8).reshape(geometry.array_shape).copy()


def check_header(path: Path, error: type[HecktorError]) -> None:
    """Reject a MetaImage header that ITK misreads.

    ITK reads out of bounds on an absurd NDims, takes a non-numeric origin for 0, and needs 7 s for 60 MB of comments.
    """
    with path.open("rb") as file:
        fields = mha_fields(file)
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


def mha_fields(file: BinaryIO) -> dict[str, str]:
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


def is_plain_header(file: BinaryIO) -> bool:
    """Whether the text header of a MetaImage is unambiguous: plain lines, each key once.

    MetaIO also ends a key at a colon, and its blanks are not those of Unicode. A crafted header can therefore point
    `mha_fields` to one place of the pixels and ITK to another, in any file.
    """
    keys: set[bytes] = set()
    for raw in _header_lines(file):
        line = _PLAIN_LINE.fullmatch(raw)
        if line is None or line[1] in keys:
            return False
        keys.add(line[1])
        if line[1] == _PIXELS_BEGIN.encode():
            return True
    return False


def _is_compressed(fields: Mapping[str, str]) -> bool:
    return fields.get("CompressedData", "False").lower() == "true"


def _dtype(fields: Mapping[str, str]) -> np.dtype[np.generic] | None:
    plain = (
        fields.get(_PIXELS_BEGIN, "").upper() == "LOCAL"
        and fields.get("CompressedData", "False").lower() in ("true", "false")
        and (not _is_compressed(fields) or fields.get("CompressedDataSize", "").isdecimal())
        and fields.get("BinaryData", "True").lower() == "true"
        and fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False")).lower() == "false"
        and fields.get("ElementNumberOfChannels", "1") == "1"
        and "HeaderSize" not in fields
    )
    name = _TYPES.get(fields.get("ElementType", ""))
    return np.dtype(name) if plain and name else None


def _inflate_into(target: npt.NDArray[np.uint8], file: BinaryIO) -> bool:
    """Inflate a stream into `target`, an array of zeros; False if it is damaged or of another length.

    Zeros are not copied, so that most pages of a mask take no memory.
    """
    inflater, size, pending = zlib_ng.decompressobj(), 0, b""
    while not inflater.eof:
        pending = pending or file.read(_BLOCK)
        try:
            piece = inflater.decompress(pending, _PIECE)
        except zlib_ng.error:  # type: ignore[misc]  # not an exception class by its stub
            return False
        if size + len(piece) > target.size or not (pending or piece):
            return False
        pending = inflater.unconsumed_tail
        if piece != _ZEROS[: len(piece)]:
            target[size : size + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        size += len(piece)
    return size == target.size
