"""Cached results of long computations: one file for each, valid for one key, a digest of all that it is made from.

A key holds options and the contents of files, so that copies of all files have the same keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from tqdm import tqdm

from baseline.preparation import MOVED, release_of
from baseline.work import WorkFolders
from contract.errors import HecktorError, InputError, OutputError
from contract.io.files import read_json, write_json
from contract.packages import make_file_entry
from contract.processes import WorkerDeath, count_usable_cpus, map_in_processes

Item = TypeVar("Item")
Result = TypeVar("Result")
# Files, None for an absent one, and options that a result is made from.
Sources = tuple[Sequence[Path | None], Mapping[str, Any]]
# Files of more bytes together are read by several threads, with a progress bar.
_MANY_BYTES: Final = 2**28
_MOST_THREADS: Final = 8


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
    with closing(map_in_processes(work, items, jobs, _one_thread)) as results:
        for _, result in results:
            if isinstance(result, WorkerDeath):
                found = f"a process ended without a result ({result.reason}: a crash, or killed for its memory)"
                raise HecktorError(title, found, "fewer processes at once: --jobs 1")
            yield result


def _one_thread() -> None:
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)


def digest(made_from: Any) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def key_of(work: WorkFolders, files: Sequence[Path | None], options: Mapping[str, Any]) -> str:
    """A digest of the options and of the files' names and contents. See `contents_of` for the errors."""
    return keys_of(work, {"": (files, options)})[""]


def keys_of(work: WorkFolders, made_from: Mapping[str, Sources], release: Path | None = None) -> dict[str, str]:
    """The keys of several results by name, as `key_of` makes them; files are read together."""
    contents = contents_of(work, {path for files, _ in made_from.values() for path in files if path}, release)
    return {
        name: digest([[None if path is None else [path.name, contents[path]] for path in files], dict(options)])
        for name, (files, options) in made_from.items()
    }


def contents_of(work: WorkFolders, paths: Collection[Path], release: Path | None = None) -> dict[Path, str | None]:
    """The sha256 of files; None for one that cannot be read.

    `digests.json` keeps those of the working directory and of the release, by their paths below these folders. A file
    of the same size and modification time is not read again: a change that keeps both goes unnoticed. After a copy,
    which has other times, all are read once. Several processes may use the file at once; what one of them does not find
    there it reads again.

    Args:
        work: the working directory.
        paths: the files.
        release: the folder of the release, if `prepare.json` does not have it yet.

    Raises:
        InputError: a file does not exist, for example because the release was moved after `prepare`.
    """
    if release is None and any(not path.is_relative_to(work.root) for path in paths):
        release = release_of(work) if (work.root / "prepare.json").is_file() else None
    roots = {"work": work.root, "release": release}
    stamps, stored = {path: _stamp(path, release) for path in sorted(paths)}, _stored_digests(work)
    places = {path: _place(path, roots) for path in stamps}
    found, unread = {}, []
    for path, (size, time_ns) in stamps.items():
        known = stored.get(places[path])
        if isinstance(known, list) and known[:-1] == [size, time_ns]:
            found[path] = known[-1]
        else:
            unread.append(path)
    new: dict[str, list[Any]] = {}
    try:
        for path, sha256 in _read_files(unread, sum(stamps[path][0] for path in unread)):
            found[path] = sha256
            if places[path] and sha256 is not None:
                new[places[path]] = [*stamps[path], sha256]
    finally:  # after an interruption the others are read
        if new:
            # Without the file the next command reads again, as where the working directory is read-only.
            with suppress(OutputError):
                write_json(work.digests_json, _stored_digests(work) | new, indent=None)
    return found


def _stamp(path: Path, release: Path | None) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as problem:
        moved = f", or {MOVED}" if release is not None and path.is_relative_to(release) else ""
        raise InputError(path.name, f"{problem.strerror}", f"it in {path.parent}{moved}") from None
    return status.st_size, status.st_mtime_ns


def _place(path: Path, roots: Mapping[str, Path | None]) -> str:
    """A file's name in `digests.json`; empty for a file elsewhere, which is read each time."""
    places = (f"{name}/{path.relative_to(root)}" for name, root in roots.items() if root and path.is_relative_to(root))
    return next(places, "")


def _stored_digests(work: WorkFolders) -> dict[str, Any]:
    if not work.digests_json.is_file():
        return {}
    try:
        content = read_json(work.digests_json)
    except HecktorError:  # of a damaged file everything is read again
        return {}
    return content if isinstance(content, dict) else {}


def _read_files(paths: Sequence[Path], size: int) -> Iterator[tuple[Path, str | None]]:
    """Each path with the sha256 of its file."""
    if size <= _MANY_BYTES:
        yield from map(_sha256, paths)
        return
    pool = ThreadPoolExecutor(min(count_usable_cpus(), _MOST_THREADS))
    try:
        yield from tqdm(pool.map(_sha256, paths), desc="read files", unit="file", total=len(paths))
    finally:
        pool.shutdown(cancel_futures=True)


def _sha256(path: Path) -> tuple[Path, str | None]:
    try:
        return path, str(make_file_entry(path)["sha256"])
    except OSError:  # the step that needs the file says why it cannot be read
        return path, None
