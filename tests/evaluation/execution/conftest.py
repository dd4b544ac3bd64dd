"""Tests of the processes themselves."""

from __future__ import annotations

import pytest


@pytest.fixture
def compare_in_process() -> None:
    """Compare masks in worker processes."""
