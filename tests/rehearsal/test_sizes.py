"""Memory sizes of the command line, and the platform's limits."""

from __future__ import annotations

import argparse

import pytest

from rehearsal.cli import memory_bytes
from rehearsal.runners.runner import GIB, Limits


def test_memory_limits_follow_the_platform():
    """16 GiB: half of it is shared memory, and a process's data segment is 1 GiB short of it."""
    limits = Limits(16 * GIB, 600)
    assert limits.shared_memory_bytes == 8 * GIB
    assert limits.data_segment_bytes == 15 * GIB
    assert Limits(GIB, 600).data_segment_bytes is None


@pytest.mark.parametrize(
    ("text", "size"), [("16g", 16 * GIB), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("33554432", 2**25)]
)
def test_memory_sizes(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "16x", "-1g", "1k", "nan"])
def test_invalid_memory_sizes(text):
    with pytest.raises(argparse.ArgumentTypeError):
        memory_bytes(text)
