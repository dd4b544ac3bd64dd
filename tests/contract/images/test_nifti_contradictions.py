"""NIfTI files that ITK reads wrongly or not at all: two placements, NaN, many extensions, odd names, scaled values."""

from __future__ import annotations

import gzip
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import GroundTruthError, InputError, OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_header, read_volume, write_volume

nibabel = pytest.importorskip("nibabel")  # only installed in .venv

# RAS, as nibabel writes it: voxels of 2 x 2 x 3 mm, the first at (-10, 5, 7) mm in LPS.
AFFINE = np.array([[-2.0, 0, 0, 10], [0, -2, 0, -5], [0, 0, 3, 7], [0, 0, 0, 1]])
SIZE = (18, 16, 12)


def move(x: float, y: float, z: float) -> np.ndarray:
    affine = AFFINE.copy()
    affine[:3, 3] += (x, y, z)
    return affine


def write(path: Path, sform: np.ndarray | None, qform: np.ndarray | None, zooms=(2.0, 2.0, 3.0), dtype=np.uint8):
    image = nibabel.Nifti1Image(np.zeros(SIZE, dtype), None)
    image.header.set_zooms(zooms)
    image.header.set_qform(qform, 1 if qform is not None else 0)
    image.header.set_sform(sform, 2 if sform is not None else 0)
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_two_placements_are_refused_and_named(tmp_path, suffix):
    """By one placement the first voxel lies at (-10, 5, 7), by the other at (-20, 10, 10), 5, 2.5 and 1 voxels away."""
    path = write(tmp_path / f"a{suffix}", move(10, -5, 3), AFFINE)
    with pytest.raises(GroundTruthError) as caught:
        read_header(path, error=GroundTruthError)
    assert "(-20, 10, 10) mm by the sform and at (-10, 5, 7) mm by the qform" in caught.value.message


def test_placements_by_turned_axes_are_refused(tmp_path):
    """Ten degrees about z move the far corner of 34 mm by 6 mm, the first voxel not at all."""
    cosine, sine = np.cos(np.radians(10)), np.sin(np.radians(10))
    turned = AFFINE.copy()
    turned[:2, :2] = np.array([[cosine, -sine], [sine, cosine]]) @ AFFINE[:2, :2]
    with pytest.raises(InputError, match="two placements"):
        read_header(write(tmp_path / "a.nii", turned, AFFINE))


@pytest.mark.parametrize(("by_mm", "is_refused"), [(0.9, False), (1.1, True)])
def test_half_a_voxel_is_the_limit(tmp_path, by_mm, is_refused):
    """Voxels of 2 mm."""
    path = write(tmp_path / "a.nii", move(by_mm, 0, 0), AFFINE)
    if is_refused:
        with pytest.raises(InputError, match="two placements"):
            read_header(path)
    else:
        assert read_header(path).geometry.size == SIZE


@pytest.mark.parametrize("zooms", [(1.0, 1.0, 1.0), (2.0, 2.0, 3.2)])
def test_pixdim_against_the_affine_is_refused(tmp_path, zooms):
    """Twelve slices of 3.2 instead of 3 mm end 2.4 mm, 0.8 voxels, further on."""
    with pytest.raises(InputError, match=r"by pixdim and of \(2, 2, 3\) mm by the sform"):
        read_header(write(tmp_path / "a.nii", AFFINE, None, zooms))


def test_pixdim_as_rounded_by_scanners_is_accepted(tmp_path):
    assert read_header(write(tmp_path / "a.nii", AFFINE, None, (2.0001, 2.0, 3.0))).geometry.size == SIZE


@pytest.mark.parametrize(("cosine", "is_accepted"), [(1e-4, True), (9.9e-4, True), (1.5e-3, False)])
def test_axes_perpendicular_within_a_thousandth(tmp_path, cosine, is_accepted):
    """ITK refuses cosines from 2e-4; the first voxel stays at (-10, 5, 7)."""
    sheared = AFFINE.copy()
    sheared[0, 1] = 2 * cosine
    path = tmp_path / "a.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.arange(np.prod(SIZE), dtype=np.int16).reshape(SIZE), sheared), path)
    if not is_accepted:
        with pytest.raises(InputError, match="not orthonormal"):
            read_volume(path)
        return
    volume = read_volume(path)
    assert volume.geometry.origin_mm == (-10, 5, 7)
    assert volume.geometry.spacing_mm == pytest.approx((2, 2, 3), abs=1e-5)
    np.testing.assert_array_equal(volume.array, np.arange(np.prod(SIZE)).reshape(SIZE).T)
    assert read_header(path).pixel_type == "16-bit signed integer"


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".mha"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_that_are_not_finite_are_kept(tmp_path, suffix, dtype):
    values = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    values[0, 0, 1:], values[1, 2, 3] = (np.nan, np.inf, -np.inf), np.nan
    path = tmp_path / f"a{suffix}"
    sitk.WriteImage(sitk.GetImageFromArray(values), str(path))
    if suffix == ".nii":  # bytes after the voxels change nothing
        path.write_bytes(path.read_bytes() + b"\1")
    np.testing.assert_array_equal(read_volume(path).array, values)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
