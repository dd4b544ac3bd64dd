from __future__ import annotations

import os
from pathlib import Path

import pytest

from contract import cpus
from contract.cpus import usable_cpus


@pytest.fixture(autouse=True)
def cgroup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty control group; the affinity allows 8 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cpus, "CGROUP_ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("6400000 100000", 8)],
)
def test_quota_of_version_2(cgroup: Path, quota: str, expected: int) -> None:
    """Granted microseconds per period, rounded up; at least one CPU, at most those of the affinity."""
    (cgroup / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus() == expected


@pytest.mark.parametrize(("quota_us", "expected"), [(-1, 8), (200000, 2), (250000, 3)])
def test_quota_of_version_1(cgroup: Path, quota_us: int, expected: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus() == expected


def test_no_quota() -> None:
    assert usable_cpus() == 8
