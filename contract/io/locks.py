"""Lock outputs, so that only one process writes an output at a time. A lock ends when its process ends."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.errors import OutputError, make_permission_error

LOGGER = logging.getLogger("hecktor")


@contextmanager
def lock_output(target: Path) -> Iterator[None]:
    """Keep other processes out of an output folder or file while the block writes it.

    The lock is a hidden file in the parent folder, because `target` may be replaced. The file is removed at the end; a
    file that a killed process left does not lock. If the parent folder is not writable, as in a container, the output
    folder itself is locked.

    Raises:
        OutputError: Another process is writing `target`, or this user may not write there.
    """
    place = target.resolve()
    _require_writable(place)
    new_folders = [folder for folder in place.parents if not os.path.lexists(folder)]
    lock_file = place.parent / f".lock-{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]}"
    handle: int | None
    try:
        handle, is_file = _lock_file(lock_file), True
    except BlockingIOError:
        raise _make_occupied_error(target) from None
    except OSError:
        handle, is_file = _lock_folder(place, target), False
    try:
        yield
    finally:
        if is_file:
            lock_file.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)
        with suppress(OSError):  # Another process uses the folder by now.
            for folder in new_folders:
                folder.rmdir()


def _require_writable(place: Path) -> None:
    """Raise `OutputError` if this user may not write an output; a read-only disk is reported later, by the writer."""
    folder = next(path for path in (place, *place.parents) if os.path.lexists(path))
    if not folder.is_dir():
        folder = folder.parent
    may_write = os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
    if not may_write and not os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise make_permission_error(folder, OutputError, is_output=True)


def _lock_file(path: Path) -> int:
    """Create and lock a file, and return its descriptor; raise BlockingIOError if another process has locked it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_file(handle, path):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise
        except OSError:
            path.unlink(missing_ok=True)
            os.close(handle)
            raise
        os.close(handle)  # The process that held the lock has removed the file in the meantime.


def _lock_folder(folder: Path, target: Path) -> int | None:
    """Lock an output folder itself, and return its descriptor; None if it does not exist or cannot be locked."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # The command reports why it cannot write there.
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise _make_occupied_error(target) from None
    except OSError:
        LOGGER.warning("%s: the file system has no locks; do not let two commands write there at the same time", target)
    return handle


def _is_open_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _make_occupied_error(target: Path) -> OutputError:
    return OutputError(str(target), "another process is writing there", "another output, or the end of that process")
