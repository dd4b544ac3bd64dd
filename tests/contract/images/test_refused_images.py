"""Truncated, damaged and unsuitable images are rejected."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header, read_volume, to_sitk, write_volume
from tests.contract.images.example_volumes import OBLIQUE, make_noise


def save(*options: Any) -> Callable[[Path], object]:
    """Return a function that writes an image of this size and type."""
    return lambda path: sitk.WriteImage(sitk.Image(*options), str(path))


def write_detached(path: Path) -> None:
    save([4, 4, 4], sitk.sitkInt16)(path.with_suffix(".mhd"))
    path.with_suffix(".mhd").rename(path)


VAST = (
    b"ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n"
    b"ElementSpacing = 1 1 1\nDimSize = 100000 100000 100\nElementType = MET_SHORT\nElementDataFile = LOCAL\n0"
)
UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "4d": (save([4] * 4, sitk.sitkInt16), r"4 dimensions \(4 x 4 x 4 x 4\), expected a 3D image"),
    "template": (save([1, 1], sitk.sitkUInt8), r"2 dimensions \(1 x 1\), expected a 3D image"),
    "colour": (save([4, 4, 4], sitk.sitkVectorUInt8, 3), "3 channels, expected one"),
    "complex": (save([4, 4, 4], sitk.sitkComplexFloat32), "2 channels, expected one"),
    "detached": (write_detached, "another file, expected pixels in the same file"),
    "vast": (lambda path: path.write_bytes(VAST), "1000000000000 voxels, expected at most"),
    "garbage": (lambda path: path.write_bytes(bytes(range(256)) * 40), "not a readable image"),
    "empty": (lambda path: path.write_bytes(b""), "empty file, expected an image"),
    "folder": (lambda path: path.mkdir(), "not a regular file, expected an image"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_metaimages(tmp_path: Path, name: str) -> None:
    write, message = UNUSABLE[name]
    path = tmp_path / "scan.mha"
    write(path)
    with pytest.raises(InputError, match=rf"^scan\.mha: .*{message}"):
        read_volume(path)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00garbage", b"plain text", gzip.compress(b"no nifti", mtime=0)])
def test_unusable_nifti(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "scan.nii.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"^scan\.nii\.gz: "):
        read_volume(tmp_path / "scan.nii.gz")


def test_itk_messages_have_no_address_and_no_folder(tmp_path: Path) -> None:
    """ITK prints the memory address of its reader and folder names with blanks."""
    for folder in ("Task 1", "Task 1 again"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "scan.nii.gz").write_bytes(gzip.compress(bytes(400)))
    messages = set()
    for folder in ("Task 1", "Task 1 again"):
        with pytest.raises(InputError) as refused:
            read_volume(tmp_path / folder / "scan.nii.gz")
        messages.add(refused.value.message)
    (message,) = messages
    assert "0x" not in message
    assert "Task" not in message


def make_tiff(pages: list[list[tuple[int, int, int]]]) -> bytes:
    """Return a TIFF of pages with these fields (tag, type, value), each with 16 bytes of pixels after its fields."""
    body = b"II" + struct.pack("<HI", 42, 8)
    for number, fields in enumerate(pages, start=1):
        size = 2 + 12 * len(fields) + 4
        table = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in fields)
        following = len(body) + size + 16 if number < len(pages) else 0
        body += struct.pack("<H", len(fields)) + table + struct.pack("<I", following) + bytes(16)
    return body


@pytest.mark.parametrize("name", ["scan.tif", "scan.TIFF"])
def test_a_tiff_is_refused_before_itk_opens_it(tmp_path: Path, name: str) -> None:
    """Pages with different fields corrupt ITK's memory: the second lacks 258, the bits of a pixel."""
    fields = [(256, 3, 4), (257, 3, 4), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (278, 3, 4), (279, 4, 16)]
    without_bits = [field for field in fields if field[0] != 258]
    (tmp_path / name).write_bytes(make_tiff([fields, without_bits, fields]))
    for read in (read_volume, read_header):
        with pytest.raises(InputError, match=rf"^{name}: a TIFF, which stores no origin "):
            read(tmp_path / name)


@pytest.mark.parametrize(("name", "compress"), [("a.mha", True), ("a.mha", False), ("a.nii.gz", True)])
@pytest.mark.parametrize("share", [0.1, 0.999])
def test_truncated_files_are_rejected(tmp_path: Path, name: str, compress: bool, share: float) -> None:
    """ITK fills the rest with zeros or reads fewer pages, with a warning at most."""
    path = tmp_path / name
    volume = make_noise(Geometry((30, 30, 20), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    sitk.WriteImage(to_sitk(volume), str(path), compress)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match=rf"^{name}: "):
        read_volume(path)


@pytest.mark.parametrize("name", ["a.mha", "a.nii.gz"])
@pytest.mark.parametrize("seed", range(2))
def test_damaged_compressed_files_are_rejected(tmp_path: Path, name: str, seed: int) -> None:
    path = tmp_path / name
    write_volume(path, make_noise(Geometry((30, 30, 20), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))))
    content = bytearray(path.read_bytes())
    start = int(np.random.default_rng(seed).integers(len(content) // 4, len(content) - 60))
    content[start : start + 50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{name}: "):
        read_volume(path)


@pytest.mark.parametrize("size", ["", "many", "-5"])
def test_a_compressed_metaimage_without_a_valid_size(tmp_path: Path, size: str) -> None:
    path = tmp_path / "a.mha"
    write_volume(path, make_noise(OBLIQUE))
    content = path.read_bytes()
    start = content.index(b"CompressedDataSize")
    end = content.index(b"\n", start)
    path.write_bytes(content[:start] + b"CompressedDataSize = " + size.encode() + content[end:])
    with pytest.raises(InputError, match=r"^a\.mha: "):
        read_volume(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"ElementSpacing = 0.5", b"ElementSpacing = 0", "expected positive numbers"),
        (b"TransformMatrix = 1 0 0", b"TransformMatrix = 1 0.5 0", "not orthonormal"),
        (b"DimSize = 9", b"DimSize = -9", "voxels, expected at most"),
    ],
)
def test_invalid_headers_are_rejected(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    path = tmp_path / "a.mha"
    write_volume(path, make_noise(Geometry((9, 8, 7), (0.5, 1.5, 2.5), (-11.0, 22.0, -333.0))), compress=False)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(InputError, match=rf"^a\.mha: .*{message}"):
        read_volume(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((f"NDims = {rank}", r".*\(NDims") for rank in ("-5", "99999999999999", "three")),
        ("NDims = 3\nPosition = 0 -inf 0", "Position contains '-inf'"),
        ("NDims = 3\nTransformMatrix = 1 0 0 0 1 0 0 0 one", "TransformMatrix contains 'one'"),
    ],
)
def test_an_absurd_header_is_refused_before_itk_reads_it(tmp_path: Path, line: str, message: str) -> None:
    """ITK crashes the process on NDims -5 or 99999999999999."""
    path = tmp_path / "scan.mha"
    path.write_text(f"ObjectType = Image\n{line}\nDimSize = 4 4 4\nElementDataFile = LOCAL\n")
    with pytest.raises(InputError, match=rf"^scan\.mha: {message}"):
        read_header(path)
