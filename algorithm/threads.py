"""The threads of a case: those that the control group and the load of the machine leave.

With more busy threads than CPUs each step of a network waits for its slowest thread: a prediction of 3 s took 54 s
beside four busy loops, and 12 s with a single thread.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import SimpleITK as sitk

from contract.processes import usable_cpus

LOGGER = logging.getLogger("hecktor")

THREADS_VARIABLE: Final = "OMP_NUM_THREADS"
LOAD: Final = Path("/proc/loadavg")


def limit_image_threads() -> None:
    """Let SimpleITK use as many threads as this process may use CPUs, of which it takes the host's otherwise."""
    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))


def use_chosen_threads() -> None:
    """Give torch the threads that this case may take, and log a number below the usable CPUs."""
    import torch  # only a network needs it

    count, most = choose_thread_count(), usable_cpus()
    if count < most and THREADS_VARIABLE not in os.environ:
        LOGGER.info("%d of %d threads: other processes keep the other CPUs busy", count, most)
    torch.set_num_threads(count)


def choose_thread_count(environment: Mapping[str, str] = os.environ) -> int:
    """Threads for one case, at least 1: `OMP_NUM_THREADS`, else the usable CPUs that others leave."""
    wanted = environment.get(THREADS_VARIABLE, "").partition(",")[0].strip()  # a list has a number for each level
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    return max(1, min(usable_cpus(), (os.cpu_count() or 1) - _busy_elsewhere()))


def _busy_elsewhere() -> int:
    """Threads of others that keep the machine's CPUs busy; 0 where the system does not tell.

    They ran in the mean over the last minute and run now: the mean alone holds this process's own threads of the case
    before, the present number alone those of a moment.
    """
    try:
        mean, _, _, running, _ = LOAD.read_text().split()
        return min(math.floor(float(mean)), max(0, int(running.partition("/")[0]) - 1))  # this thread runs, too
    except (OSError, ValueError):
        return 0
