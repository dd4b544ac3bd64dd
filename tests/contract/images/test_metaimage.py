"""Reading and packing of MetaImages, compared with ITK."""

from __future__ import annotations

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.metaimage import pack_mask, read_voxels
from contract.images.nifti import ImageFormatError
from contract.images.volumes import read_volume


def write(path, array, compress=True):
    sitk.WriteImage(sitk.GetImageFromArray(array), str(path), useCompression=compress)
    return path


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])
def test_pixels_equal_those_of_itk(tmp_path, dtype, compress):
    array = np.random.default_rng(0).integers(0, 100, (5, 6, 7)).astype(dtype)
    path = write(tmp_path / "a.mha", array, compress)
    pixels = read_voxels(path, array.shape, array.dtype)
    np.testing.assert_array_equal(pixels, sitk.GetArrayFromImage(sitk.ReadImage(str(path))))
    assert pixels.dtype == array.dtype
    assert pixels.flags.writeable


def test_a_stream_of_many_blocks(tmp_path):
    """Four megabytes, half of them noise: input and output blocks end at different places."""
    array = np.zeros((64, 256, 256), dtype=np.uint8)
    array[::2] = np.random.default_rng(1).integers(0, 255, (32, 256, 256))
    assert np.array_equal(read_voxels(write(tmp_path / "a.mha", array), array.shape, array.dtype), array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cut", "truncated, [0-9]+ bytes of pixel data"),
        ("damage", "damaged compressed pixel data"),
        ("longer", "inflates to more than its header states"),
        ("shorter", "truncated, 720 bytes of pixel data"),
        ("plain cut", "truncated, 719 bytes of pixel data"),
    ],
)
def test_invalid_pixel_data_is_refused(tmp_path, change, message):
    """8 x 9 x 10 voxels are 720 bytes; the last four bytes of a stream are its checksum."""
    array = np.random.default_rng(2).integers(0, 3, (8, 9, 10)).astype(np.uint8)
    path = write(tmp_path / "a.mha", array)
    content, shape = path.read_bytes(), array.shape
    if change == "cut":
        path.write_bytes(content[:-20])
    elif change == "damage":
        path.write_bytes(content[:-4] + bytes(4))
    elif change == "longer":
        shape = (7, 9, 10)
    elif change == "shorter":
        shape = (9, 9, 10)
    else:
        path.write_bytes(write(path, array, compress=False).read_bytes()[:-1])
    with pytest.raises(ImageFormatError, match=message):
        read_voxels(path, shape, array.dtype)


def make_oblique_direction() -> tuple[float, ...]:
    """Return 30 degrees about x, then 20 degrees about z: all entries of the first two rows differ."""
    a, b = np.deg2rad(30), np.deg2rad(20)
    about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    about_z = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    return tuple(float(v) for v in (about_z @ about_x).ravel())


def test_itk_reads_a_packed_mask(tmp_path):
    """Pixels and the exact geometry: an oblique direction, a spacing of 1/3, a negative origin."""
    geometry = Geometry((5, 4, 3), (1 / 3, 0.9765625, 3.27), (-249.51171875, 1e-7, 1234.5), make_oblique_direction())
    voxels = np.random.default_rng(2).integers(0, 3, (3, 4, 5), dtype=np.uint8)
    path = tmp_path / "a.mha"
    path.write_bytes(pack_mask(voxels, geometry))
    image = sitk.ReadImage(str(path))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(image), voxels)
    assert Geometry.from_image(image) == geometry
    np.testing.assert_array_equal(read_voxels(path, voxels.shape, voxels.dtype), voxels)


HEADER = (
    b"ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n"
    b"TransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 0 0 0\nElementSpacing = 1 1 1\nDimSize = 4 3 2\n"
    b"ElementType = MET_UCHAR\n"
)


@pytest.mark.parametrize(
    "lines",
    [
        "HeaderSize = -1\nElementDataFile: {reference}\nElementDataFile = LOCAL\n",
        "HeaderSize = -1\n\x1cElementDataFile = LOCAL\nElementDataFile = {reference}\n",
        "HeaderSize = -1\n\xa0ElementDataFile = LOCAL\nElementDataFile = {reference}\n",
        "HeaderSize = -1\nElementDataFile\xa0= LOCAL\nElementDataFile = {reference}\n",
        "BinaryData = False\nElementDataFile = LOCAL\n",
        "HeaderSize = 1000000\nElementDataFile = LOCAL\n",
        "HeaderSize = -1\nElementDataFile = {reference}\n",
    ],
)
def test_a_header_cannot_point_to_another_file_or_to_text(tmp_path, lines):
    """ITK follows the first four headers to the other file, which could be the reference of a submitted mask."""
    reference = write(tmp_path / "other.mha", np.full((2, 3, 4), 2, np.uint8), compress=False)
    path = tmp_path / "a.mha"
    path.write_bytes(HEADER + lines.format(reference=reference).encode("latin-1") + bytes(24))
    with pytest.raises(InputError):
        read_volume(path)


@pytest.mark.parametrize("lines", ["Comment : {reference}\n", "CompressedData = 0\nElementDataFile: {reference}\n"])
def test_pixels_after_an_ambiguous_header_come_from_the_file_itself(tmp_path, lines):
    reference = write(tmp_path / "other.mha", np.full((2, 3, 4), 2, np.uint8), compress=False)
    path = tmp_path / "a.mha"
    pixels = np.arange(24, dtype=np.uint8)
    path.write_bytes(
        HEADER + lines.format(reference=reference).encode() + b"ElementDataFile = LOCAL\n" + pixels.tobytes()
    )
    np.testing.assert_array_equal(read_volume(path).array.ravel(), pixels)


@pytest.mark.parametrize("key", ["BinaryDataByteOrderMSB", "ElementByteOrderMSB"])
def test_big_endian_pixels_under_either_key(tmp_path, key):
    """00 01 and FC 18 are 1 and -1000 with the high byte first, 256 and 6396 otherwise; ITK knows both keys."""
    path = tmp_path / "a.mha"
    path.write_bytes(
        b"ObjectType = Image\nNDims = 3\nBinaryData = True\nCompressedData = False\n"
        + f"{key} = True\n".encode()
        + b"TransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 0 0 0\nElementSpacing = 1 1 1\nDimSize = 2 1 1\n"
        + b"ElementType = MET_SHORT\nElementDataFile = LOCAL\n\x00\x01\xfc\x18"
    )
    assert read_volume(path).array.ravel().tolist() == [1, -1000]
