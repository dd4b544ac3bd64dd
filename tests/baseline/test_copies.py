"""Tests that a copied release and a copied working directory, with other places and times, compute nothing again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from baseline import make_report
from baseline.cli import main
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.io.files import read_json

# What each `prepare` writes: where the release is, and when it was prepared.
ALWAYS_WRITTEN = {"prepare.json", "cases.json", "problems.json", "problems.csv", "dataset.json", "digests.json"}


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a folder with the time of the copy, as `cp -r` does."""
    return Path(shutil.copytree(source, target, copy_function=shutil.copyfile))


def fit_heads(work: WorkFolders, masks: Path) -> Path:
    """Fit heads of existing and of reference masks, write the report and return its path."""
    for source in (str(masks), "reference"):
        assert main(["heads", "--work", str(work.root), "--masks", source, "--jobs", "1"]) == 0
    return make_report(work, 1)


def prepare(release: Path, work: Path, *more: str) -> int:
    return main(["prepare", "--release", str(release), "--work", str(work), "--folds", "2", "--jobs", "1", *more])


def read_times(work: Path) -> dict[str, int]:
    files = [path for path in work.rglob("*") if path.is_file() and path.name not in ALWAYS_WRITTEN]
    return {path.relative_to(work).as_posix(): path.stat().st_mtime_ns for path in files}


@pytest.mark.slow
def test_copies_compute_nothing_anew(
    work_with_heads: tuple[WorkFolders, Path], session_work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First only the release is elsewhere, then also the working directory. A file that changes is noticed."""
    work, masks = work_with_heads
    fit_heads(work, masks)
    release, node = copy_tree(session_work / "release", tmp_path / "disk" / "cohort"), tmp_path / "node" / "training"
    copy_tree(work.root, node)
    copy_tree(masks, tmp_path / "node" / "masks")
    before = read_times(node)
    assert prepare(release, node) == 0
    assert read_json(node / "prepare.json")["counts"]["written"] == 0
    assert fit_heads(WorkFolders(node), tmp_path / "node" / "masks").is_file()
    assert read_times(node) == before
    case = read_cases(WorkFolders(node))[0]
    assert case.ct.is_relative_to(release)
    case.ct.write_bytes(case.ct.read_bytes()[:-1000])
    assert prepare(release, node, "--check-only") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"unreadable Task 1/{case.patient_id}/{case.patient_id}__CT.nii.gz" in printed
