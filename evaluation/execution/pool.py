"""Cases worked on by several processes, here or on a cluster, in a fixed order; finished rows may be kept.

A process that dies costs its own case only: what it took down with it is done again, one case at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from tqdm import tqdm

from contract.processes import fresh_processes
from evaluation.row_store import RowStore

Item = TypeVar("Item")
Row = TypeVar("Row")
Step = TypeVar("Step")

IN_THIS_PROCESS: Final = 0


class Workers(Protocol):
    """Where the work is done."""

    @property
    def deaths(self) -> tuple[type[Exception], ...]:
        """What a future raises where the process that worked on it died."""

    def executor(self, n_items: int) -> AbstractContextManager[Executor]:
        """Processes for so many items; leaving the context ends what was started for it."""


@dataclass(frozen=True)
class LocalProcesses:
    """Processes on this machine, at most `count`."""

    count: int

    @property
    def deaths(self) -> tuple[type[Exception], ...]:
        """A pool breaks as a whole: every future that is not done raises this."""
        return (BrokenProcessPool,)

    def executor(self, n_items: int) -> AbstractContextManager[Executor]:
        """A pool of fresh interpreters."""
        return fresh_processes(max(1, min(self.count, n_items)), _be_silent)


def _be_silent() -> None:
    """Image libraries print paths, and bytes that are no text, about odd files; a submitter sees the last such line."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


@dataclass(frozen=True)
class Kept(Generic[Item, Row]):
    """Rows that outlast an interrupted run: where they lie, and the key of an item (None: not to be kept).

    A row for which `is_final` is False, of a disk that failed for instance, is made again by the next run.
    """

    store: RowStore[Row]
    key: Callable[[Item], str | None]
    is_final: Callable[[Row], bool]


@dataclass(frozen=True)
class Effort:
    """How rows are made: the workers (a number of local processes, 0 for none), and where rows are kept, if at all."""

    workers: int | Workers
    rows_dir: Path | None = None


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def map_cases(
    work: Callable[[Item], Row],
    items: Sequence[Item],
    workers: int | Workers,
    on_death: Callable[[Item], Row],
    kept: Kept[Item, Row] | None = None,
) -> list[Row]:
    """Apply `work` to every item, in the items' order.

    Args:
        work: a function of the module level, with picklable argument and result.
        items: what to work on.
        workers: where; a number is that of local processes, 0 stays in this process, which then ends with whatever
            ends the work.
        on_death: the row of an item that kills its process even when it is worked on alone; it is not kept.
        kept: finished rows of earlier runs, to which this run's are added one by one.

    Raises:
        Whatever `work` raises.
    """
    rows, keys = _known(items, kept)

    def done(index: int, row: Row) -> None:
        rows[index] = row
        key = keys.get(index)
        if kept is not None and key is not None and kept.is_final(row):
            kept.store.put(key, row)

    waiting = [index for index in range(len(items)) if index not in rows]
    if workers == IN_THIS_PROCESS:
        for index in _progress(waiting):
            done(index, work(items[index]))
    elif waiting:
        place = LocalProcesses(workers) if isinstance(workers, int) else workers
        _work_together(work, items, waiting, place, done)
        while waiting := [index for index in waiting if index not in rows]:
            guilty = _work_one_by_one(work, items, waiting, place, done)
            if guilty is not None:
                rows[guilty] = on_death(items[guilty])
    return [rows[index] for index in range(len(items))]


def _known(items: Sequence[Item], kept: Kept[Item, Row] | None) -> tuple[dict[int, Row], dict[int, str | None]]:
    """Rows of earlier runs by index, and every item's key."""
    if kept is None:
        return {}, {}
    keys = {index: kept.key(item) for index, item in enumerate(items)}
    found = {index: kept.store.get(key) for index, key in keys.items() if key is not None}
    return {index: row for index, row in found.items() if row is not None}, keys


def _work_together(
    work: Callable[[Item], Row],
    items: Sequence[Item],
    waiting: Sequence[int],
    workers: Workers,
    done: Callable[[int, Row], None],
) -> None:
    """Work on all that waits; what died is left out."""
    with workers.executor(len(waiting)) as executor:
        try:
            futures: dict[Future[Row], int] = {executor.submit(work, items[index]): index for index in waiting}
        except workers.deaths:
            return
        try:
            for future in _progress(as_completed(futures), len(futures)):
                _take(future, futures[future], workers, done)
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _take(future: Future[Row], index: int, workers: Workers, done: Callable[[int, Row], None]) -> None:
    try:
        row = future.result()
    except workers.deaths:
        return
    done(index, row)


def _work_one_by_one(
    work: Callable[[Item], Row],
    items: Sequence[Item],
    waiting: Sequence[int],
    workers: Workers,
    done: Callable[[int, Row], None],
) -> int | None:
    """Work on one item at a time, up to the first that kills its process: that one is known then, and given back."""
    current = waiting[0]
    with workers.executor(1) as executor:
        try:
            for current in waiting:
                done(current, executor.submit(work, items[current]).result())
        except workers.deaths:
            return current
    return None


def _progress(steps: Iterable[Step], total: int | None = None) -> Iterator[Step]:
    shown: Iterator[Step] = iter(tqdm(steps, total=total, desc="cases", unit="case", disable=None, leave=False))
    return shown
