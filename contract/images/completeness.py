"""Detect truncated or damaged pixel data, which ITK reads silently or with a mere warning.

ITK fills the rest of a damaged MetaImage or a truncated NIfTI with zeros.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO, Final

from contract.images import nifti
from contract.images.metaimage import is_plain_header, mha_fields
from contract.images.nifti import Fault, overlong, truncated

_BLOCK: Final = 1 << 20


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
        return nifti.defect(path)
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
        return None if present >= expected or as_text else truncated(present, expected)
    stated = fields.get("CompressedDataSize", "")
    if not stated.isdecimal():
        return f"CompressedDataSize {stated[:40]!r}", "a number of bytes"
    if present < int(stated):
        return truncated(present, int(stated))
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
    return None if present >= expected else truncated(present, expected)


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
        return overlong(expected)
    return None if inflater.eof and size == expected else truncated(size, expected)
