from __future__ import annotations

import os
from pathlib import Path

import pytest

from algorithm.cpus import usable_cpus


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("6400000 100000", 8)],
)
def test_quota_of_version_2(tmp_path: Path, quota: str, expected: int) -> None:
    """Granted microseconds a period, rounded up; at least one CPU, at most those of the affinity."""
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus(tmp_path) == expected


@pytest.mark.parametrize(("quota_us", "expected"), [(-1, 8), (200000, 2), (250000, 3)])
def test_quota_of_version_1(tmp_path: Path, quota_us: int, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == expected


def test_no_quota(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == 8