@pytest.mark.parametrize("scaling", [(0.3, 0.1), (0.0, 5.0), (1.0, 0.0), (np.nan, 0.0), (np.inf, 1.0), (2.0, np.nan)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_scaled_values_equal_itk(tmp_path, dtype, scaling, order):
    path = tmp_path / "a.nii"
    image = nibabel.Nifti1Image(np.arange(24).reshape(4, 3, 2).astype(dtype), np.eye(4))
    nibabel.save(nibabel.Nifti1Image(image.dataobj, np.eye(4), image.header.as_byteswapped(order)), path)
    content = bytearray(path.read_bytes())
    struct.pack_into(f"{order}2f", content, 112, *scaling)
    path.write_bytes(content)
    expected = sitk.ReadImage(str(path))
    volume = read_volume(path)
    np.testing.assert_array_equal(volume.array, sitk.GetArrayFromImage(expected))
    assert volume.array.dtype == sitk.GetArrayFromImage(expected).dtype
    assert read_header(path).pixel_type == expected.GetPixelIDTypeAsString()


def write_with_extensions(path: Path, count: int) -> Path:
    write(path.with_suffix(""), AFFINE, None)
    content = bytearray(path.with_suffix("").read_bytes())
    struct.pack_into("<f", content, 108, 352 + 16 * count)
    extensions = (struct.pack("<2i", 16, 4) + bytes(8)) * count
    path.write_bytes(gzip.compress(bytes(content[:348]) + b"\1\0\0\0" + extensions + bytes(content[352:])))
    return path


def test_many_extensions_are_refused_at_once(tmp_path):
    """ITK needs a minute for 15 kB of them."""
    assert read_volume(write_with_extensions(tmp_path / "few.nii.gz", 100)).array.sum() == 0
    path = write_with_extensions(tmp_path / "many.nii.gz", 100_000)
    begin = time.process_time()
    with pytest.raises(InputError, match="more than 100 extensions"):
        read_header(path)
    assert time.process_time() - begin < 5


def test_a_name_that_is_not_utf8_is_an_error(tmp_path):
    """ITK would end the process."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller"))
    folder.mkdir()
    volume = Volume(np.zeros((2, 3, 4), np.uint8), Geometry((4, 3, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    with pytest.raises(OutputError, match="not UTF-8"):
        write_volume(folder / "a.nii.gz", volume)
    write_volume(tmp_path / "a.nii.gz", volume)
    (tmp_path / "a.nii.gz").rename(folder / "a.nii.gz")
    with pytest.raises(InputError, match="not UTF-8"):
        read_volume(folder / "a.nii.gz")


@pytest.mark.parametrize("shear", [0.0, 6e-4])
@pytest.mark.parametrize(("unit", "factor"), [("mm", 1.0), ("meter", 1e3), ("micron", 1e-3), ("unknown", 1.0)])
@pytest.mark.parametrize("has_qform", [True, False])
def test_units_of_length(tmp_path, unit, factor, shear, has_qform):
    """Voxels of 2 x 2 x 3 mm at (-10, 5, 7) mm, written in metres, micrometres and mm.

    ITK refuses axes that are 6e-4 off perpendicular, so that the header is this project's own.
    """
    affine = AFFINE.copy()
    affine[0, 1] = -2 * shear
    image = nibabel.Nifti1Image(np.zeros(SIZE, np.uint8), None)
    in_units = np.vstack([affine[:3] / factor, affine[3]])
    image.header.set_zooms((2 / factor, 2 / factor, 3 / factor))
    image.header.set_qform(in_units if has_qform else None, int(has_qform), strip_shears=True)
    image.header.set_sform(in_units, 2)
    image.header.set_xyzt_units(unit)
    nibabel.save(image, tmp_path / "a.nii.gz")
    geometry = read_volume(tmp_path / "a.nii.gz").geometry
    np.testing.assert_allclose(geometry.spacing_mm, (2, 2, 3), rtol=1e-6)
    np.testing.assert_allclose(geometry.origin_mm, (-10, 5, 7), rtol=1e-6)
