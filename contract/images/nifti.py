"""Read a NIfTI-1 file: its header, checked for what ITK misreads, and its voxels, in one pass with a check of the data.

ITK reads NaN and infinities as 0, takes one of two contradictory placements without a word, needs minutes for many
extensions, and refuses axes that are almost perpendicular.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from contract.images.geometry import Geometry

Fault = tuple[str, str]  # found, expected

HEADER_BYTES: Final = 348
_BLOCK: Final = 1 << 20
# Bytes allowed before the pixels, in extensions, and after them; a bomb has more.
_SURPLUS: Final = 1 << 24
# ITK's time grows with the square of their number; files of scanners and tools have a few.
_MAX_EXTENSIONS: Final = 100
# Two placements contradict each other if a corner of the image moves by more.
_HALF_A_VOXEL: Final = 0.5
_UNSCALED: Final = (1.0, 0.0)  # slope and intercept
# From the file's RAS to LPS.
_LPS: Final = np.array([-1.0, -1.0, 1.0])

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
# The numeric types by datatype code.
_TYPES: Final[Mapping[int, str]] = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    64: "f8",
    256: "i1",
    512: "u2",
    768: "u4",
    1024: "i8",
    1280: "u8",
}

_Affine = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NiftiHeader:
    """A header: `content_bytes` of the whole uncompressed file, and the fault of the header or None.

    The affines, (3, 4) from voxels (x, y, z, 1) to LPS mm, are None where their code is 0. `dtype` is None for types
    that are no numbers; `scaling` holds the slope and the intercept of the values.
    """

    content_bytes: int
    fault: Fault | None
    order: str = "<"
    start: int = HEADER_BYTES
    shape: tuple[int, int, int] = (1, 1, 1)
    pixdim_mm: tuple[float, float, float] = (1.0, 1.0, 1.0)
    sform: _Affine | None = None
    qform: _Affine | None = None
    dtype: np.dtype[np.generic] | None = None
    scaling: tuple[float, float] = _UNSCALED

    @property
    def geometry(self) -> Geometry:
        """The grid by the sform, with the spacing of `pixdim`, as ITK reads it."""
        affine = np.eye(3, 4) if self.sform is None else self.sform
        axes = affine[:, :3] / np.linalg.norm(affine[:, :3], axis=0)
        x, y, z = map(float, affine[:, 3])
        return Geometry(self.shape, self.pixdim_mm, (x, y, z), tuple(map(float, axes.ravel())))

    @property
    def pixel_type(self) -> str:
        """The type of the values in ITK's words."""
        dtype = self.dtype or np.dtype("u1")
        if dtype.kind == "f" or self.scaling != _UNSCALED:
            return f"{max(32, 8 * dtype.itemsize * (dtype.kind == 'f'))}-bit float"
        return f"{8 * dtype.itemsize}-bit {'unsigned' if dtype.kind == 'u' else 'signed'} integer"

    def values_of(self, stored: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Stored numbers in native byte order, scaled as ITK scales them."""
        native = stored.astype(stored.dtype.newbyteorder("="), copy=False)
        if self.scaling == _UNSCALED:
            return native
        slope, intercept = self.scaling
        scaled: npt.NDArray[Any] = np.empty(native.shape, np.float64 if native.dtype == np.float64 else np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for target, plane in zip(scaled, native, strict=True):  # by plane to save memory
                target[...] = plane.astype(np.float64) * slope + intercept
        return scaled


def header_defect(path: Path) -> Fault | None:
    """The fault of a file's header and extensions; reads no more than ITK may see without harm.

    ITK reads extensions, of any size, before anything can be compared.
    """

    def read(file: BinaryIO) -> Fault | None:
        header = parse_header(file.read(HEADER_BYTES))
        return header.fault or _extension_fault(file.read(header.start - HEADER_BYTES), header.order)

    return _guarded(read, path)


def defect(path: Path) -> Fault | None:
    """The defect of a whole file as (found, expected); None if it is sound."""
    return _guarded(lambda file: _read_all(file, parse_header(file.read(HEADER_BYTES)), None), path)


def read_header(path: Path) -> NiftiHeader:
    """The header of a file that `header_defect` passed."""
    with _opened(path) as file:
        return parse_header(file.read(HEADER_BYTES))


def read_voxels(path: Path, array_shape: tuple[int, int, int]) -> npt.NDArray[np.generic] | Fault:
    """The values (z, y, x) in native byte order, scaled as ITK scales them, or the file's defect.

    NaN and infinities are kept.
    """
    header = read_header(path)
    if header.dtype is None:
        return "voxels that are not numbers", "numbers"
    present = path.stat().st_size
    if path.suffix.lower() == ".nii" and present < header.content_bytes:  # before the array is allocated
        return truncated(present, header.content_bytes)
    stored = np.zeros(math.prod(array_shape) * header.dtype.itemsize, dtype=np.uint8)

    def read(file: BinaryIO) -> Fault | None:
        return _read_all(file, parse_header(file.read(HEADER_BYTES)), stored)

    return _guarded(read, path) or header.values_of(stored.view(header.dtype).reshape(array_shape))


def _guarded(read: Callable[[BinaryIO], Fault | None], path: Path) -> Fault | None:
    """What `read` finds in the uncompressed content, or the damage of its compression."""
    with _opened(path) as file:
        try:
            return read(file)
        except EOFError:
            return f"truncated, the gzip stream ends after {file.tell()} bytes of content", "a complete stream"
        except (gzip.BadGzipFile, zlib.error) as problem:
            return f"a damaged gzip stream ({problem})", "a complete stream"


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, path.open("rb") if path.suffix.lower() == ".nii" else gzip.open(path, "rb"))


def _read_all(file: BinaryIO, header: NiftiHeader, voxels: npt.NDArray[np.uint8] | None) -> Fault | None:
    """Read what follows the header, its voxels into `voxels` where they are wanted."""
    if header.fault:
        return header.fault
    size = HEADER_BYTES + len(file.read(header.start - HEADER_BYTES))
    while block := file.read(_BLOCK):
        if voxels is not None:
            part = voxels[size - header.start :][: len(block)]
            part[:] = np.frombuffer(block, dtype=np.uint8)[: part.size]
        size += len(block)
        if size > header.content_bytes + _SURPLUS:
            return overlong(header.content_bytes)
    return None if size >= header.content_bytes else truncated(size, header.content_bytes)


def overlong(expected: int) -> Fault:
    """The fault of a decompression bomb."""
    return "compressed pixel data that inflates to more than its header states", f"{expected} bytes"


def truncated(size: int, expected: int) -> Fault:
    """The fault of data that ends early."""
    return f"truncated, {size} bytes of pixel data", str(expected)


def parse_header(header: bytes) -> NiftiHeader:
    """Parse a header of either byte order; bytes of another format give a fault."""
    order = next((o for o in "<>" if header[:4] == struct.pack(f"{o}i", HEADER_BYTES)), None)
    if order is None or len(header) < HEADER_BYTES:
        return NiftiHeader(HEADER_BYTES, ("no NIfTI-1 header", f"one of {HEADER_BYTES} bytes"))
    rank, *lengths = struct.unpack_from(f"{order}8h", header, 40)
    datatype, bits = struct.unpack_from(f"{order}2h", header, 70)
    start, slope, intercept = struct.unpack_from(f"{order}3f", header, 108)
    if header[344:348] != b"n+1\0":
        return NiftiHeader(HEADER_BYTES, ("a header whose pixels are in another file", "them in the same file"))
    if not 0 <= start <= _SURPLUS:
        return NiftiHeader(HEADER_BYTES, (f"vox_offset {start:g}", f"at most {_SURPLUS} bytes"))
    begin = max(HEADER_BYTES, int(start))
    voxels = math.prod(lengths[:rank])
    x, y, z = (max(1, length) for length in (*lengths[:rank], 1, 1, 1)[:3])
    parsed = NiftiHeader(
        content_bytes=begin + voxels * max(bits, _BITS.get(datatype, 0)) // 8,
        fault=_pixel_fault(datatype, bits) or _number_fault(header, order),
        order=order,
        start=begin,
        shape=(x, y, z),
        dtype=np.dtype(f"{order}{_TYPES[datatype]}") if datatype in _TYPES else None,
        scaling=(slope if math.isfinite(slope) and slope else 1.0, intercept if math.isfinite(intercept) else 0.0),
    )
    return parsed if parsed.fault else _placed(parsed, header)


def _placed(parsed: NiftiHeader, header: bytes) -> NiftiHeader:
    """The header with its placements, and the contradiction between them as its fault."""
    order = parsed.order
    handed, *pixdim = struct.unpack_from(f"{order}4f", header, 76)
    qcode, scode = struct.unpack_from(f"{order}2h", header, 252)
    x, y, z = map(abs, pixdim)
    placed = replace(
        parsed,
        pixdim_mm=(x, y, z),
        sform=_sform(struct.unpack_from(f"{order}12f", header, 280)) if scode > 0 else None,
        qform=_qform(struct.unpack_from(f"{order}6f", header, 256), (x, y, z), handed) if qcode > 0 else None,
    )
    return replace(placed, fault=_contradiction(placed))


def _pixel_fault(datatype: int, bits: int) -> Fault | None:
    expected = _BITS.get(datatype)
    if expected is None:
        return f"pixel type {datatype}", "a numeric type"
    return None if bits == expected else (f"{bits} bits per voxel", f"{expected} for its pixel type")


def _number_fault(header: bytes, order: str) -> Fault | None:
    spacing = struct.unpack_from(f"{order}3f", header, 80)
    if not all(math.isfinite(step) and step != 0 for step in spacing):
        return f"spacing {_numbers(spacing)} mm", "positive numbers"
    qform, sform = struct.unpack_from(f"{order}2h", header, 252)
    numbers = struct.unpack_from(f"{order}6f", header, 256) if qform > 0 else ()
    numbers += struct.unpack_from(f"{order}12f", header, 280) if sform > 0 else ()
    if not all(map(math.isfinite, numbers)):
        return "a number in the geometry is not finite", "finite numbers"
    return None


def _sform(rows: Sequence[float]) -> _Affine:
    return np.asarray(np.reshape(rows, (3, 4)) * _LPS[:, None], dtype=np.float64)


def _qform(numbers: Sequence[float], pixdim_mm: Sequence[float], handed: float) -> _Affine:
    """The affine of a quaternion (b, c, d) with its offsets; a negative `handed` mirrors the third axis."""
    b, c, d, *offset = numbers
    rest = 1 - (b * b + c * c + d * d)
    a, b, c, d = np.array([math.sqrt(max(0.0, rest)), b, c, d]) / (1 if rest > 0 else math.sqrt(1 - rest))
    rotation = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
    steps = np.multiply(pixdim_mm, (1, 1, -1 if handed < 0 else 1))
    return np.asarray(np.column_stack([np.asarray(rotation) * steps, offset]) * _LPS[:, None], dtype=np.float64)


def _contradiction(header: NiftiHeader) -> Fault | None:
    """Two voxel sizes or placements in one header; each program takes another one."""
    if header.sform is None:
        return None
    steps = np.linalg.norm(header.sform[:, :3], axis=0)
    drift = np.abs(steps / header.pixdim_mm - 1) * header.shape
    if drift.max() > _HALF_A_VOXEL:
        found = f"voxels of {_numbers(header.pixdim_mm)} mm by pixdim and of {_numbers(steps)} mm by the sform"
        return found, "one size (nibabel: image.header.set_zooms, or save with the right affine)"
    if header.qform is None:
        return None
    corners = np.array([*product(*((0, length - 1) for length in header.shape))])
    by_sform, by_qform = (corners @ affine[:, :3].T + affine[:, 3] for affine in (header.sform, header.qform))
    axes = header.qform[:, :3] / header.pixdim_mm
    apart = np.abs((by_sform - by_qform) @ axes / header.pixdim_mm).max(axis=1)
    worst = int(apart.argmax())
    if apart[worst] <= _HALF_A_VOXEL:
        return None
    voxel = ", ".join(map(str, corners[worst]))
    places = f"at {_numbers(by_sform[worst])} mm by the sform and at {_numbers(by_qform[worst])} mm by the qform"
    found = f"two placements, voxel ({voxel}) lies {places} (LPS)"
    return found, "one placement (nibabel: set_sform and set_qform with the right affine)"


def _extension_fault(content: bytes, order: str) -> Fault | None:
    """The first four bytes say whether there are extensions; each begins with its size, a multiple of 16."""
    place, count = 4, 0
    while content[:1] > b"\0" and place + 8 <= len(content):
        (size,) = struct.unpack_from(f"{order}i", content, place)
        if size < 16 or size % 16:
            return None
        place, count = place + size, count + 1
        if count > _MAX_EXTENSIONS:
            return f"more than {_MAX_EXTENSIONS} extensions before its voxels", "a file without them"
    return None


def _numbers(values: Iterable[float]) -> str:
    return f"({', '.join(f'{value:.6g}' for value in values)})"
