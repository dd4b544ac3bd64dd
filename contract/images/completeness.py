"""Find pixel data that is cut off or damaged, which ITK reads in silence or with no more than a warning.

MetaImage: ITK takes a damaged compressed stream for zeros. NIfTI: a gzip stream that ends early gives zeros. TIFF: a
file that ends early gives fewer pages.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from contract.images import nifti
from contract.images.metaimage import is_plain_header, mha_fields

_BLOCK: Final = 1 << 20
# What may follow the pixels of a NIfTI; more is a stream that inflates without end.
_SURPLUS: Final = 1 << 24
# TIFF field types by which offsets and byte counts are written: SHORT, LONG, LONG8.
_TIFF_INTEGERS: Final = {3: "H", 4: "I", 16: "Q"}
# Strip and tile offsets with the tag that holds the byte counts.
_TIFF_DATA: Final = {273: 279, 324: 325}


def defect(path: Path, voxel_count: int, bytes_per_voxel: int) -> str | None:
    """What is wrong with the pixel data of an image whose header is sound, in words; None where all is there.

    Args:
        path: an `.mha`, `.nii.gz`, `.tif` or `.tiff` file; anything else is not looked into.
        voxel_count: voxels by the header.
        bytes_per_voxel: of the file's own pixel type.
    """
    name = path.name.lower()
    if name.endswith(".mha"):
        return _mha_defect(path, voxel_count * bytes_per_voxel)
    if name.endswith(".nii.gz"):
        return _nifti_defect(path)
    if name.endswith((".tif", ".tiff")):
        return _tiff_defect(path)
    return None


def _mha_defect(path: Path, expected: int) -> str | None:
    fault = _mha_pixels_defect(path, expected)
    if fault:
        return fault
    with path.open("rb") as file:
        plain = is_plain_header(file)
    return None if plain else "a header that readers understand in several ways, expected plain `key = value` lines"


def _mha_pixels_defect(path: Path, expected: int) -> str | None:
    fields, start = _mha_fields(path)
    if fields.get("ElementDataFile", "").upper() != "LOCAL":
        return "its pixels lie in another file, expected them in the same file"
    if fields.get("HeaderSize", "0") != "0":
        return f"HeaderSize {fields['HeaderSize'][:40]!r}, expected the pixels right after the header"
    present = path.stat().st_size - start
    if fields.get("CompressedData", "False").lower() != "true":
        as_text = fields.get("BinaryData", "True").lower() == "false"
        return None if present >= expected or as_text else _truncated(present, expected)
    stated = fields.get("CompressedDataSize", "")
    if not stated.isdecimal():
        return f"CompressedDataSize {stated[:40]!r}, expected a number of bytes"
    if present < int(stated):
        return _truncated(present, int(stated))
    with path.open("rb") as file:
        file.seek(start)
        return _zlib_defect(file, expected)


def _mha_fields(path: Path) -> tuple[dict[str, str], int]:
    """The text header of a MetaImage and the offset of its pixel data."""
    with path.open("rb") as file:
        return mha_fields(file), file.tell()


def _zlib_defect(file: BinaryIO, expected: int) -> str | None:
    inflater, found = zlib.decompressobj(), 0
    try:
        # In pieces, and no further than the header promises: a small stream may inflate without end.
        while not inflater.eof and found <= expected and (block := inflater.unconsumed_tail or file.read(_BLOCK)):
            found += len(inflater.decompress(block, _BLOCK))
    except zlib.error as problem:
        return f"its compressed pixel data is damaged ({problem}), expected {expected} bytes"
    if found > expected:
        return _overlong(expected)
    return None if inflater.eof and found == expected else _truncated(found, expected)


def _nifti_defect(path: Path) -> str | None:
    found = 0
    try:
        with gzip.open(path, "rb") as file:
            start = file.read(nifti.HEADER_BYTES)
            header, found = nifti.parse_header(start), len(start)
            if header.fault:
                return header.fault
            while block := file.read(_BLOCK):
                found += len(block)
                if found > header.content_bytes + _SURPLUS:
                    return _overlong(header.content_bytes)
    except EOFError:
        return f"truncated, its gzip stream ends after {found} bytes of content"
    except (gzip.BadGzipFile, zlib.error) as problem:
        return f"its gzip stream is damaged ({problem})"
    return None if found >= header.content_bytes else _truncated(found, header.content_bytes)


def _tiff_defect(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            for number, ends in enumerate(_tiff_pages(file)):
                if ends > size:
                    return f"truncated, page {number + 1} ends at byte {ends} of {size}"
        except (struct.error, KeyError):
            return f"truncated or damaged, its {size} bytes end within the list of pages"
    return None


def _tiff_pages(file: BinaryIO) -> Iterator[int]:
    """For each page the byte at which its pixels end."""
    order = {b"II": "<", b"MM": ">"}[file.read(2)]
    (version,) = struct.unpack(f"{order}H", file.read(2))
    big = version == 43
    if big:
        file.seek(8)
    pointer = f"{order}{'Q' if big else 'I'}"
    offset = _unpacked(file, pointer)
    seen: set[int] = set()
    while offset and offset not in seen:
        seen.add(offset)
        file.seek(offset)
        count = _unpacked(file, f"{order}{'Q' if big else 'H'}")
        table = file.read(count * (20 if big else 12))
        offset = _unpacked(file, pointer)
        yield _page_end(file, table, order, big)


def _page_end(file: BinaryIO, table: bytes, order: str, big: bool) -> int:
    entries = {}
    for tag, kind, count, value in struct.iter_unpack(f"{order}HHQ8s" if big else f"{order}HHI4s", table):
        if kind in _TIFF_INTEGERS:
            entries[tag] = (f"{order}{count}{_TIFF_INTEGERS[kind]}", value)
    ends = [0]
    for where, how_long in _TIFF_DATA.items():
        if where in entries and how_long in entries:
            starts, lengths = (_tiff_values(file, *entries[tag], order) for tag in (where, how_long))
            ends += [start + length for start, length in zip(starts, lengths, strict=False)]
    return max(ends)


def _tiff_values(file: BinaryIO, layout: str, value: bytes, order: str) -> tuple[int, ...]:
    wanted = struct.calcsize(layout)
    if wanted <= len(value):
        return struct.unpack(layout, value[:wanted])
    (offset,) = struct.unpack(f"{order}{'Q' if len(value) == 8 else 'I'}", value)
    file.seek(offset)
    return struct.unpack(layout, file.read(wanted))


def _unpacked(file: BinaryIO, layout: str) -> int:
    number: int = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return number


def _overlong(expected: int) -> str:
    return f"its compressed pixel data inflates to more than the {expected} bytes of its header"


def _truncated(found: int, expected: int) -> str:
    return f"truncated, {found} bytes of pixel data found, {expected} expected"
