"""Types and helpers for faults that tests plant in a release, with the problems to expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# severity, kind, patient, file below the root, `found` (a regular expression)
Expected = tuple[str, str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
Plant = Callable[[Release, str], list[Expected]]

CSV = {task: f"{task}/HECKTOR_2025_Training_{task.replace(' ', '_')}.csv" for task in ("Task 1", "Task 2", "Task 3")}


def format_image_path(patient: str, role: str, task: str = "Task 1") -> str:
    return f"{task}/{patient}/{patient}{role}.nii.gz"


def expect_error(kind: str, patient: str, file: str, finding: str) -> list[Expected]:
    return [("error", kind, patient, file, finding)]


def expect_warning(kind: str, patient: str, file: str, finding: str) -> list[Expected]:
    return [("warning", kind, patient, file, finding)]
