"""As many threads as a container may use: the libraries count the host's cores and know nothing of a CPU quota."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

import SimpleITK as sitk

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")


def limit_itk_threads() -> None:
    """Lower SimpleITK's threads to the CPUs that this process may use."""
    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))


def limit_torch_threads() -> None:
    """Lower torch's threads to the CPUs that this process may use; `OMP_NUM_THREADS` is the user's own word."""
    import torch  # only where a network runs

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cpus()))


def usable_cpus(cgroup_root: Path = CGROUP_ROOT) -> int:
    """CPUs by affinity and by the control group's quota, version 2 or 1; at least 1."""
    quota = _quota(cgroup_root)
    allowed = len(os.sched_getaffinity(0))
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """CPU seconds a second that the control group grants, None where it sets no limit."""
    second, first = root / "cpu.max", root / "cpu" / "cpu.cfs_quota_us"
    if second.is_file():
        granted, period = second.read_text().split()
        return None if granted == "max" else int(granted) / int(period)
    if first.is_file():
        granted_us = int(first.read_text())
        return None if granted_us < 0 else granted_us / int((first.parent / "cpu.cfs_period_us").read_text())
    return None
