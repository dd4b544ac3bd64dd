"""Tests of the processes themselves."""

from __future__ import annotations

import pytest


@pytest.fixture
def in_this_process() -> None:
    """Masks are compared in processes of their own."""
