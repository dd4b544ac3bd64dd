"""Real scans and reference objects, which are stored outside the project (tests/data/README.md)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]


class Skipped(pytest.skip.Exception):
    """A skip that is reported where it is raised: pytest moves a fixture's skip to the place of each test."""

    __module__ = "builtins"  # pytest omits this module and the class's name from the line
    _use_item_location = False

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_use_item_location":
            super().__setattr__(name, value)


def shared(name: str) -> Path:
    """Return the file or folder `name` of the data outside the project; skip the test if it is absent.

    All tests are skipped here and for one reason, so that pytest folds them into one line with their number.
    """
    path = Path(os.environ.get("HECKTOR_SHARED", _ROOT.parent / "shared")) / name
    if not path.exists():
        raise Skipped("real scans are not part of the project: tests/data/README.md says how to get them")
    return path
