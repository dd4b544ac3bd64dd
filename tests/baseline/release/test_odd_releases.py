"""Tests of odd releases that `test_planted_faults` does not cover: each problem is named once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.release.cases import read_release
from baseline.release.prepare import find_problems
from baseline.work import WorkFolders
from contract.images.volumes import Volume
from tests.baseline.prepared import EDITION

# severity, kind, file below the root, finding
Report = tuple[str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
P = "CHUM-002"
TASKS = ("Task 1", "Task 2", "Task 3")


def list_problems(release: Release, tmp_path: Path) -> list[Report]:
    """List all problems of the release."""
    root = release.write_tables()
    problems = find_problems(read_release(root, EDITION), WorkFolders(tmp_path / "work"), jobs=1)
    return [(problem.severity, problem.kind, problem.file, problem.found) for problem in problems]


@pytest.fixture
def release(tiny_release: Release) -> Release:
    """Return a release of three patients; the tests damage the last patient."""
    for patient in ("MDA-001", "CHUM-001", P):
        tiny_release.add(patient)
    return tiny_release


def test_links_and_folders_in_place_of_images(release: Release, tmp_path: Path) -> None:
    for task in TASKS:
        release.path(P, "__CT", task).unlink()
        release.path(P, "__CT", task).symlink_to(tmp_path / "elsewhere" / "ct.nii.gz")
    release.path(P, "").unlink()
    release.path(P, "").mkdir()
    release.path(P, "__CTPlanning", "Task 2").symlink_to(tmp_path / "elsewhere" / "planning.nii.gz")
    release.path(P, "__RTDOSE", "Task 2").symlink_to(tmp_path / "elsewhere" / "dose.nii.gz")
    links = [("Task 2", "__CTPlanning"), ("Task 2", "__RTDOSE"), *((task, "__CT") for task in TASKS)]
    expected = [("error", "unreadable", f"{task}/{P}/{P}{role}.nii.gz", "a broken link") for task, role in links]
    expected.append(("error", "unreadable", f"Task 1/{P}/{P}.nii.gz", "not a regular file"))
    assert sorted(list_problems(release, tmp_path)) == sorted(expected)


@pytest.mark.parametrize("name", ["task 3", "Task3", "HECKTOR_2025_Task_3"])
def test_a_task_under_another_name_is_not_passed_over_in_silence(release: Release, tmp_path: Path, name: str) -> None:
    release.write_tables()
    (release.root / "Task 3").rename(release.root / name)
    read = read_release(release.root, EDITION)
    assert [(problem.severity, problem.kind, problem.file) for problem in read.problems] == [
        ("warning", "unexpected-file", name)
    ]
    assert all("HPV Status" not in case.outcomes for case in read.cases)


def add_dose(release: Release, dose: Callable[[np.ndarray], np.ndarray] = lambda array: array, **geometry: Any) -> None:
    """Add a planning CT like the CT, and a dose of 0 to 70 Gy on its grid, spoilt by `dose`."""
    ct = release.read(P, "__CT")
    release.write(P, "__CTPlanning", ct, tasks=("Task 2",))
    gray = dose(np.clip(ct.array, 0, 70).astype(np.float32))
    release.write(P, "__RTDOSE", Volume(gray, replace(ct.geometry, **geometry)), tasks=("Task 2",))


def test_a_sound_dose_and_an_empty_column_are_no_problem(release: Release, tmp_path: Path) -> None:
    """Spreadsheets leave an empty column behind where a cell was touched."""
    add_dose(release)
    release.spoil_table["Task 3"].append(lambda text: text.replace("\n", ",\n"))
    assert list_problems(release, tmp_path) == []


@pytest.mark.parametrize("role", ["__CTPlanning", "__RTDOSE"])
def test_a_planning_ct_or_dose_that_is_cut_off(release: Release, tmp_path: Path, role: str) -> None:
    """Truncated images have a sound header, so the file must be read to its end."""
    add_dose(release)
    path = release.path(P, role, "Task 2")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    ((severity, kind, file, finding),) = list_problems(release, tmp_path)
    assert (severity, kind, file) == ("error", "unreadable", f"Task 2/{P}/{P}{role}.nii.gz")
    assert finding.startswith("truncated")


@pytest.mark.parametrize(
    ("spoil", "geometry", "expected"),
    [
        (lambda dose: dose * 100, {}, ("warning", "dose", "highest value 7000: another unit")),
        (lambda dose: dose * 0, {}, ("warning", "dose", "highest value 0: another unit")),
        (lambda dose: dose - 1, {}, ("warning", "dose", "lowest value -1: the dose is ignored")),
        (lambda dose: dose, {"origin_mm": (5000.0, 0.0, 0.0)}, ("warning", "geometry", "no overlap with the CT")),
    ],
    ids=["cGy", "zeros", "negative", "elsewhere"],
)
def test_impossible_doses(
    release: Release,
    tmp_path: Path,
    spoil: Callable[[np.ndarray], np.ndarray],
    geometry: dict[str, Any],
    expected: tuple[str, str, str],
) -> None:
    add_dose(release, spoil, **geometry)
    ((severity, kind, file, finding),) = list_problems(release, tmp_path)
    assert (severity, kind, file) == (*expected[:2], f"Task 2/{P}/{P}__RTDOSE.nii.gz")
    assert finding.startswith(expected[2])


def test_axes_swapped_in_a_header(release: Release, tmp_path: Path) -> None:
    """Spacing is stored as (z, y, x) instead of (x, y, z) in the CT, the mask and the PET."""
    spacings = {}
    for role in ("__CT", "__PT", ""):
        spacing = release.read(P, role).geometry.spacing_mm
        spacings[role] = "({2:.4g}, {1:.4g}, {0:.4g})".format(*spacing)
        release.change(P, role, lambda array: array, spacing_mm=spacing[::-1])
    assert sorted(list_problems(release, tmp_path)) == [
        ("warning", "geometry", f"Task 1/{P}/{P}{role}.nii.gz", f"spacing {spacings[role]} mm")
        for role in ("__CT", "__PT")
    ]


TABLE = "Task 3/HECKTOR_2025_Training_Task_3.csv"


@pytest.mark.parametrize(
    ("spell", "expected"),
    [
        (
            lambda text: text.replace("\n", ",7\n").replace(",7", "", 1),
            ("error", "csv-unreadable", "not a readable table (row 2 has 11 cells, the header 10"),
        ),
        (lambda text: text.replace("\n", ",7\n").replace(",7", ",", 1), ("warning", "csv-column", "unknown columns")),
    ],
    ids=["a cell too many", "column without a name"],
)
def test_a_table_is_named_once(
    release: Release, tmp_path: Path, spell: Callable[[str], str], expected: tuple[str, str, str]
) -> None:
    release.spoil_table["Task 3"].append(spell)
    ((severity, kind, file, finding),) = list_problems(release, tmp_path)
    assert (severity, kind, file) == (*expected[:2], TABLE)
    assert finding.startswith(expected[2])
