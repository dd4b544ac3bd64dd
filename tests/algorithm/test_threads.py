"""Threads of a case on made-up control groups and loads."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from algorithm import steps, threads
from algorithm.threads import choose_thread_count
from contract import processes


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of 8 CPUs, all allowed, with an empty control group and no load."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(processes, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(threads, "LOAD", tmp_path / "loadavg")
    return tmp_path


def load(machine: Path, mean: float, running: int) -> None:
    (machine / "loadavg").write_text(f"{mean:.2f} 9.00 9.00 {running}/700 4321\n")


@pytest.mark.parametrize(
    ("quota", "mean", "running", "expected"),
    [
        ("max 100000", 0.3, 1, 8),
        ("max 100000", 3.0, 4, 5),
        ("max 100000", 3.9, 9, 5),
        ("max 100000", 40.0, 60, 1),
        ("max 100000", 7.5, 1, 8),  # the threads of the case before, which is over
        ("max 100000", 0.2, 9, 8),  # the work of a moment
        ("200000 100000", 0.0, 1, 2),
        ("200000 100000", 5.0, 6, 2),  # three CPUs are free, two are granted
        ("200000 100000", 7.2, 8, 1),
        ("50000 100000", 0.0, 1, 1),
    ],
)
def test_threads_are_what_quota_and_load_leave(
    machine: Path, quota: str, mean: float, running: int, expected: int
) -> None:
    (machine / "cpu.max").write_text(f"{quota}\n")
    load(machine, mean, running)
    assert choose_thread_count({}) == expected


def test_a_system_without_a_load_leaves_all_cpus(machine: Path) -> None:
    assert choose_thread_count({}) == 8
    (machine / "loadavg").write_text("no load\n")
    assert choose_thread_count({}) == 8


@pytest.mark.parametrize(("wanted", "expected"), [("3", 3), ("12", 12), ("4,2", 4), ("0", 6), ("many", 6), ("", 6)])
def test_omp_num_threads_wins(machine: Path, wanted: str, expected: int) -> None:
    """Without a number of at least 1 the load of 2 leaves 6 of 8."""
    load(machine, 2.0, 3)
    assert choose_thread_count({"OMP_NUM_THREADS": wanted}) == expected


def test_images_take_no_more_threads_than_the_quota(machine: Path) -> None:
    (machine / "cpu.max").write_text("100000 100000\n")
    before = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    try:
        threads.limit_image_threads()
        assert sitk.ProcessObject.GetGlobalDefaultNumberOfThreads() == 1
    finally:
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(before)


def test_each_pass_has_a_line_with_its_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Passes that end 2.5 s and 6 s after the start took 2.5 s and 3.5 s."""
    clock = iter([100.0, 102.5, 106.0])
    monkeypatch.setattr("algorithm.steps.time.monotonic", lambda: next(clock))
    caplog.set_level("INFO", "hecktor")
    observe = steps._observer(8)
    for step in ("first", "second"):
        observe(step, np.zeros(1, np.float32))  # type: ignore[arg-type]
    assert caplog.messages == ["pass 1 of 8: 2.5 s", "pass 2 of 8: 3.5 s"]
