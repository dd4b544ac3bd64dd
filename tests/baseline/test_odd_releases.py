"""Releases that are odd in ways of which `test_planted_faults` knows nothing: each is named, once, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baseline.checks import check_release
from baseline.release import read_release

# severity, kind, file below the root, what is said to be found
Told = tuple[str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
P = "CHUM-002"
TASKS = ("Task 1", "Task 2", "Task 3")


def told(release: Release, tmp_path: Path) -> list[Told]:
    """All problems of the release."""
    root = release.write_tables()
    problems = check_release(read_release(root), tmp_path / "checks", jobs=1)
    return [(problem.severity, problem.kind, problem.file, problem.found) for problem in problems]


@pytest.fixture
def release(tiny_release: Release) -> Release:
    """Three patients, the last of which is to be spoilt."""
    for patient in ("MDA-001", "CHUM-001", P):
        tiny_release.add(patient)
    return tiny_release


def test_what_is_called_an_image_and_is_no_file(release: Release, tmp_path: Path) -> None:
    for task in TASKS:
        release.path(P, "__CT", task).unlink()
        release.path(P, "__CT", task).symlink_to(tmp_path / "elsewhere" / "ct.nii.gz")
    release.path(P, "").unlink()
    release.path(P, "").mkdir()
    release.path(P, "__CTPlanning", "Task 2").symlink_to(tmp_path / "elsewhere" / "planning.nii.gz")
    release.path(P, "__RTDOSE", "Task 2").symlink_to(tmp_path / "elsewhere" / "dose.nii.gz")
    links = [("Task 2", "__CTPlanning"), ("Task 2", "__RTDOSE"), *((task, "__CT") for task in TASKS)]
    expected = [("error", "unreadable", f"{task}/{P}/{P}{role}.nii.gz", "a link to nothing") for task, role in links]
    expected.append(("error", "unreadable", f"Task 1/{P}/{P}.nii.gz", "no regular file"))
    assert sorted(told(release, tmp_path)) == sorted(expected)


@pytest.mark.parametrize("content", [b"", b"text and no image " * 30], ids=["empty", "text"])
def test_copies_of_one_broken_file_are_named_once(release: Release, tmp_path: Path, content: bytes) -> None:
    for task in TASKS:
        release.path(P, "__PT", task).unlink()
        release.path(P, "__PT", task).write_bytes(content)
    found = told(release, tmp_path)
    assert [one[:3] for one in found] == [("error", "unreadable", f"Task 1/{P}/{P}__PT.nii.gz")]


def test_a_folder_in_another_spelling_is_the_same_patient(release: Release, tmp_path: Path) -> None:
    folder, other = release.root / "Task 2" / P, release.root / "Task 2" / P.lower()
    folder.rename(other)
    for path in sorted(other.iterdir()):
        path.rename(path.with_name(path.name.replace(P, P.lower())))
    assert told(release, tmp_path) == [("warning", "folder-name", f"Task 2/{P.lower()}", f"another spelling of {P}")]


@pytest.mark.parametrize("name", ["task 3", "Task3", "HECKTOR_2025_Task_3"])
def test_a_task_under_another_name_is_not_passed_over_in_silence(release: Release, tmp_path: Path, name: str) -> None:
    release.write_tables()
    (release.root / "Task 3").rename(release.root / name)
    (release.root / "truth").mkdir()
    read = read_release(release.root)
    assert [(one.severity, one.kind, one.file) for one in read.problems] == [("warning", "unexpected-file", name)]
    assert all(case.hpv is None for case in read.cases)


def test_a_folder_called_like_a_table_is_none(release: Release, tmp_path: Path) -> None:
    (release.root / "Task 1" / "old.csv").mkdir()
    kinds = [(severity, kind) for severity, kind, _, _ in told(release, tmp_path)]
    assert kinds == [("error", "images-without-row")] + [("error", "missing-file")] * 3
