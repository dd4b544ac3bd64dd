"""Apply a function to every case in other processes, local or on an existing Dask cluster, in a fixed order.

Cases hold submitted files, so no case is read in the program's own process. A local process has a limit of memory and,
for each case, of time. A process that dies costs only its own case: the other cases lost with it are repeated one at a
time. Dask itself passes the cases of a dead worker to another one, and gives up a case that kills several workers. The
cluster's workers must see the masks under the same paths and have the same version of this package.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tqdm import tqdm

from contract.errors import GroundTruthError, HecktorError, together
from contract.processes import MORE_RESOURCES, fresh_processes, usable_cpus

Item = TypeVar("Item")
Row = TypeVar("Row")

ONE_FOR_ALL_CALLS: Final = 0
# Far more than any scan takes: a floating mask of 2^30 voxels with its reference takes 12 GiB.
MEMORY_BYTES: Final = 16 * 2**30
CASE_TIME_LIMIT_S: Final = 900
# For messages about a case whose process died.
DEATH: Final = f"a crash, more than {MEMORY_BYTES >> 30} GiB of memory, or {CASE_TIME_LIMIT_S} s"
CONNECT_TIMEOUT_S: Final = 30
_SECONDS_A_VOXEL: Final = 1.5e-9
_START_S: Final = 1.0


@dataclass(frozen=True)
class Workers:
    """Local processes or a cluster.

    `executor` opens processes for a number of items; leaving its context ends or disconnects them. `deaths` are raised
    by a future whose worker process dies.
    """

    executor: Callable[[int], AbstractContextManager[Executor]]
    deaths: tuple[type[Exception], ...]
    are_local: bool = True

    def submit(self, executor: Executor, work: Callable[[Item], Row], item: Item) -> Future[Row]:
        """Submit one item; local processes work in this process's folder and within the time limit."""
        if not self.are_local:
            return executor.submit(work, item)
        return executor.submit(_limited, work, item, Path.cwd(), CASE_TIME_LIMIT_S)


# The number of local processes, 0 for one that later calls use again; None is as many as pay.
AnyWorkers: TypeAlias = int | Workers | None


def processes_that_pay(n_cases: int, voxels: int) -> int:
    """The number of local processes for cases of about this many voxels.

    Comparing takes about 1.5 ns a voxel, starting interpreters and their libraries about a second, whatever their
    number: W processes pay if they save more than they take, work (1 - 1/W) > 1 s. Twelve masks of 27 million voxels
    (0.5 s) are compared in one process, a test set of a hundred (4 s) in all.
    """
    processes = min(usable_cpus(), n_cases)
    saved_s = n_cases * voxels * _SECONDS_A_VOXEL * (1 - 1 / max(1, processes))
    return processes if saved_s > _START_S else ONE_FOR_ALL_CALLS


def local_processes(count: int) -> Workers:
    """Fresh interpreters on this machine, at most `count`; 0 is one that later calls use again."""
    if count == ONE_FOR_ALL_CALLS:
        return Workers(lambda _: _lasting_process(), (BrokenProcessPool,))
    return Workers(lambda n_items: fresh_processes(max(1, min(count, n_items)), _begin), (BrokenProcessPool,))


@contextmanager
def _lasting_process() -> Iterator[Executor]:
    try:
        _pool_of(os.getpid()).submit(int).result()
    except RuntimeError:  # its process died, or an error or Ctrl-C shut it down
        _pool_of.cache_clear()
    yield _pool_of(os.getpid())


@cache
def _pool_of(_parent: int) -> ProcessPoolExecutor:
    """One process, by that of its parent, since a fork cannot use it."""
    pool = fresh_processes(1, _begin)
    # Before the exit function of multiprocessing, which waits for the process.
    atexit.register(pool.shutdown)
    return pool


def dask_workers(address: str) -> Workers:
    """The workers behind a scheduler's address, such as `tcp://10.0.0.1:8786`."""
    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None
    return Workers(lambda _: _connected(address), (KilledWorker,), are_local=False)


@contextmanager
def _connected(address: str) -> Iterator[Executor]:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError):
        raise HecktorError(f"--scheduler {address}", "no scheduler answers", "a running Dask scheduler") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
        except TimeoutError:
            raise HecktorError(f"--scheduler {address}", "it has no worker", "at least one") from None
        executor: Executor = client.get_executor(pure=False)
        with executor:
            yield executor


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
    work: Callable[[Item], Row], items: Sequence[Item], workers: int | Workers, on_death: Callable[[Item], Row]
) -> list[Row]:
    """Apply `work`, a function of the module level with picklable argument and result, to every item in order.

    `on_death` returns the row of an item whose process dies even when it is processed alone.
    Raises GroundTruthError after all items: every reference that cannot be used.
    """
    if not items:
        return []
    place = local_processes(workers) if isinstance(workers, int) else workers
    rows: dict[int, Row | GroundTruthError] = {}
    attempt = partial(_row_or_fault, work)
    _process_all(attempt, items, place, rows)
    while waiting := [index for index in range(len(items)) if index not in rows]:
        guilty = _process_one_by_one(attempt, items, waiting, place, rows)
        if guilty is not None:
            rows[guilty] = _row_or_fault(on_death, items[guilty])
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
    with workers.executor(len(items)) as executor:
        try:
            futures: dict[Future[Row], int] = {
                workers.submit(executor, work, item): index for index, item in enumerate(items)
            }
        except workers.deaths:
            return
        try:
            done = as_completed(futures)
            for future in tqdm(done, total=len(futures), desc="cases", unit="case", disable=None, leave=False):
                with suppress(*workers.deaths):
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
    current = waiting[0]
    with workers.executor(1) as executor:
        try:
            executor.submit(int).result()
        except workers.deaths:
            raise HecktorError("worker processes", "each ends at its start", MORE_RESOURCES) from None
        try:
            for current in waiting:
                rows[current] = workers.submit(executor, work, items[current]).result()
        except workers.deaths:
            return current
    return None
