"""CPUs that this process may use. Libraries count the host's cores and ignore the CPU quota of a container."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")


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
