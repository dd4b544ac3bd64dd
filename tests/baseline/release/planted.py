"""Types and helpers to plant a fault in a release, with the problems that it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# severity, kind, patient, file below the root, `found` (a regular expression)
Expected = tuple[str, str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
Plant = Callable[[Release, str], list[Expected]]

CSV = {task: f"{task}/HECKTOR_2025_Training_{task.replace(' ', '_')}.csv" for task in ("Task 1", "Task 2", "Task 3")}


def image(patient: str, role: str, task: str = "Task 1") -> str:
    return f"{task}/{patient}/{patient}{role}.nii.gz"


def error(kind: str, patient: str, file: str, found: str) -> list[Expected]:
    return [("error", kind, patient, file, found)]


def warning(kind: str, patient: str, file: str, found: str) -> list[Expected]:
    return [("warning", kind, patient, file, found)]
