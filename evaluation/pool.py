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

IN_THIS_PROCESS: Final = 0


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
        workers: processes; 0 stays in this process, which then ends with whatever ends the work.
        on_death: the row of an item that kills its process even when it is worked on alone.

    Raises:
        Whatever `work` raises.
    """
    if workers == IN_THIS_PROCESS:
        return [work(item) for item in _progress(items)]
    rows: dict[int, Row] = {}
    _work_together(work, items, workers, rows)
    while waiting := [index for index in range(len(items)) if index not in rows]:
        _work_one_by_one(work, items, waiting, on_death, rows)
    return [rows[index] for index in range(len(items))]


def _executor(processes: int) -> ProcessPoolExecutor:
    # A fresh interpreter a worker: a forked one would inherit the locks of ITK's threads.
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _work_together(work: Callable[[Item], Row], items: Sequence[Item], workers: int, rows: dict[int, Row]) -> None:
    """Fill `rows`; where a process dies, those not yet done are left out."""
    with _executor(max(1, min(workers, len(items)))) as executor:
        try:
            futures: dict[Future[Row], int] = {executor.submit(work, item): index for index, item in enumerate(items)}
            for future in _progress(as_completed(futures), len(futures)):
                rows[futures[future]] = future.result()
        except BrokenProcessPool:
            return
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _work_one_by_one(
    work: Callable[[Item], Row],
    items: Sequence[Item],
    waiting: Sequence[int],
    on_death: Callable[[Item], Row],
    rows: dict[int, Row],
) -> None:
    """Fill `rows` in one process with one item at a time, up to the first that kills it: that one is known then."""
    current = waiting[0]
    with _executor(1) as executor:
        try:
            for current in waiting:
                rows[current] = executor.submit(work, items[current]).result()
        except BrokenProcessPool:
            rows[current] = on_death(items[current])


def _progress(steps: Iterable[Step], total: int | None = None) -> Iterator[Step]:
    shown: Iterator[Step] = iter(tqdm(steps, total=total, desc="cases", unit="case", disable=None, leave=False))
    return shown
