"""Check the header of a single-file NIfTI-1 before ITK reads it.

ITK accepts contradictions silently: a pixel type that disagrees with the bits per voxel, or a spacing of zero or NaN
beside a valid matrix.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
    if not math.isfinite(start):
        return NiftiHeader(HEADER_BYTES, (f"vox_offset {start:g}", "a number of bytes"))
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
