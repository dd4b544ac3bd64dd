"""The header of a single-file NIfTI-1, looked at before ITK sees it.

ITK believes one of a header's statements where two disagree: a pixel type other than the number of bits beside it, a
spacing of zero or NaN beside a sound matrix.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 348

# Bits a voxel by the code of the pixel type; source: nifti1.h.
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


@dataclass(frozen=True)
class NiftiHeader:
    """How many bytes there must be from the begin of the file on, and what is wrong with the header, in words."""

    content_bytes: int
    fault: str | None


def parse_header(header: bytes) -> NiftiHeader:
    """The header, of either byte order; anything that is no NIfTI-1 header has a fault."""
    order = next((o for o in "<>" if header[:4] == struct.pack(f"{o}i", HEADER_BYTES)), None)
    if order is None or len(header) < HEADER_BYTES:
        return NiftiHeader(HEADER_BYTES, f"no NIfTI-1 header, expected one of {HEADER_BYTES} bytes")
    rank, *lengths = struct.unpack_from(f"{order}8h", header, 40)
    datatype, bits = struct.unpack_from(f"{order}2h", header, 70)
    (start,) = struct.unpack_from(f"{order}f", header, 108)
    if not math.isfinite(start):
        return NiftiHeader(HEADER_BYTES, f"vox_offset {start:g}, expected a number of bytes")
    voxels = math.prod(lengths[:rank])
    content = int(start) + voxels * max(bits, _BITS.get(datatype, 0)) // 8
    return NiftiHeader(content, _pixel_fault(datatype, bits) or _grid_fault(header, order))


def _pixel_fault(datatype: int, bits: int) -> str | None:
    expected = _BITS.get(datatype)
    if expected is None:
        return f"pixels of type {datatype}, expected numbers"
    return None if bits == expected else f"{bits} bits a voxel, expected {expected} by its type of pixels"


def _grid_fault(header: bytes, order: str) -> str | None:
    spacing = struct.unpack_from(f"{order}3f", header, 80)
    if not all(math.isfinite(step) and step != 0 for step in spacing):
        return f"spacing ({', '.join(f'{step:g}' for step in spacing)}) mm, expected positive numbers"
    qform, sform = struct.unpack_from(f"{order}2h", header, 252)
    numbers = struct.unpack_from(f"{order}6f", header, 256) if qform > 0 else ()
    numbers += struct.unpack_from(f"{order}12f", header, 280) if sform > 0 else ()
    if not all(map(math.isfinite, numbers)):
        return "its grid holds a number that is not finite, expected a plain geometry"
    return None
