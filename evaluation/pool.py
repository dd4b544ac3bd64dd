"""Cases worked on by several processes, in a fixed order; a process that dies costs its own case only."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Final, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
Row = TypeVar("Row")
Step = TypeVar("Step")

# Below this a process costs more to start than it saves.
MIN_CASES_FOR_PROCESSES: Final = 4


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def map_cases(
    work: Callable[[Item], Row],
    items: Sequence[Item],
    workers: int,
    on_death: Callable[[Item], Row],
) -> list[Row]:
    """Apply `work` to every item, in the items' order.

    Args:
        work: a function of the module level, with picklable argument and result.
        items: what to work on.
        workers: processes; 1 stays in this process.
        on_death: the row of an item whose process died, twice: among others, and then alone.

    Raises:
        Whatever `work` raises.
    """
    processes = min(workers, len(items))
    if processes <= 1 or len(items) < MIN_CASES_FOR_PROCESSES:
        return [work(item) for item in _progress(items)]
    rows: dict[int, Row] = {}
    _run(work, items, range(len(items)), processes, rows)
    for index in [index for index in range(len(items)) if index not in rows]:
        _run(work, items, [index], 1, rows)
    return [rows[index] if index in rows else on_death(item) for index, item in enumerate(items)]


def _run(
    work: Callable[[Item], Row], items: Sequence[Item], indices: Sequence[int], processes: int, rows: dict[int, Row]
) -> None:
    """Fill `rows` with what could be done; a broken pool leaves the rest out."""
    # A fresh interpreter a worker: a forked one would inherit the locks of ITK's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as executor:
        futures: dict[Future[Row], int] = {executor.submit(work, items[index]): index for index in indices}
        try:
            for future in _progress(as_completed(futures), len(futures)):
                rows[futures[future]] = future.result()
        except BrokenProcessPool:
            return
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _progress(steps: Iterable[Step], total: int | None = None) -> Iterator[Step]:
    shown: Iterator[Step] = iter(tqdm(steps, total=total, desc="cases", unit="case", disable=None, leave=False))
    return shown
