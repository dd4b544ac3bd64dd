"""Memory sizes of the command line, and the platform's limits."""

from __future__ import annotations

import argparse

import pytest

from rehearsal.cli import memory_bytes
from rehearsal.runners.runner import GIB


@pytest.mark.parametrize(
    ("text", "size"), [("16g", 16 * GIB), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("33554432", 2**25)]
)
def test_memory_sizes(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "16x", "-1g", "1k", "nan"])
def test_invalid_memory_sizes(text):
    with pytest.raises(argparse.ArgumentTypeError):
        memory_bytes(text)
