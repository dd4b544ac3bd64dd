"""Images that a user names individually: uncompressed NIfTI, and MetaImage with its pixels in another file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import InputError, OutputError
from contract.images.volumes import list_images, read_header, read_volume, to_sitk, write_volume
from tests.contract.images.example_volumes import OBLIQUE, make_noise


def write_image(path: Path, *, compress: bool = False) -> Path:
    sitk.WriteImage(to_sitk(make_noise(OBLIQUE)), str(path), useCompression=compress)
    return path


@pytest.mark.parametrize(("suffix", "compress"), [(".NII", False), (".mhd", False), (".mhd", True)])
def test_voxels_and_geometry(tmp_path: Path, suffix: str, compress: bool) -> None:
    path = write_image(tmp_path / f"scan{suffix.lower()}", compress=compress).rename(tmp_path / f"scan{suffix}")
    volume = read_volume(path)
    np.testing.assert_array_equal(volume.array, make_noise(OBLIQUE).array)
    assert volume.geometry.find_differences(OBLIQUE) == []
    assert read_header(path).geometry == volume.geometry


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_header(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "scan.mhd").write_text((folder / "scan.mhd").read_text().replace(old, new))


DAMAGED: dict[str, tuple[str, bool, Callable[[Path], object], str]] = {
    "half a NIfTI": ("scan.nii", False, lambda folder: halve(folder / "scan.nii"), "truncated, .* bytes of pixel data"),
    "half the pixels": ("scan.mhd", False, lambda folder: halve(folder / "scan.raw"), "truncated, .* bytes of pixel data"),
    "half a stream": ("scan.mhd", True, lambda folder: halve(folder / "scan.zraw"), "truncated, .* bytes of pixel data"),
    "no pixels": (
        "scan.mhd", False, lambda folder: (folder / "scan.raw").unlink(),
        r"its pixels are in 'scan\.raw', expected an existing file in the same folder",
    ),
    "pixels elsewhere": (
        "scan.mhd", False, change_header("scan.raw", "../scan.raw"),
        r"its pixels are in '\.\./scan\.raw', expected an existing file in the same folder",
    ),
    "pixels after a header": (
        "scan.mhd", False, change_header("ElementDataFile", "HeaderSize = 16\nElementDataFile"),
        "HeaderSize '16', expected a file that contains only the pixels",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    file, compress, damage, message = DAMAGED[name]
    path = write_image(tmp_path / file, compress=compress)
    damage(tmp_path)
    with pytest.raises(InputError, match=f"^{file}: {message}"):
        read_volume(path)


def test_a_folder_of_images_leaves_them_out(tmp_path: Path) -> None:
    """Folders are what is submitted, where an .mhd could point to any file."""
    for name in ("a.nii", "b.mhd", "c.mha"):
        write_image(tmp_path / name)
    assert [path.name for path in list_images(tmp_path)] == ["c.mha"]


def test_only_formats_of_one_file_are_written(tmp_path: Path) -> None:
    write_volume(tmp_path / "scan.nii", make_noise(OBLIQUE))
    assert read_volume(tmp_path / "scan.nii").geometry.find_differences(OBLIQUE) == []
    with pytest.raises(OutputError, match=r"^scan\.mhd: unknown image suffix"):
        write_volume(tmp_path / "scan.mhd", make_noise(OBLIQUE))
    assert [path.name for path in tmp_path.iterdir()] == ["scan.nii"]
