"""Work on many patients that survives an interruption: each result lies in a file of its own, under a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, TypeVar

import SimpleITK as sitk
from tqdm import tqdm

from contract.errors import HecktorError, InputError
from contract.files import read_json, write_json
from contract.processes import fresh_processes

Item = TypeVar("Item")
Result = TypeVar("Result")


def key_of(files: Sequence[Path | None], options: Mapping[str, Any]) -> str:
    """A digest of the files' names, sizes and times of change, and of the options; None stands for an absent file.

    Raises:
        InputError: a file is gone, as where the release was moved after it was prepared.
    """
    stats = [None if path is None else _stamp(path) for path in files]
    content = json.dumps([stats, dict(options)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError as problem:
        raise InputError(path.name, f"{problem.strerror}", f"it in {path.parent}") from None
    return path.name, found.st_size, found.st_mtime_ns


def read_kept(path: Path, key: str) -> Any:
    """What `keep` wrote under the same key; None where there is nothing, or it was made from something else."""
    if not path.is_file():
        return None
    try:
        content = read_json(path)
    except HecktorError:  # damaged: made again
        return None
    return content.get("result") if isinstance(content, dict) and content.get("key") == key else None


def keep(path: Path, key: str, result: Any) -> None:
    """Write a result, whole or not at all."""
    write_json(path, {"key": key, "result": result})


def each(work: Callable[[Item], Result], items: Sequence[Item], jobs: int, doing: str) -> Iterator[Result]:
    """Do `work` on every item, as results come, behind a progress bar; an interruption loses only what is unfinished.

    Args:
        work: can be pickled where `jobs` is above 1.
        items: what to work on.
        jobs: processes.
        doing: the progress bar's title.
    """
    with tqdm(total=len(items), desc=doing, unit="patient", disable=not items) as bar:
        for result in _results(work, items, jobs):
            bar.update()
            yield result


def _results(work: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[Result]:
    if min(jobs, len(items)) <= 1:
        yield from map(work, items)
        return
    with fresh_processes(min(jobs, len(items)), _one_thread) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _one_thread() -> None:
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
