"""Read NIfTI-1 files: check the header, and read the voxels and check their data in the same pass.

ITK reads NaN and infinities as 0, uses one of two contradictory placements without a warning, needs minutes for many
extensions, and refuses axes that are almost perpendicular.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from contract.images.geometry import Geometry, format_numbers

HEADER_BYTES: Final = 348
_BLOCK: Final = 1 << 20
# Maximum number of bytes before the pixels, in extensions, and after them; a decompression bomb has more.
_MAX_SURPLUS_BYTES: Final = 1 << 24
# ITK's time grows with the square of the number of extensions; files of scanners and tools have a few.
_MAX_EXTENSIONS: Final = 100
# Two placements contradict each other if a corner of the image moves by more.
_MAX_SHIFT_VOXELS: Final = 0.5
# Millimetres of the unit of length by its code, the lowest three bits of the field; other codes mean millimetres.
_MM_BY_UNIT: Final[Mapping[int, float]] = {1: 1e3, 2: 1.0, 3: 1e-3}
# Slope and intercept.
_UNSCALED: Final = (1.0, 0.0)
# Converts the file's RAS coordinates to LPS.
_LPS: Final = np.array([-1.0, -1.0, 1.0])

# Format and position of the fields that are read; source: nifti1.h.
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
# NumPy types by datatype code.
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


class ImageFormatError(Exception):
    """Problem of an image file, as the pair (problem, expectation); the caller adds the name of the file."""


@dataclass(frozen=True)
class NiftiHeader:
    """Checked header of a NIfTI-1 file.

    Attributes:
        content_bytes: Size of the whole uncompressed file.
        order: Byte order of header and voxels.
        start: Byte offset of the first voxel.
        dtype: Type of the stored numbers in the file's byte order.
        shape: Number of voxels along (x, y, z).
        pixdim_mm: Spacing along (x, y, z) by the field `pixdim`.
        sform: Affine of shape (3, 4) from voxels (x, y, z, 1) to LPS millimetres; None if its code is 0.
        scaling: Slope and intercept of the values.
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
        """The type of the scaled values, in the words that ITK uses."""
        bits = 8 * self.dtype.itemsize
        if self.dtype.kind == "f":
            return f"{max(32, bits)}-bit float"
        if self.scaling != _UNSCALED:
            return "32-bit float"
        return f"{bits}-bit {'unsigned' if self.dtype.kind == 'u' else 'signed'} integer"

    def scale(self, stored: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Convert stored numbers to values in native byte order as ITK does."""
        native = stored.astype(stored.dtype.newbyteorder("="), copy=False)
        if self.scaling == _UNSCALED:
            return native
        slope, intercept = self.scaling
        scaled: npt.NDArray[Any] = np.empty(native.shape, np.float64 if native.dtype == np.float64 else np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for target, plane in zip(scaled, native, strict=True):  # plane by plane to save memory
                target[...] = plane.astype(np.float64) * slope + intercept
        return scaled


def read_header(path: Path) -> NiftiHeader:
    """Read and check the header of a file.

    ITK reads extensions of any size before the header, so this function is called before ITK.

    Raises:
        ImageFormatError: The header, an extension or the compression is damaged.
    """
    with _open_uncompressed(path) as file:
        return _read_header(file)


def read_voxels(path: Path, array_shape: tuple[int, int, int]) -> npt.NDArray[np.generic]:
    """Read the voxels of a file.

    Args:
        path: The file.
        array_shape: (z, y, x) by the header.

    Returns:
        The values (z, y, x) in native byte order, scaled as ITK scales them. NaN and infinities are kept.

    Raises:
        ImageFormatError: The header or the data is damaged.
    """
    with _open_uncompressed(path) as file:
        header = _read_header(file)
        file_bytes = path.stat().st_size
        # Checked before the array is allocated: the size in the header may be false.
        if path.suffix.lower() == ".nii" and file_bytes < header.content_bytes:
            raise make_truncated_error(file_bytes, header.content_bytes)
        stored = np.zeros(array_shape, dtype=header.dtype)
        _read_into(stored.reshape(-1).view(np.uint8), file, header)
    return header.scale(stored)


@contextmanager
def _open_uncompressed(path: Path) -> Iterator[BinaryIO]:
    """Open the uncompressed content; damage of the compression raises `ImageFormatError`."""
    with cast(BinaryIO, path.open("rb") if path.suffix.lower() == ".nii" else gzip.open(path, "rb")) as file:
        try:
            yield file
        except EOFError:
            problem = f"truncated, the gzip stream ends after {file.tell()} bytes of content"
            raise ImageFormatError(problem, "a complete stream") from None
        except (gzip.BadGzipFile, zlib.error) as problem:
            raise ImageFormatError(f"a damaged gzip stream ({problem})", "a complete stream") from None


def _read_header(file: BinaryIO) -> NiftiHeader:
    header = parse_header(file.read(HEADER_BYTES))
    _check_extensions(file.read(header.start - HEADER_BYTES), header.order)
    return header


def _read_into(voxels: npt.NDArray[np.uint8], file: BinaryIO, header: NiftiHeader) -> None:
    """Read the bytes of the voxels, and go on to the end of the file, because its checksum is there."""
    size = file.tell()
    while block := file.read(_BLOCK):
        part = voxels[size - header.start :][: len(block)]
        part[:] = np.frombuffer(block, dtype=np.uint8)[: part.size]
        size += len(block)
        if size > header.content_bytes + _MAX_SURPLUS_BYTES:
            raise make_too_long_error(header.content_bytes)
    if size < header.content_bytes:
        raise make_truncated_error(size, header.content_bytes)


def make_too_long_error(expected: int) -> ImageFormatError:
    """Make the error for compressed data that is larger than its header states, as in a decompression bomb."""
    return ImageFormatError("compressed pixel data that inflates to more than its header states", f"{expected} bytes")


def make_truncated_error(size: int, expected: int) -> ImageFormatError:
    """Make the error for pixel data that ends early."""
    return ImageFormatError(f"truncated, {size} bytes of pixel data", str(expected))


def parse_header(content: bytes) -> NiftiHeader:
    """Parse and check a header of either byte order.

    Raises:
        ImageFormatError: The header has another format or contradicts itself.
    """
    order = _find_byte_order(content)
    fields = np.frombuffer(content, _LAYOUT.newbyteorder(order), 1)[0]
    if fields["magic"] != b"n+1":
        raise ImageFormatError("a header whose pixels are in another file", "pixels in the same file")
    offset = float(fields["vox_offset"])
    if not 0 <= offset <= _MAX_SURPLUS_BYTES:
        raise ImageFormatError(f"vox_offset {offset:g}", f"at most {_MAX_SURPLUS_BYTES} bytes")
    _check_numbers(fields)
    dtype = _find_pixel_type(int(fields["datatype"]), int(fields["bitpix"])).newbyteorder(order)

    rank, *all_lengths = fields["dim"].tolist()
    lengths = all_lengths[:rank]
    x, y, z = (max(1, length) for length in (*lengths, 1, 1, 1)[:3])
    unit_mm = _MM_BY_UNIT.get(int(fields["units"]) & 7, 1.0)
    step_x, step_y, step_z = (unit_mm * abs(float(step)) for step in fields["pixdim"][1:])
    slope, intercept = map(float, fields["scaling"])
    start = max(HEADER_BYTES, int(offset))
    qform_code, sform_code = fields["form_codes"]
    header = NiftiHeader(
        content_bytes=start + math.prod(lengths) * dtype.itemsize,
        order=order,
        start=start,
        dtype=dtype,
        shape=(x, y, z),
        pixdim_mm=(step_x, step_y, step_z),
        sform=unit_mm * np.asarray(fields["srow"], np.float64) * _LPS[:, None] if sform_code > 0 else None,
        scaling=(slope if math.isfinite(slope) and slope else 1.0, intercept if math.isfinite(intercept) else 0.0),
    )
    if header.sform is not None:
        _check_steps(header, header.sform)
        if qform_code > 0:
            _check_placements(header, header.sform, _compute_qform(fields, unit_mm, header.pixdim_mm))
    return header


def _find_byte_order(content: bytes) -> Order:
    orders: tuple[Order, ...] = ("<", ">")
    for order in orders:
        if len(content) >= HEADER_BYTES and content[:4] == np.array(HEADER_BYTES, f"{order}i4").tobytes():
            return order
    raise ImageFormatError("no NIfTI-1 header", f"one of {HEADER_BYTES} bytes")


def _find_pixel_type(datatype: int, bits: int) -> np.dtype[np.generic]:
    if datatype not in _TYPES:
        raise ImageFormatError(f"pixel type {datatype}", "a numeric type")
    dtype = np.dtype(_TYPES[datatype])
    if bits != 8 * dtype.itemsize:
        raise ImageFormatError(f"{bits} bits per voxel", f"{8 * dtype.itemsize} for its pixel type")
    return dtype


def _check_numbers(fields: np.void) -> None:
    spacing = fields["pixdim"][1:]
    if not np.all(np.isfinite(spacing) & (spacing != 0)):
        raise ImageFormatError(f"spacing {format_numbers(spacing)}", "positive numbers")
    for code, numbers in zip(fields["form_codes"], (fields["quaternion"], fields["srow"]), strict=True):
        if code > 0 and not np.all(np.isfinite(numbers)):
            raise ImageFormatError("a number in the geometry is not finite", "finite numbers")


def _compute_qform(fields: np.void, unit_mm: float, pixdim_mm: Sequence[float]) -> _Affine:
    """Compute the affine to LPS millimetres from the quaternion (b, c, d) of a header and its offsets."""
    b, c, d, *offset = fields["quaternion"].tolist()
    offset_mm = [unit_mm * length for length in offset]
    rest = 1 - (b * b + c * c + d * d)
    a, b, c, d = np.array([math.sqrt(max(0.0, rest)), b, c, d]) / (1 if rest > 0 else math.sqrt(1 - rest))
    rotation = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
    # The first entry of `pixdim` is the handedness: a negative number mirrors the third axis.
    steps_mm = np.multiply(pixdim_mm, (1, 1, -1 if fields["pixdim"][0] < 0 else 1))
    affine = np.column_stack([np.asarray(rotation) * steps_mm, offset_mm])
    return np.asarray(affine * _LPS[:, None], dtype=np.float64)


def _check_steps(header: NiftiHeader, sform: _Affine) -> None:
    """Refuse a header with two voxel sizes, because not all programs use the same one."""
    steps_mm = np.linalg.norm(sform[:, :3], axis=0)
    drift = np.abs(steps_mm / header.pixdim_mm - 1) * header.shape
    if drift.max() > _MAX_SHIFT_VOXELS:
        sizes = f"{format_numbers(header.pixdim_mm)} mm by pixdim and of {format_numbers(steps_mm)} mm by the sform"
        expected = "one size (nibabel: image.header.set_zooms, or save with the right affine)"
        raise ImageFormatError(f"voxels of {sizes}", expected)


def _check_placements(header: NiftiHeader, sform: _Affine, qform: _Affine) -> None:
    """Refuse a header with two placements, because not all programs use the same one."""
    corners = np.array([*product(*((0, length - 1) for length in header.shape))])
    by_sform, by_qform = (corners @ affine[:, :3].T + affine[:, 3] for affine in (sform, qform))
    axes = qform[:, :3] / header.pixdim_mm
    shift_voxels = np.abs((by_sform - by_qform) @ axes / header.pixdim_mm).max(axis=1)
    worst = int(shift_voxels.argmax())
    if shift_voxels[worst] > _MAX_SHIFT_VOXELS:
        voxel = ", ".join(map(str, corners[worst]))
        places = f"at {format_numbers(by_sform[worst])} mm by the sform"
        places += f" and at {format_numbers(by_qform[worst])} mm by the qform"
        expected = "one placement (nibabel: set_sform and set_qform with the right affine)"
        raise ImageFormatError(f"two placements, voxel ({voxel}) lies {places} (LPS)", expected)


def _check_extensions(content: bytes, order: Order) -> None:
    """Refuse a file with too many extensions.

    Args:
        content: The bytes between the header and the first voxel. The first four tell whether there are extensions.
            Each extension begins with its size, a multiple of 16.
        order: Byte order of the file.
    """
    if content[:1] <= b"\0":
        return
    position, count = 4, 0
    while position + 8 <= len(content):
        size = int(np.frombuffer(content, f"{order}i4", 1, position)[0])
        if size < 16 or size % 16:
            return
        position += size
        count += 1
        if count > _MAX_EXTENSIONS:
            raise ImageFormatError(f"more than {_MAX_EXTENSIONS} extensions before its voxels", "a file without them")
