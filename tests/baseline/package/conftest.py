"""Fixtures of the tests of packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _forget_imported_code() -> Iterator[None]:
    """Remove the code `my_model` from the imported modules after each test."""
    yield
    for name in [module for module in sys.modules if module.split(".")[0] == "my_model"]:
        del sys.modules[name]
