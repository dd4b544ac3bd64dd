"""Read a NIfTI-1 file: its header, checked for what ITK misreads, and its voxels, in one pass with a check of the data.

ITK reads NaN and infinities as 0, takes one of two contradictory placements without a word, needs minutes for many
extensions, and refuses axes that are almost perpendicular.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from contract.images.geometry import Geometry

HEADER_BYTES: Final = 348
_BLOCK: Final = 1 << 20
# Bytes allowed before the pixels, in extensions, and after them; a bomb has more.
_SURPLUS: Final = 1 << 24
# ITK's time grows with the square of their number; files of scanners and tools have a few.
_MAX_EXTENSIONS: Final = 100
# Two placements contradict each other if a corner of the image moves by more.
_HALF_A_VOXEL: Final = 0.5
# Millimetres of the unit of length by its code, the lowest three bits; other codes mean millimetres.
_MM_BY_UNIT: Final[Mapping[int, float]] = {1: 1e3, 2: 1.0, 3: 1e-3}
_UNSCALED: Final = (1.0, 0.0)  # slope and intercept
# From the file's RAS to LPS.
_LPS: Final = np.array([-1.0, -1.0, 1.0])

# The fields that are read; source: nifti1.h. The first entry of `pixdim` is the handedness of the quaternion.
_FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "sizeof_hdr": ("i4", 0),
    "dim": ("8i2", 40),
    "datatype": ("i2", 70),
    "bitpix": ("i2", 72),
    "pixdim": ("4f4", 76),
    "vox_offset": ("f4", 108),
    "scaling": ("2f4", 112),
    "units": ("u1", 123),
    "form_codes": ("2i2", 252),
    "quaternion": ("6f4", 256),
    "srow": ("(3,4)f4", 280),
    "magic": ("S4", 344),
}
_LAYOUT: Final = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [form for form, _ in _FIELDS.values()],
        "offsets": [offset for _, offset in _FIELDS.values()],
        "itemsize": HEADER_BYTES,
    }
)
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

Order = Literal["<", ">"]
_Affine = npt.NDArray[np.float64]


class ImageFault(Exception):  # noqa: N818 - not an error until the file has a name
    """A fault of an image file: what was found and what was expected."""


@dataclass(frozen=True)
class NiftiHeader:
    """A sound header: `content_bytes` of the whole uncompressed file, of which the voxels begin at `start`.

    `sform` is the affine, (3, 4) from voxels (x, y, z, 1) to LPS mm, None where its code is 0. `dtype` is that of the
    stored numbers in the file's byte order, `scaling` the slope and the intercept of the values.
    """

    content_bytes: int
    order: Order
    start: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, int, int]
    pixdim_mm: tuple[float, float, float]
    sform: _Affine | None
    scaling: tuple[float, float]

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
        kind, bits = self.dtype.kind, 8 * self.dtype.itemsize
        if kind == "f" or self.scaling != _UNSCALED:
            return f"{max(32, bits * (kind == 'f'))}-bit float"
        return f"{bits}-bit {'unsigned' if kind == 'u' else 'signed'} integer"

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


def read_header(path: Path) -> NiftiHeader:
    """The checked header of a file. It is read before ITK, which reads extensions, of any size, before the header.

    Raises:
        ImageFault: of the header, the extensions or their compression.
    """
    with _opened(path) as file:
        return _header_in(file)


def read_voxels(path: Path, array_shape: tuple[int, int, int]) -> npt.NDArray[np.generic]:
    """The values (z, y, x) in native byte order, scaled as ITK scales them; NaN and infinities are kept.

    Raises:
        ImageFault: of the header or the data.
    """
    with _opened(path) as file:
        header = _header_in(file)
        present = path.stat().st_size
        if path.suffix.lower() == ".nii" and present < header.content_bytes:  # before the array is allocated
            raise truncated(present, header.content_bytes)
        stored = np.zeros(array_shape, dtype=header.dtype)
        _fill(stored.reshape(-1).view(np.uint8), file, header)
    return header.values_of(stored)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The uncompressed content; damage of the compression becomes an ImageFault."""
    with cast(BinaryIO, path.open("rb") if path.suffix.lower() == ".nii" else gzip.open(path, "rb")) as file:
        try:
            yield file
        except EOFError:
            found = f"truncated, the gzip stream ends after {file.tell()} bytes of content"
            raise ImageFault(found, "a complete stream") from None
        except (gzip.BadGzipFile, zlib.error) as problem:
            raise ImageFault(f"a damaged gzip stream ({problem})", "a complete stream") from None


def _header_in(file: BinaryIO) -> NiftiHeader:
    header = parse_header(file.read(HEADER_BYTES))
    _check_extensions(file.read(header.start - HEADER_BYTES), header.order)
    return header


def _fill(voxels: npt.NDArray[np.uint8], file: BinaryIO, header: NiftiHeader) -> None:
    """Read the bytes of the voxels, and on to the end of the file, where its checksum is."""
    size = file.tell()
    while block := file.read(_BLOCK):
        part = voxels[size - header.start :][: len(block)]
        part[:] = np.frombuffer(block, dtype=np.uint8)[: part.size]
        size += len(block)
        if size > header.content_bytes + _SURPLUS:
            raise overlong(header.content_bytes)
    if size < header.content_bytes:
        raise truncated(size, header.content_bytes)


def overlong(expected: int) -> ImageFault:
    """The fault of a decompression bomb."""
    return ImageFault("compressed pixel data that inflates to more than its header states", f"{expected} bytes")


def truncated(size: int, expected: int) -> ImageFault:
    """The fault of data that ends early."""
    return ImageFault(f"truncated, {size} bytes of pixel data", str(expected))


