"""Disk space of a running program: files that are too large, or that cannot be measured, fail it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rehearsal.runners import monitor
from rehearsal.runners.monitor import DiskWatch


def test_files_that_cannot_be_measured_fail_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process can measure in 0 s, like `du` on millions of files in a minute."""
    monkeypatch.setattr(monitor, "MAX_MEASURE_S", 0.0)
    stopped = threading.Event()
    with DiskWatch([tmp_path], 10**9, lambda _: stopped.set()) as watch:
        assert stopped.wait(30)
    assert watch.failure == (
        "disk limit exceeded: its files cannot be measured within 0 s, "
        "expected at most 1 GB in /output and /tmp together; it was killed"
    )


def test_files_that_fit_and_files_that_do_not(tmp_path: Path) -> None:
    """100,000 bytes take at least that much of the disk."""
    (tmp_path / "mask").write_bytes(bytes(range(250)) * 400)
    for limit_bytes, fits in ((10**6, True), (50_000, False)):
        with DiskWatch([tmp_path], limit_bytes, lambda _: None) as watch:
            watch.measure()
        assert (watch.failure is None) == fits
