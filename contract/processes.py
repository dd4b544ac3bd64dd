"""Worker processes that end with their parent, and the CPUs that they may use.

Libraries count the host's cores and ignore the CPU quota of a container.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")


def fresh_processes(count: int, begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """Start a pool of spawned interpreters; forked ones inherit the locks of ITK's threads and can hang.

    Args:
        count: number of processes, at least 1.
        begin: initializer of each process, a function at module level.

    Returns:
        The pool. Its processes exit when the parent is killed; without that they would wait for work forever.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(begin,))


def _begin(begin: Callable[[], object] | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()
    if begin is not None:
        begin()


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)


def usable_cpus() -> int:
    """CPUs by affinity and by the control group's quota (version 2 or 1), rounded up; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUP_ROOT)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """CPU seconds per second that the control group grants, None without a limit."""
    version_2, version_1 = root / "cpu.max", root / "cpu" / "cpu.cfs_quota_us"
    if version_2.is_file():
        granted, period = version_2.read_text().split()
        return None if granted == "max" else int(granted) / int(period)
    if version_1.is_file():
        granted_us = int(version_1.read_text())
        return None if granted_us < 0 else granted_us / int((version_1.parent / "cpu.cfs_period_us").read_text())
    return None
