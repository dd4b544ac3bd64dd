"""Cached results of long computations: one file for each result, valid for one key.

The key is a digest of options and of the contents of files, so that copied files give the same keys.
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

from baseline.work import MOVED, WorkFolders, read_release_folder
from contract.errors import HecktorError, InputError, OutputError
from contract.io.files import read_json, write_json
from contract.packages import make_file_entry
from contract.processes import WorkerDeath, count_usable_cpus, map_in_processes

Item = TypeVar("Item")
Result = TypeVar("Result")
# Inputs of a result: files, None for an absent file, and options.
Sources = tuple[Sequence[Path | None], Mapping[str, Any]]
# Above this total size several threads read the files, and a progress bar is shown.
_MAX_BYTES_WITHOUT_THREADS: Final = 2**28
_MAX_THREADS: Final = 8


def load_cached(path: Path, key: str) -> Any:
    """Load the result that `store_cached` wrote under this key; None if there is no such result."""
    if not path.is_file():
        return None
    try:
        content = read_json(path)
    except HecktorError:  # a damaged file is computed again
        return None
    return content.get("result") if isinstance(content, dict) and content.get("key") == key else None


def store_cached(path: Path, key: str, result: Any) -> None:
    """Write a result under its key."""
    write_json(path, {"key": key, "result": result})


def map_items(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, title: str, unit: str = "patient"
) -> Iterator[Result]:
    """Apply `work` to every item with a progress bar; yield each result when it is ready.

    `work` must be picklable if `jobs`, the number of processes, is above 1.

    Raises:
        HecktorError: A process ended without a result.
    """
    with tqdm(total=len(items), desc=title, unit=unit, disable=not items) as bar:
        for result in _map_results(work, items, jobs, title):
            bar.update()
            yield result


def _map_results(work: Callable[[Item], Result], items: Sequence[Item], jobs: int, title: str) -> Iterator[Result]:
    if min(jobs, len(items)) <= 1:
        yield from map(work, items)
        return
    with closing(map_in_processes(work, items, jobs, _use_one_thread)) as results:
        for _, result in results:
            if isinstance(result, WorkerDeath):
                death = f"a process ended without a result ({result.reason}: it crashed or used too much memory)"
                raise HecktorError(title, death, "fewer processes at once: --jobs 1")
            yield result


def _use_one_thread() -> None:
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)


def compute_digest(value: Any) -> str:
    """Compute a digest of JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def compute_key(work: WorkFolders, files: Sequence[Path | None], options: Mapping[str, Any]) -> str:
    """Compute a digest of options and of the files' names and contents; raise the same errors as `read_digests`."""
    return compute_keys(work, {"": (files, options)})[""]


def compute_keys(work: WorkFolders, sources: Mapping[str, Sources], release: Path | None = None) -> dict[str, str]:
    """Compute the keys of several results by name, like `compute_key`, and read all files together."""
    contents = read_digests(work, {path for files, _ in sources.values() for path in files if path}, release)
    return {
        name: compute_digest([[None if path is None else [path.name, contents[path]] for path in files], dict(options)])
        for name, (files, options) in sources.items()
    }


def read_digests(work: WorkFolders, paths: Collection[Path], release: Path | None = None) -> dict[Path, str | None]:
    """Compute the sha256 of files; None for a file that cannot be read.

    `digests.json` keeps the digests of files in the working directory and in the release, by their paths below these
    folders. A file of the same size and modification time is not read again, so that a change that keeps both goes
    unnoticed. A copy has new times, and its files are read again once. Several processes may use `digests.json` at the
    same time; a process reads each file whose digest it does not find there.

    Args:
        work: Working directory.
        paths: Files.
        release: Folder of the release, if `prepare.json` does not have it yet.

    Raises:
        InputError: A file does not exist, for example because the release was moved after `prepare`.
    """
    if release is None and any(not path.is_relative_to(work.root) for path in paths):
        release = read_release_folder(work) if (work.root / "prepare.json").is_file() else None
    roots = {"work": work.root, "release": release}
    stamps = {path: _read_stamp(path, release) for path in sorted(paths)}
    stored = _read_stored_digests(work)
    name_of = {path: _make_digest_name(path, roots) for path in stamps}
    digests: dict[Path, str | None] = {}
    unread = []
    for path, (size, time_ns) in stamps.items():
        record = stored.get(name_of[path])
        if isinstance(record, list) and record[:-1] == [size, time_ns]:
            digests[path] = record[-1]
        else:
            unread.append(path)
    new: dict[str, list[Any]] = {}
    try:
        for path, sha256 in _read_files(unread, sum(stamps[path][0] for path in unread)):
            digests[path] = sha256
            if name_of[path] and sha256 is not None:
                new[name_of[path]] = [*stamps[path], sha256]
    finally:  # after an interruption only the remaining files are read
        if new:
            # In a read-only working directory nothing is stored, and the next command reads the files again.
            with suppress(OutputError):
                write_json(work.digests_json, _read_stored_digests(work) | new, indent=None)
    return digests


def _read_stamp(path: Path, release: Path | None) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as problem:
        moved = f", or {MOVED}" if release is not None and path.is_relative_to(release) else ""
        raise InputError(path.name, f"{problem.strerror}", f"it in {path.parent}{moved}") from None
    return status.st_size, status.st_mtime_ns


def _make_digest_name(path: Path, roots: Mapping[str, Path | None]) -> str:
    """Make the name of a file in `digests.json`; empty for a file in another folder, which is read each time."""
    names = (f"{name}/{path.relative_to(root)}" for name, root in roots.items() if root and path.is_relative_to(root))
    return next(names, "")


def _read_stored_digests(work: WorkFolders) -> dict[str, Any]:
    if not work.digests_json.is_file():
        return {}
    try:
        content = read_json(work.digests_json)
    except HecktorError:  # if `digests.json` is damaged, all files are read again
        return {}
    return content if isinstance(content, dict) else {}


def _read_files(paths: Sequence[Path], size: int) -> Iterator[tuple[Path, str | None]]:
    """Yield each path with the sha256 of its file."""
    if size <= _MAX_BYTES_WITHOUT_THREADS:
        yield from map(_sha256, paths)
        return
    pool = ThreadPoolExecutor(min(count_usable_cpus(), _MAX_THREADS))
    try:
        yield from tqdm(pool.map(_sha256, paths), desc="read files", unit="file", total=len(paths))
    finally:
        pool.shutdown(cancel_futures=True)


def _sha256(path: Path) -> tuple[Path, str | None]:
    try:
        return path, str(make_file_entry(path)["sha256"])
    except OSError:  # the step that needs the file reports why it cannot be read
        return path, None
