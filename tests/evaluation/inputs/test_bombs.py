"""Streams that inflate beyond the size in their header are refused at that size."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
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


@pytest.mark.parametrize("name", ["bomb.nii", "bomb.nii.gz"])
def test_extensions_of_a_nifti_are_refused_before_they_are_read(tmp_path, grid, name):
    """Pixels start after 3e9 bytes, or after an extension of 64 MB, which ITK would load to read the header."""
    write_volume(tmp_path / "intact.nii", Volume(np.zeros(grid.array_shape, np.uint8), grid))
    content = bytearray((tmp_path / "intact.nii").read_bytes())
    for offset, extension in ((3e9, b""), (352 + ZEROS, struct.pack("<2i", ZEROS, 6) + bytes(ZEROS))):
        struct.pack_into("<f", content, 108, offset)
        whole = bytes(content[:348]) + (b"\1\0\0\0" if extension else bytes(4)) + extension + bytes(content[352:])
        (tmp_path / name).write_bytes(whole if name.endswith(".nii") else gzip.compress(whole, 1))
        tracemalloc.start()
        try:
            with pytest.raises(PredictionError, match=rf"^{name}: vox_offset .*, expected at most 16777216 bytes"):
                read_prediction(tmp_path / name, grid, "exact")
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("line", [b"Comment = x\n", b"x"])
def test_a_long_header_of_a_metaimage_is_refused(tmp_path, grid, line):
    path = tmp_path / "bomb.mha"
    write_volume(path, Volume(np.zeros(grid.array_shape, np.uint8), grid))
    head, sep, pixels = path.read_bytes().partition(b"ElementDataFile = LOCAL\n")
    path.write_bytes(head + line * (2**18 // len(line)) + b"\n" + sep + pixels)
    with pytest.raises(PredictionError, match=r"^bomb\.mha: a header of more than 262144 bytes"):
        read_prediction(path, grid, "exact")
    path.write_bytes(head + b"Comment = x\n" * 1000 + sep + pixels)
    assert not read_prediction(path, grid, "exact").array.any()
