"""NIfTI headers with contradictions, which ITK accepts."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import PredictionError
from contract.images.geometry import Geometry
from contract.images.nifti import parse_header
from contract.images.volumes import Volume, read_volume, write_volume

NAN = float("nan")
GRID = Geometry((4, 3, 2), (1.0, 2.0, 3.0), (-5.0, 4.0, 7.0))


@pytest.fixture
def content(tmp_path):
    """Return an uncompressed NIfTI: 352 bytes of header, 24 bytes of pixels."""
    path = tmp_path / "a.nii.gz"
    write_volume(path, Volume(np.arange(24, dtype=np.uint8).reshape(2, 3, 4), GRID))
    return bytearray(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize(
    ("layout", "place", "values", "message"),
    [
        ("<h", 70, (64,), "8 bits per voxel, expected 64"),
        ("<h", 72, (4,), "4 bits per voxel, expected 8"),
        ("<h", 70, (128,), "pixel type 128, expected a numeric type"),
        ("<f", 84, (0.0,), r"spacing \(1, 0, 3\)"),
        ("<f", 88, (NAN,), r"spacing \(1, 2, nan\)"),
        ("<f", 256, (NAN,), "not finite"),
        ("<f", 280, (float("inf"),), "not finite"),
        ("<f", 108, (NAN,), "vox_offset nan"),
        ("<f", 108, (1e30,), r"vox_offset 1e\+30, expected at most 16777216 bytes"),
        ("<f", 108, (-352.0,), "vox_offset -352"),
        ("<f", 108, (16777215.0,), "truncated"),
        ("<I", 344, (int.from_bytes(b"ni1", "little"),), "pixels are in another file"),
        ("<i", 0, (540,), "no NIfTI-1 header"),
    ],
)
def test_contradictory_headers_are_rejected(tmp_path, content, layout, place, values, message):
    """ITK reads most of these on the right grid, and the first one beyond the end of the data."""
    assert struct.unpack_from("<2h", content, 252) != (0, 0)
    struct.pack_into("<2h", content, 252, 1, 1)
    struct.pack_into(layout, content, place, *values)
    path = tmp_path / "odd.nii.gz"
    path.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(PredictionError, match=message):
        read_volume(path, error=PredictionError)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_files_of_itk_are_valid(tmp_path, dtype):
    path = tmp_path / "a.nii.gz"
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(path))
    header = parse_header(gzip.decompress(path.read_bytes())[:348])
    assert header.content_bytes == 352 + array.nbytes
    np.testing.assert_array_equal(read_volume(path).array, array)
