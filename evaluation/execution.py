"""Apply a function to every case in other processes, local or on an existing Dask cluster, in a fixed order.

Cases hold submitted files, so no case is read in the program's own process. A local process has a limit of memory and,
for each case, of time. A process that dies fails only its own case, which is first repeated alone. Dask passes the
cases of a dead worker to another one, and gives up a case that kills several workers. The cluster's workers must see
the masks under the same paths and have the same version of this package.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import as_completed
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tqdm import tqdm

from contract.errors import GroundTruthError, HecktorError, together
from contract.processes import Died, map_in_processes

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


def _apply(
    work: Callable[[Item], Row], items: Sequence[Item], workers: Workers
) -> Generator[tuple[int, Row | Died], None, None]:
    """Apply `work` on this machine or on a cluster; yield index and row in the order of completion."""
    if isinstance(workers, str):
        return _apply_on_cluster(work, items, workers)
    limited = partial(_work_within_limits, work, Path.cwd(), CASE_TIME_LIMIT_S)
    return map_in_processes(limited, items, workers, _begin)


def _apply_on_cluster(
    work: Callable[[Item], Row], items: Sequence[Item], scheduler: str
) -> Generator[tuple[int, Row | Died], None, None]:
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None
    try:
        client = Client(scheduler, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError, ValueError):
        raise HecktorError(f"--scheduler {scheduler}", "nobody answers", "a Dask scheduler with a worker") from None
    with client, client.get_executor(pure=False) as executor:
        index_of = {executor.submit(work, item): index for index, item in enumerate(items)}
        try:
            for future in as_completed(index_of):
                try:
                    row: Row | Died = future.result()
                except KilledWorker as problem:
                    row = Died(str(problem))
                yield index_of[future], row
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


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


def _work_within_limits(work: Callable[[Item], Row], folder: Path, time_limit_s: float, item: Item) -> Row:
    """Do the work in the folder; the kernel ends the process after the time limit, even inside a library."""
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
    for index in _add_rows(rows, attempt, items, range(len(items)), workers):
        # A process may also end because those of other cases took too much memory: once more, alone.
        if _add_rows(rows, attempt, items, [index], workers if isinstance(workers, str) else 1):
            rows[index] = _row_or_fault(on_death, items[index])
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


def _add_rows(
    rows: dict[int, Row | GroundTruthError],
    attempt: Callable[[Item], Row | GroundTruthError],
    items: Sequence[Item],
    indices: Sequence[int],
    workers: Workers,
) -> list[int]:
    """Add the rows of the items with these indices to `rows`; return the indices whose processes died."""
    died = []
    with closing(_apply(attempt, [items[index] for index in indices], workers)) as results:
        for number, row in tqdm(results, total=len(indices), desc="cases", unit="case", disable=None, leave=False):
            if isinstance(row, Died):
                died.append(indices[number])
            else:
                rows[indices[number]] = row
    return sorted(died)
