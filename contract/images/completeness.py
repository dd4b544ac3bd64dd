"""Detect truncated or damaged pixel data, which ITK reads silently or with a mere warning.

ITK fills the rest of a damaged MetaImage or a truncated NIfTI with zeros.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from contract.images.metaimage import is_plain_header, mha_fields

_BLOCK: Final = 1 << 20
# Bytes allowed before the pixels of a NIfTI, in extensions, and after them; a bomb has more.
_SURPLUS: Final = 1 << 24
HEADER_BYTES: Final = 348

# Bits per voxel by datatype code; source: nifti1.h.
_BITS: Final[Mapping[int, int]] = {
    2: 8,
    4: 16,
    8: 32,
    16: 32,
    32: 64,
    64: 64,
    128: 24,
    256: 8,
    512: 16,
    768: 32,
    1024: 64,
    1280: 64,
    1536: 128,
    1792: 128,
    2304: 32,
}


Fault = tuple[str, str]  # found, expected


def defect(path: Path, voxel_count: int, bytes_per_voxel: int) -> Fault | None:
    """The defect of an image's pixel data as (found, expected); None if the data is complete.

    Args:
        path: `.mha`, `.mhd`, `.nii.gz` or `.nii` file with a valid header; other files are not checked.
        voxel_count: number of voxels by the header.
        bytes_per_voxel: size of the file's pixel type.
    """
    name = path.name.lower()
    if name.endswith(".mha"):
        return _mha_defect(path, voxel_count * bytes_per_voxel)
    if name.endswith(".mhd"):
        return _mhd_defect(path, voxel_count * bytes_per_voxel)
    if name.endswith((".nii.gz", ".nii")):
        return nifti_defect(path)
    return None


def _mha_defect(path: Path, expected: int) -> Fault | None:
    fault = _mha_pixels_defect(path, expected)
    if fault:
        return fault
    with path.open("rb") as file:
        plain = is_plain_header(file)
    return None if plain else ("an ambiguous header", "plain `key = value` lines")


def _mha_pixels_defect(path: Path, expected: int) -> Fault | None:
    fields, start = _mha_fields(path)
    if fields.get("ElementDataFile", "").upper() != "LOCAL":
        return "the pixels are in another file", "them in the same file"
    if fields.get("HeaderSize", "0") != "0":
        return f"HeaderSize {fields['HeaderSize'][:40]!r}", "the pixels directly after the header"
    present = path.stat().st_size - start
    if fields.get("CompressedData", "False").lower() != "true":
        as_text = fields.get("BinaryData", "True").lower() == "false"
        return None if present >= expected or as_text else _truncated(present, expected)
    stated = fields.get("CompressedDataSize", "")
    if not stated.isdecimal():
        return f"CompressedDataSize {stated[:40]!r}", "a number of bytes"
    if present < int(stated):
        return _truncated(present, int(stated))
    with path.open("rb") as file:
        file.seek(start)
        return _zlib_defect(file, expected)


def _mhd_defect(path: Path, expected: int) -> Fault | None:
    """As `_mha_defect`, for pixels in a file beside the header."""
    fields, _ = _mha_fields(path)
    name = fields.get("ElementDataFile", "")
    pixels = path.parent / name
    if not name or Path(name).name != name or not pixels.is_file():
        return f"its pixels are in {name[:40]!r}", "an existing file beside it"
    if fields.get("HeaderSize", "0") not in ("0", "-1"):  # -1: the pixels end the file
        return f"HeaderSize {fields['HeaderSize'][:40]!r}", "the pixels alone in their file"
    with path.open("rb") as header, pixels.open("rb") as file:
        if not is_plain_header(header):
            return "an ambiguous header", "plain `key = value` lines"
        if fields.get("CompressedData", "False").lower() == "true":
            return _zlib_defect(file, expected)
    present = pixels.stat().st_size
    return None if present >= expected else _truncated(present, expected)


def _mha_fields(path: Path) -> tuple[dict[str, str], int]:
    """The text header of a MetaImage and the offset of its pixel data."""
    with path.open("rb") as file:
        return mha_fields(file), file.tell()


def _zlib_defect(file: BinaryIO, expected: int) -> Fault | None:
    inflater, size = zlib.decompressobj(), 0
    try:
        # In blocks, and no further than the size in the header: the stream may be a decompression bomb.
        while not inflater.eof and size <= expected and (block := inflater.unconsumed_tail or file.read(_BLOCK)):
            size += len(inflater.decompress(block, _BLOCK))
    except zlib.error as problem:
        return f"damaged compressed pixel data ({problem})", f"{expected} bytes"
    if size > expected:
        return _overlong(expected)
    return None if inflater.eof and size == expected else _truncated(size, expected)


def nifti_defect(path: Path, *, header_only: bool = False) -> Fault | None:
    """The defect of a NIfTI; `header_only` reads no more than ITK may see without harm.

    ITK reads a header's extensions, of any size, before anything can be compared.
    """
    size = 0
    try:
        with path.open("rb") if path.suffix.lower() == ".nii" else gzip.open(path, "rb") as file:
            start = file.read(HEADER_BYTES)
            header, size = parse_header(start), len(start)
            if header.fault or header_only:
                return header.fault
            while block := file.read(_BLOCK):
                size += len(block)
                if size > header.content_bytes + _SURPLUS:
                    return _overlong(header.content_bytes)
    except EOFError:
        return f"truncated, the gzip stream ends after {size} bytes of content", "a complete stream"
    except (gzip.BadGzipFile, zlib.error) as problem:
        return f"a damaged gzip stream ({problem})", "a complete stream"
    return None if size >= header.content_bytes else _truncated(size, header.content_bytes)


def _overlong(expected: int) -> Fault:
    return "compressed pixel data that inflates to more than its header states", f"{expected} bytes"


def _truncated(size: int, expected: int) -> Fault:
    return f"truncated, {size} bytes of pixel data", str(expected)


@dataclass(frozen=True)
class NiftiHeader:
    """Expected size of the uncompressed file, and the fault of the header or None."""

    content_bytes: int
    fault: Fault | None


def parse_header(header: bytes) -> NiftiHeader:
    """Parse a header of either byte order; bytes of another format give a fault."""
    order = next((o for o in "<>" if header[:4] == struct.pack(f"{o}i", HEADER_BYTES)), None)
    if order is None or len(header) < HEADER_BYTES:
        return NiftiHeader(HEADER_BYTES, ("no NIfTI-1 header", f"one of {HEADER_BYTES} bytes"))
    rank, *lengths = struct.unpack_from(f"{order}8h", header, 40)
    datatype, bits = struct.unpack_from(f"{order}2h", header, 70)
    (start,) = struct.unpack_from(f"{order}f", header, 108)
    if header[344:348] != b"n+1\0":
        return NiftiHeader(HEADER_BYTES, ("a header whose pixels are in another file", "them in the same file"))
    if not 0 <= start <= _SURPLUS:
        return NiftiHeader(HEADER_BYTES, (f"vox_offset {start:g}", f"at most {_SURPLUS} bytes"))
    voxels = math.prod(lengths[:rank])
    content = int(start) + voxels * max(bits, _BITS.get(datatype, 0)) // 8
    return NiftiHeader(content, _pixel_fault(datatype, bits) or _grid_fault(header, order))


def _pixel_fault(datatype: int, bits: int) -> Fault | None:
    expected = _BITS.get(datatype)
    if expected is None:
        return f"pixel type {datatype}", "a numeric type"
    return None if bits == expected else (f"{bits} bits per voxel", f"{expected} for its pixel type")


def _grid_fault(header: bytes, order: str) -> Fault | None:
    spacing = struct.unpack_from(f"{order}3f", header, 80)
    if not all(math.isfinite(step) and step != 0 for step in spacing):
        return f"spacing ({', '.join(f'{step:g}' for step in spacing)}) mm", "positive numbers"
    qform, sform = struct.unpack_from(f"{order}2h", header, 252)
    numbers = struct.unpack_from(f"{order}6f", header, 256) if qform > 0 else ()
    numbers += struct.unpack_from(f"{order}12f", header, 280) if sform > 0 else ()
    if not all(map(math.isfinite, numbers)):
        return "a number in the geometry is not finite", "finite numbers"
    return None
