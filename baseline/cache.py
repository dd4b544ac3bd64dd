"""Cached results of long computations over many patients: one file for each, valid for one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.processes import fresh_processes

Item = TypeVar("Item")
Result = TypeVar("Result")


def load_cached(path: Path, key: str) -> Any:
    """The result that `cache` wrote under this key, None if there is none or it has another key."""
    if not path.is_file():
        return None
    try:
        content = read_json(path)
    except HecktorError:  # a damaged file is computed again
        return None
    return content.get("result") if isinstance(content, dict) and content.get("key") == key else None


def cache(path: Path, key: str, result: Any) -> None:
    """Write a result under its key."""
    write_json(path, {"key": key, "result": result})


def map_items(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, title: str, unit: str = "patient"
) -> Iterator[Result]:
    """Apply `work` to every item with a progress bar; yield the results in the order in which they are ready.

    `work` is picklable if `jobs`, the number of processes, is above 1.

    Raises:
        HecktorError: a process ended without a result.
    """
    with tqdm(total=len(items), desc=title, unit=unit, disable=not items) as bar:
        for result in _results(work, items, jobs, title):
            bar.update()
            yield result


def _results(work: Callable[[Item], Result], items: Sequence[Item], jobs: int, title: str) -> Iterator[Result]:
    if min(jobs, len(items)) <= 1:
        yield from map(work, items)
        return
    with fresh_processes(min(jobs, len(items)), _one_thread) as pool:
        # No list of futures: each would hold its result until the last item.
        results = as_completed([pool.submit(work, item) for item in items])
        try:
            for future in results:
                yield future.result()
        except BrokenProcessPool:
            found = "a process ended without a result (a crash, or killed for its memory)"
            raise HecktorError(title, found, "fewer processes at once: --jobs 1") from None


def _one_thread() -> None:
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
