"""Streams that inflate beyond the size in their header are refused at that size."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_volume
from evaluation.inputs.masks import read_prediction

ZEROS = 64 * 1024 * 1024


@pytest.mark.parametrize("suffix", [".mha", ".nii.gz"])
def test_a_stream_that_never_ends(tmp_path, grid, suffix):
    path = tmp_path / f"bomb{suffix}"
    write_volume(path, Volume(np.zeros(grid.array_shape, np.uint8), grid), compress=True)
    if suffix == ".mha":
        head, sep, _ = path.read_bytes().partition(b"ElementDataFile = LOCAL\n")
        stream = zlib.compress(bytes(ZEROS))
        size = next(line for line in head.splitlines() if line.startswith(b"CompressedDataSize"))
        path.write_bytes(head.replace(size, b"CompressedDataSize = %d" % len(stream)) + sep + stream)
    else:
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(ZEROS), 1))
    with pytest.raises(PredictionError, match="inflates to more than"):
        read_prediction(path, grid, "exact")
