"""A copied release and a copied working directory, with other places and times, compute nothing anew."""

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


def copied(source: Path, target: Path) -> Path:
    """A copy as `cp -r` makes it: with the time of the copy."""
    return Path(shutil.copytree(source, target, copy_function=shutil.copyfile))


def heads_of_masks(work: WorkFolders, masks: Path) -> Path:
    """Heads of given and of reference masks, and the report; returns its path."""
    for given in (str(masks), "reference"):
        assert main(["heads", "--work", str(work.root), "--masks", given, "--jobs", "1"]) == 0
    return make_report(work, 1)


def prepare(release: Path, work: Path, *more: str) -> int:
    return main(["prepare", "--release", str(release), "--work", str(work), "--folds", "2", "--jobs", "1", *more])


def times(work: Path) -> dict[str, int]:
    files = [path for path in work.rglob("*") if path.is_file() and path.name not in ALWAYS_WRITTEN]
    return {path.relative_to(work).as_posix(): path.stat().st_mtime_ns for path in files}


@pytest.mark.slow
def test_copies_compute_nothing_anew(
    work_and_masks: tuple[WorkFolders, Path], session_work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The release first lies elsewhere, then also the working directory; a file that changes is noticed."""
    work, masks = work_and_masks
    heads_of_masks(work, masks)
    release, node = copied(session_work / "release", tmp_path / "disk" / "cohort"), tmp_path / "node" / "training"
    copied(work.root, node)
    copied(masks, tmp_path / "node" / "masks")
    before = times(node)
    assert prepare(release, node) == 0
    assert read_json(node / "prepare.json")["counts"]["written"] == 0
    assert heads_of_masks(WorkFolders(node), tmp_path / "node" / "masks").is_file()
    assert times(node) == before
    case = read_cases(WorkFolders(node))[0]
    assert case.ct.is_relative_to(release)
    case.ct.write_bytes(case.ct.read_bytes()[:-1000])
    assert prepare(release, node, "--check-only") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"unreadable Task 1/{case.patient_id}/{case.patient_id}__CT.nii.gz" in printed
