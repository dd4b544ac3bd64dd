"""Write a volume as a compressed NIfTI-1 file in memory."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import gzip_ng

from contract.images.geometry import Geometry

_DATATYPES: Final = {"uint8": (2, 8), "int16": (4, 16)}
_MILLIMETRES: Final = 2
_SCANNER_COORDINATES: Final = 1
_PIXELS_BEGIN: Final = 352
_LPS_TO_RAS: Final = np.diag([-1.0, -1.0, 1.0, 1.0])
# The fastest: noise hardly compresses, and masks compress well at any level.
_LEVEL: Final = 1


def nifti_bytes(array: npt.NDArray[Any], geometry: Geometry, step: float = 1.0) -> bytes:
    """The file `.nii.gz` of a (z, y, x) array of uint8 or int16, equal for equal volumes.

    World coordinates are RAS in mm: LPS with x and y negated. `step` is the value of a stored 1.
    """
    header = bytearray(_PIXELS_BEGIN)
    affine = _LPS_TO_RAS @ geometry.index_to_physical_matrix()
    datatype, bits = _DATATYPES[array.dtype.name]
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *geometry.size, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, datatype, bits)
    struct.pack_into("<8f", header, 76, 1.0, *geometry.spacing_mm, 0.0, 0.0, 0.0, 0.0)
    struct.pack_into("<3f", header, 108, _PIXELS_BEGIN, step, 0.0)
    struct.pack_into("<B", header, 123, _MILLIMETRES)
    struct.pack_into("<2h", header, 252, 0, _SCANNER_COORDINATES)
    struct.pack_into("<12f", header, 280, *affine[:3].ravel())
    header[344:348] = b"n+1\0"
    pixels = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    compressed: bytes = gzip_ng.compress(bytes(header) + pixels.tobytes(), _LEVEL, mtime=0)  # type: ignore[no-untyped-call]
    return compressed
