"""Apply a function to every case in other processes, local or on an existing Dask cluster, in a fixed order.

Cases hold submitted files, so no case is read in the program's own process. A local process has a limit of memory and,
for each case, of time. A process that dies costs only its own case: the other cases lost with it are repeated one at a
time. Dask itself passes the cases of a dead worker to another one, and gives up a case that kills several workers. The
cluster's workers must see the masks under the same paths and have the same version of this package.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tqdm import tqdm

from contract.errors import GroundTruthError, HecktorError, together
from contract.processes import MORE_RESOURCES, fresh_processes

Item = TypeVar("Item")
Row = TypeVar("Row")
# The number of local processes, or the address of a Dask scheduler, such as `tcp://10.0.0.1:8786`.
Workers: TypeAlias = int | str

# Far more than any scan takes: a floating mask of 2^30 voxels with its reference takes 12 GiB.
MEMORY_BYTES: Final = 16 * 2**30
CASE_TIME_LIMIT_S: Final = 900
# For messages about a case whose process died.
DEATH: Final = f"a crash, more than {MEMORY_BYTES >> 30} GiB of memory, or {CASE_TIME_LIMIT_S} s"
CONNECT_TIMEOUT_S: Final = 30


@contextmanager
def _executor(workers: Workers, n_items: int) -> Iterator[Executor]:
    """Fresh interpreters on this machine, or a cluster's workers."""
    if isinstance(workers, int):
        with fresh_processes(max(1, min(workers, n_items)), _begin) as executor:
            yield executor
        return
    from distributed import Client

    try:
        client = Client(workers, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError, ValueError):
        raise HecktorError(f"--scheduler {workers}", "nobody answers", "a Dask scheduler with a worker") from None
    with client, client.get_executor(pure=False) as executor:
        yield executor


def _deaths(workers: Workers) -> tuple[type[Exception], ...]:
    """Exception of a future whose process died."""
    if isinstance(workers, int):
        return (BrokenProcessPool,)
    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None
    return (KilledWorker,)


def _submit(executor: Executor, workers: Workers, work: Callable[[Item], Row], item: Item) -> Future[Row]:
    """Submit one item; local processes work in this process's folder and within the time limit."""
    if isinstance(workers, str):
        return executor.submit(work, item)
    return executor.submit(_limited, work, item, Path.cwd(), CASE_TIME_LIMIT_S)


def _begin() -> None:
    """Limit the memory, and silence image libraries, which print paths and binary data about odd files."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _limited(work: Callable[[Item], Row], item: Item, folder: Path, time_limit_s: float) -> Row:
    """Do the work; the kernel ends the process after the time limit, even inside a library."""
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_REAL, time_limit_s)
    try:
        return work(item)
    except MemoryError:
        os._exit(1)  # for this case alone, as if the kernel had ended the process
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def map_cases(
    work: Callable[[Item], Row], items: Sequence[Item], workers: Workers, on_death: Callable[[Item], Row]
) -> list[Row]:
    """Apply `work`, a function of the module level with picklable argument and result, to every item in order.

    `on_death` returns the row of an item whose process dies even when it is processed alone.
    Raises GroundTruthError after all items: every reference that cannot be used.
    """
    if not items:
        return []
    rows: dict[int, Row | GroundTruthError] = {}
    attempt = partial(_row_or_fault, work)
    _process_all(attempt, items, workers, rows)
    while waiting := [index for index in range(len(items)) if index not in rows]:
        crashed_index = _process_one_by_one(attempt, items, waiting, workers, rows)
        if crashed_index is not None:
            rows[crashed_index] = _row_or_fault(on_death, items[crashed_index])
    faults = [row for _, row in sorted(rows.items()) if isinstance(row, GroundTruthError)]
    if faults:
        raise together(faults, f"{len(faults)} of {len(items)} references cannot be used")
    return [row for _, row in sorted(rows.items()) if not isinstance(row, GroundTruthError)]


def _row_or_fault(work: Callable[[Item], Row], item: Item) -> Row | GroundTruthError:
    """The row, or the fault of the reference, since whoever repairs references wants to know all of them."""
    try:
        return work(item)
    except GroundTruthError as fault:
        return fault


def _process_all(work: Callable[[Item], Row], items: Sequence[Item], workers: Workers, rows: dict[int, Row]) -> None:
    """Add the row of every item to `rows`, except for items whose process died."""
    deaths = _deaths(workers)
    with _executor(workers, len(items)) as executor:
        try:
            futures: dict[Future[Row], int] = {
                _submit(executor, workers, work, item): index for index, item in enumerate(items)
            }
        except deaths:
            return
        try:
            done = as_completed(futures)
            for future in tqdm(done, total=len(futures), desc="cases", unit="case", disable=None, leave=False):
                with suppress(*deaths):
                    rows[futures[future]] = future.result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _process_one_by_one(
    work: Callable[[Item], Row], items: Sequence[Item], waiting: Sequence[int], workers: Workers, rows: dict[int, Row]
) -> int | None:
    """Process one item at a time and return the index of the first that kills its process.

    Raises HecktorError: a process ends without any item.
    """
    current, deaths = waiting[0], _deaths(workers)
    with _executor(workers, 1) as executor:
        try:
            executor.submit(int).result()
        except deaths:
            raise HecktorError("worker processes", "each ends at its start", MORE_RESOURCES) from None
        try:
            for current in waiting:
                rows[current] = _submit(executor, workers, work, items[current]).result()
        except deaths:
            return current
    return None