def parse_header(content: bytes) -> NiftiHeader:
    """Parse a header of either byte order. Raises `ImageFault` for one of another format or with a contradiction."""
    orders: tuple[Order, ...] = ("<", ">")
    order = next((one for one in orders if content[:4] == np.array(HEADER_BYTES, f"{one}i4").tobytes()), None)
    if order is None or len(content) < HEADER_BYTES:
        raise ImageFault("no NIfTI-1 header", f"one of {HEADER_BYTES} bytes")
    fields = np.frombuffer(content, _LAYOUT.newbyteorder(order), 1)[0]
    if fields["magic"] != b"n+1":
        raise ImageFault("a header whose pixels are in another file", "them in the same file")
    start = float(fields["vox_offset"])
    if not 0 <= start <= _SURPLUS:
        raise ImageFault(f"vox_offset {start:g}", f"at most {_SURPLUS} bytes")
    _check_numbers(fields)
    dtype = _pixel_type(int(fields["datatype"]), int(fields["bitpix"])).newbyteorder(order)
    rank, *lengths = fields["dim"].tolist()
    x, y, z = (max(1, length) for length in (*lengths[:rank], 1, 1, 1)[:3])
    unit_mm = _MM_BY_UNIT.get(int(fields["units"]) & 7, 1.0)
    handed, *pixdim = map(float, fields["pixdim"])
    sizes = (unit_mm * abs(pixdim[0]), unit_mm * abs(pixdim[1]), unit_mm * abs(pixdim[2]))
    *quaternion, offset_x, offset_y, offset_z = fields["quaternion"].tolist()
    offset_mm = (unit_mm * offset_x, unit_mm * offset_y, unit_mm * offset_z)
    slope, intercept = map(float, fields["scaling"])
    begin = max(HEADER_BYTES, int(start))
    qform_code, sform_code = fields["form_codes"]
    header = NiftiHeader(
        content_bytes=begin + math.prod(lengths[:rank]) * dtype.itemsize,
        order=order,
        start=begin,
        dtype=dtype,
        shape=(x, y, z),
        pixdim_mm=sizes,
        sform=unit_mm * np.asarray(fields["srow"], np.float64) * _LPS[:, None] if sform_code > 0 else None,
        scaling=(slope if math.isfinite(slope) and slope else 1.0, intercept if math.isfinite(intercept) else 0.0),
    )
    qform = _qform((*quaternion, *offset_mm), sizes, handed) if qform_code > 0 else None
    _check_placements(header, qform)
    return header


def _pixel_type(datatype: int, bits: int) -> np.dtype[np.generic]:
    if datatype not in _TYPES:
        raise ImageFault(f"pixel type {datatype}", "a numeric type")
    dtype = np.dtype(_TYPES[datatype])
    if bits != 8 * dtype.itemsize:
        raise ImageFault(f"{bits} bits per voxel", f"{8 * dtype.itemsize} for its pixel type")
    return dtype


def _check_numbers(fields: np.void) -> None:
    spacing = fields["pixdim"][1:]
    if not np.all(np.isfinite(spacing) & (spacing != 0)):
        raise ImageFault(f"spacing {_numbers(spacing)}", "positive numbers")
    for code, numbers in zip(fields["form_codes"], (fields["quaternion"], fields["srow"]), strict=True):
        if code > 0 and not np.all(np.isfinite(numbers)):
            raise ImageFault("a number in the geometry is not finite", "finite numbers")


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


def _check_placements(header: NiftiHeader, qform: _Affine | None) -> None:
    """Refuse two voxel sizes or placements in one header: each program takes another one."""
    if header.sform is None:
        return
    steps = np.linalg.norm(header.sform[:, :3], axis=0)
    drift = np.abs(steps / header.pixdim_mm - 1) * header.shape
    if drift.max() > _HALF_A_VOXEL:
        found = f"voxels of {_numbers(header.pixdim_mm)} mm by pixdim and of {_numbers(steps)} mm by the sform"
        raise ImageFault(found, "one size (nibabel: image.header.set_zooms, or save with the right affine)")
    if qform is None:
        return
    corners = np.array([*product(*((0, length - 1) for length in header.shape))])
    by_sform, by_qform = (corners @ affine[:, :3].T + affine[:, 3] for affine in (header.sform, qform))
    axes = qform[:, :3] / header.pixdim_mm
    apart = np.abs((by_sform - by_qform) @ axes / header.pixdim_mm).max(axis=1)
    worst = int(apart.argmax())
    if apart[worst] > _HALF_A_VOXEL:
        voxel = ", ".join(map(str, corners[worst]))
        places = f"at {_numbers(by_sform[worst])} mm by the sform and at {_numbers(by_qform[worst])} mm by the qform"
        found = f"two placements, voxel ({voxel}) lies {places} (LPS)"
        raise ImageFault(found, "one placement (nibabel: set_sform and set_qform with the right affine)")


def _check_extensions(content: bytes, order: Order) -> None:
    """The first four bytes say whether there are extensions; each begins with its size, a multiple of 16."""
    place, count = 4, 0
    while content[:1] > b"\0" and place + 8 <= len(content):
        size = int(np.frombuffer(content, f"{order}i4", 1, place)[0])
        if size < 16 or size % 16:
            return
        place, count = place + size, count + 1
        if count > _MAX_EXTENSIONS:
            raise ImageFault(f"more than {_MAX_EXTENSIONS} extensions before its voxels", "a file without them")


def _numbers(values: Iterable[float]) -> str:
    return f"({', '.join(f'{value:.6g}' for value in values)})"
