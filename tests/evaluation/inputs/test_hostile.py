"""Submissions that would break a reader fail only their case, and reasons show no path."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.inputs.submission import catch_file_errors
from tests.evaluation.tasks import SEGMENTATION


@pytest.fixture
def phase(phase_of, blank):
    """Write case A, which the tests break, and case B, which is right."""
    phase = phase_of(SEGMENTATION)
    for case in ("A", "B"):
        phase.add_truth_mask(case, make_tumour(blank()))
    phase.add_mask("B", make_tumour(blank()))
    return phase


def make_tumour(mask):
    mask[1:3, 2:4, 3:6] = 1
    return mask


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
    make(phase.add_job("A"), make_tumour(blank()), grid)
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
        ("inputs.masks.Geometry.find_differences", IndexError),
        ("rows.comparison.count_overlaps", KeyError),
        ("rows.comparison.count_overlaps", ValueError),
    ],
)
def test_a_bug_of_ours_ends_the_run(phase, blank, grid, monkeypatch, place, bug):
    """It must not be scored as a case without a prediction."""

    def fail(*_):
        raise bug("a bug")

    finer = replace(grid, spacing_mm=(1.0, 2.0, 2.0))
    phase.add_mask("A", make_tumour(blank()), finer)
    assert phase.run(options={"geometry": "resample_nearest"})["cases"]["failed"] == []
    monkeypatch.setattr(f"evaluation.{place}", fail)
    with pytest.raises(bug, match="a bug"):
        phase.run(options={"geometry": "resample_nearest"})


def test_voxels_without_a_volume_fail_their_case(phase, blank, grid):
    """ITK cannot resample them; written by hand, since it cannot write them either."""
    path = phase.add_mask("A", make_tumour(blank()))
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
    with pytest.raises(PredictionError) as error, catch_file_errors("m.mha"):
        raise problem
    assert error.value.message == f"m.mha: cannot be read ({reason})"


def test_mistakes_of_the_program_are_not_file_errors():
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
    write_mask_with_undecodable_name(folder, make_tumour(blank()), grid)
    write_mask(folder / "A.mha", make_tumour(blank()), grid)
    assert phase.run(predictions=folder)["cases"]["unknown"] == ["\N{REPLACEMENT CHARACTER}"]
    phase.add_job("A")
    phase.add_job("C", ct_name="\ud800.mha")
    assert phase.run()["cases"]["unknown"] == ["\N{REPLACEMENT CHARACTER}"]
