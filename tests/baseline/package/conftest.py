"""Shared by the tests of packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """The code that a test imports is forgotten after it."""
    yield
    for name in [one for one in sys.modules if one.split(".")[0] == "my_model"]:
        del sys.modules[name]
