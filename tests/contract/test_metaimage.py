"""Pixels of compressed MetaImages, inflated once, against ITK's own reading."""

from __future__ import annotations

import numpy as np
import pytest
import SimpleITK as sitk

from contract.metaimage import inflated


def written(path, array):
    sitk.WriteImage(sitk.GetImageFromArray(array), str(path), useCompression=True)
    return path


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])
def test_pixels_are_those_of_itk(tmp_path, dtype):
    array = np.random.default_rng(0).integers(0, 100, (5, 6, 7)).astype(dtype)
    path = written(tmp_path / "a.mha", array)
    found = inflated(path, array.shape, array.dtype.itemsize)
    np.testing.assert_array_equal(found, sitk.GetArrayFromImage(sitk.ReadImage(str(path))))
    assert found.dtype == array.dtype
    assert found.flags.writeable


def test_a_stream_of_many_pieces(tmp_path):
    """Four megabytes of which a half is noise: pieces and blocks of the file end at different places."""
    array = np.zeros((64, 256, 256), dtype=np.uint8)
    array[::2] = np.random.default_rng(1).integers(0, 255, (32, 256, 256))
    assert np.array_equal(inflated(written(tmp_path / "a.mha", array), array.shape, 1), array)


@pytest.mark.parametrize("change", ["cut", "damage", "longer", "shorter", "plain", "other name", "other type"])
def test_anything_else_is_left_to_others(tmp_path, change):
    array = np.random.default_rng(2).integers(0, 3, (8, 9, 10)).astype(np.uint8)
    path = written(tmp_path / "a.mha", array)
    content, shape, width = path.read_bytes(), array.shape, 1
    if change == "cut":
        path.write_bytes(content[:-20])
    elif change == "damage":
        path.write_bytes(content[:-30] + bytes(30))
    elif change == "longer":
        shape = (7, 9, 10)
    elif change == "shorter":
        shape = (9, 9, 10)
    elif change == "plain":
        sitk.WriteImage(sitk.GetImageFromArray(array), str(path), useCompression=False)
    elif change == "other name":
        path = path.rename(tmp_path / "a.nii.gz")
    else:
        width = 2
    assert inflated(path, shape, width) is None
