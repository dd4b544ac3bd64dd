"""Apply a function to every case in other processes, local or on an existing Dask cluster, in a fixed order.

Cases contain files from submitters, so the program's own process does not read them. A local process has a memory
limit, and a time limit for each case. A case whose process dies is tried again on its own; if its process dies again,
only this case fails. Dask passes the cases of a dead worker to another worker, and gives up on a case that kills
several workers. The cluster's workers must see the masks under the same paths and have the same version of this
package.
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

from contract.errors import GroundTruthError, HecktorError, combine_errors
from contract.processes import WorkerDeath, map_in_processes

Item = TypeVar("Item")
Row = TypeVar("Row")
# The number of local processes, or the address of a Dask scheduler, such as `tcp://10.0.0.1:8786`.
Workers: TypeAlias = int | str

# Far more than any scan needs: a floating-point mask of 2^30 voxels with its reference takes 12 GiB.
MEMORY_BYTES: Final = 16 * 2**30
CASE_TIME_LIMIT_S: Final = 900
# For messages about a case whose process died.
DEATH: Final = f"a crash, more than {MEMORY_BYTES >> 30} GiB of memory, or {CASE_TIME_LIMIT_S} s"
CONNECT_TIMEOUT_S: Final = 30


def _apply(
    work: Callable[[Item], Row], items: Sequence[Item], workers: Workers
) -> Generator[tuple[int, Row | WorkerDeath], None, None]:
    """Apply `work` on this machine or on a cluster, and yield index and row in the order of completion."""
    if isinstance(workers, str):
        return _apply_on_cluster(work, items, workers)
    limited = partial(_work_within_limits, work, Path.cwd(), CASE_TIME_LIMIT_S)
    return map_in_processes(limited, items, workers, _prepare_process)


def _apply_on_cluster(
    work: Callable[[Item], Row], items: Sequence[Item], scheduler: str
) -> Generator[tuple[int, Row | WorkerDeath], None, None]:
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None
    try:
        client = Client(scheduler, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError, ValueError):
        raise HecktorError(f"--scheduler {scheduler}", "no answer", "a Dask scheduler with a worker") from None
    with client, client.get_executor(pure=False) as executor:
        index_of = {executor.submit(work, item): index for index, item in enumerate(items)}
        try:
            for future in as_completed(index_of):
                try:
                    row: Row | WorkerDeath = future.result()
                except KilledWorker as problem:
                    row = WorkerDeath(str(problem))
                yield index_of[future], row
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _prepare_process() -> None:
    """Limit the memory, and silence image libraries, which print paths and binary data about unusual files."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(devnull, stream)
    os.close(devnull)


def _work_within_limits(work: Callable[[Item], Row], folder: Path, time_limit_s: float, item: Item) -> Row:
    """Call `work` in `folder`; the kernel ends the process after the time limit, even inside a library."""
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_REAL, time_limit_s)
    try:
        return work(item)
    except MemoryError:
        os._exit(1)  # Only this case fails, as if the kernel had ended the process.
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def map_cases(
    work: Callable[[Item], Row], items: Sequence[Item], workers: Workers, on_death: Callable[[Item], Row]
) -> list[Row]:
    """Apply `work` to every item and return the rows in the order of the items.

    Args:
        work: Function of a module, with a picklable argument and result.
        items: Cases.
        workers: Number of local processes, or the address of a Dask scheduler.
        on_death: Returns the row of an item whose process dies again when the item is processed by itself.

    Raises:
        GroundTruthError: A reference cannot be used. The error names all such references and is raised after all items
            have been processed.
    """
    if not items:
        return []
    attempt = partial(_catch_reference_error, work)
    first_rows = _map_once(attempt, items, workers)
    # A process may also die because other cases take too much memory. The second attempt has no other cases.
    single = workers if isinstance(workers, str) else 1
    second_rows = [
        _map_once(attempt, [item], single)[0] if isinstance(row, WorkerDeath) else row
        for item, row in zip(items, first_rows, strict=True)
    ]
    rows = [
        _catch_reference_error(on_death, item) if isinstance(row, WorkerDeath) else row
        for item, row in zip(items, second_rows, strict=True)
    ]
    errors = [row for row in rows if isinstance(row, GroundTruthError)]
    if errors:
        raise combine_errors(errors, f"{len(errors)} of {len(items)} references cannot be used")
    return [row for row in rows if not isinstance(row, GroundTruthError)]


def _catch_reference_error(work: Callable[[Item], Row], item: Item) -> Row | GroundTruthError:
    """Return the row or the error of its reference, so that an organiser sees the errors of all references at once."""
    try:
        return work(item)
    except GroundTruthError as error:
        return error


def _map_once(work: Callable[[Item], Row], items: Sequence[Item], workers: Workers) -> list[Row | WorkerDeath]:
    """Apply `work` to every item with a progress bar, and return the rows in the order of the items."""
    from tqdm import tqdm  # slow to import; a ranking and a report show no progress

    with closing(_apply(work, items, workers)) as results:
        row_of = dict(tqdm(results, total=len(items), desc="cases", unit="case", disable=None, leave=False))
    return [row_of[index] for index in range(len(items))]
