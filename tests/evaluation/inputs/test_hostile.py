"""Submissions that would break a reader fail only their case, streams are bounded, and reasons show no path."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.inputs.masks import read_prediction
from evaluation.inputs.submission import catch_file_errors
from tests.evaluation.staging import make_tumour
from tests.evaluation.tasks import SEGMENTATION


@pytest.fixture
def phase(phase_of, blank):
    """Write case A, which the tests break, and case B, which is right."""
    phase = phase_of(SEGMENTATION)
    for case in ("A", "B"):
        phase.add_truth_mask(case, make_tumour())
    phase.add_mask("B", make_tumour())
    return phase


def make_circular_link(folder, mask, grid):
    folder.rmdir()
    folder.symlink_to(folder.name)


def make_circular_parent(folder, mask, grid):
    folder.rmdir()
    folder.parent.rmdir()
    folder.parent.symlink_to(folder.parent.name)


def write_mask_with_undecodable_name(folder, mask, grid):
    """Write a mask whose name is not UTF-8, which image libraries and data bases refuse."""
    write_volume(folder / "m.mha", Volume(mask, grid))
    (folder / "m.mha").rename(folder / os.fsdecode(b"\xff.mha"))


def write_file_with_undecodable_name(folder, mask, grid):
    os.close(os.open(os.fsencode(folder) + b"/\xff.txt", os.O_CREAT))


def write_mask_with_newline_in_name(folder, mask, grid):
    write_volume(folder / "a\nerror: all is lost.mha", Volume(mask, grid))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_circular_link, "cannot be read"),
        (make_circular_parent, "cannot be read"),
        (write_mask_with_undecodable_name, "a name that cannot be printed"),
        (write_file_with_undecodable_name, "found \N{REPLACEMENT CHARACTER}.txt"),
        (write_mask_with_newline_in_name, "a name that cannot be printed"),
    ],
)
def test_a_file_that_breaks_a_reader_fails_only_its_case(phase, blank, grid, make, reason):
    make(phase.add_job("A"), make_tumour(), grid)
    report = phase.run()
    (failed,) = report["cases"]["failed"]
    assert failed["case"] == "A"
    assert reason in failed["why"]
    assert str(phase.root) not in failed["why"]
    assert report["aggregates"]["gtvp_dsc_mean"]["value"] == 0.5
    # What a data base takes for text: no half characters.
    (phase.output_dir / "metrics.json").read_text().encode("ascii").decode("unicode_escape").encode()


@pytest.mark.parametrize(
    ("place", "bug"),
    [
        ("inputs.masks._resample", RuntimeError),
        ("rows.comparison.count_overlaps", ValueError),
    ],
)
def test_a_bug_of_ours_ends_the_run(phase, blank, grid, monkeypatch, place, bug):
    """It must not be scored as a case without a prediction."""

    def fail(*_):
        raise bug("a bug")

    finer = replace(grid, spacing_mm=(1.0, 2.0, 2.0))
    phase.add_mask("A", make_tumour(), finer)
    assert phase.run(options={"geometry": "resample_nearest"})["cases"]["failed"] == []
    monkeypatch.setattr(f"evaluation.{place}", fail)
    with pytest.raises(bug, match="a bug"):
        phase.run(options={"geometry": "resample_nearest"})


def test_voxels_without_a_volume_fail_their_case(phase, blank, grid):
    """ITK cannot resample them; written by hand, since it cannot write them either."""
    path = phase.add_mask("A", make_tumour())
    path.write_bytes(
        path.read_bytes().replace(b"ElementSpacing = 1.0 2.0 3.0", b"ElementSpacing = 1e-300 1e-300 1e-300")
    )
    failed = phase.run(options={"geometry": "resample_nearest"})["cases"]["failed"]
    assert [failure["case"] for failure in failed] == ["A"]
    assert "expected larger voxels" in failed[0]["why"]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (PermissionError(13, "Permission denied", "/secret/place"), "Permission denied"),
        (MemoryError("/secret/place"), "MemoryError"),
        (OverflowError("/secret/place"), "OverflowError"),
        (struct.error("/secret/place"), "error"),
    ],
)
def test_the_reason_is_without_the_path(problem, reason):
    """Mistakes of the program are no errors of a file."""
    with pytest.raises(PredictionError) as error, catch_file_errors("m.mha"):
        raise problem
    assert error.value.message == f"m.mha: cannot be read ({reason})"
    with pytest.raises(AttributeError), catch_file_errors("m.mha"):
        raise AttributeError("no such name")


def test_the_last_line_of_an_unexpected_error_names_no_path(tmp_path):
    code = (
        "import sys, evaluation.__main__ as entry\n"
        "sys.excepthook = entry.print_unexpected\n"
        "open('/secret/place/unknown')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "error: the evaluation ended unexpectedly (FileNotFoundError); see its log"
    assert "Traceback" in done.stderr


def test_names_that_match_no_case_are_printable(phase, blank, grid, tmp_path):
    folder = tmp_path / "masks"
    folder.mkdir()
    write_mask_with_undecodable_name(folder, make_tumour(), grid)
    write_mask(folder / "A.mha", make_tumour(), grid)
    assert phase.run(predictions=folder)["cases"]["unknown"] == ["\N{REPLACEMENT CHARACTER}"]
    phase.add_job("A")
    phase.add_job("C", ct_name="\ud800.mha")
    assert phase.run()["cases"]["unknown"] == ["\N{REPLACEMENT CHARACTER}"]


ZEROS = 17 * 1024 * 1024


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
    """Pixels start after 3e9 bytes, or after an extension of 17 MB, which ITK would load to read the header."""
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
