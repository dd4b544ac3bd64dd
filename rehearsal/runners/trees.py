"""List, copy and remove folders that an untrusted program wrote, without following a link.

Every name is opened relative to its folder's descriptor and never through a link, so that neither a link nor a long
path leads elsewhere, even while the program runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_DEPTH: Final = 32
MAX_PATH_BYTES: Final = 1024
MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 4_000_000_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK opening a named pipe would wait for its writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK_BYTES: Final = 1 << 20
# A message shows at most this many characters of a name.
_MAX_SHOWN: Final = 80


class UntrustedFileError(Exception):
    """A file or folder may not be copied; the message is the reason."""


@dataclass(frozen=True)
class FolderEntry:
    """A file or folder below a root; `fault` is the reason why it is not copied, empty if it may be copied."""

    path: str
    status: os.stat_result
    fault: str = ""

    @property
    def is_folder(self) -> bool:
        """Return whether the entry is a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def list_entries(root: Path) -> Iterator[FolderEntry]:
    """List the entries below `root`, a folder before its content; the content of a folder with a fault is not listed.

    At most MAX_ENTRIES are listed; if there are more, the last entry has a fault.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _open_folder(root) as folder:
        for number, (entry, _) in enumerate(_walk(folder, ""), start=1):
            if number > MAX_ENTRIES:
                yield FolderEntry(entry.path, entry.status, f"more than {MAX_ENTRIES} files and folders")
                return
            yield entry


def copy_tree(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the regular files and folders below `source` to the new folder `target`.

    Links, files with several names, devices, sockets, pipes and names that are not UTF-8 are not copied. The limits are
    MAX_DEPTH levels, MAX_PATH_BYTES of a path, MAX_ENTRIES, and MAX_BYTES of all files together.

    Returns:
        A line with the reason for each entry that was not copied.
    """
    target.mkdir(parents=True)
    try:
        with _open_folder(source) as folder:
            return tuple(_copy_entries(folder, target))
    except OSError as problem:
        return (f"{source.name}: cannot be copied ({problem.strerror})",)


def _copy_entries(folder: int, target: Path) -> Iterator[str]:
    """Copy the entries of an open folder; yield a line for each entry that is not copied."""
    remaining_bytes = MAX_BYTES
    for number, (entry, parent) in enumerate(_walk(folder, ""), start=1):
        if number > MAX_ENTRIES:
            yield f"more than {MAX_ENTRIES} files and folders"
            return
        if entry.fault:
            yield f"{format_path(entry.path)}: {entry.fault}"
        elif entry.is_folder:
            (target / entry.path).mkdir()
        else:
            try:
                remaining_bytes -= _copy(parent, Path(entry.path).name, target / entry.path, remaining_bytes)
            except UntrustedFileError as error:
                yield f"{format_path(entry.path)}: {error}"


def copy_file(folder: Path, name: str, target: Path, max_bytes: int) -> None:
    """Copy one regular file out of an untrusted folder; do nothing if it does not exist.

    Raises:
        UntrustedFileError: The entry is a link, a device or larger than `max_bytes`, or it cannot be read.
    """
    with _open_folder(folder) as parent:
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        fault = _find_fault(name, status)
        if fault:
            raise UntrustedFileError(fault)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(parent, name, target, max_bytes)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all its content, of any depth and any modes; do nothing if it does not exist."""
    if os.path.lexists(folder):
        empty_folder(folder)
        folder.rmdir()


def empty_folder(folder: Path) -> None:
    """Remove all content of a folder, with `chmod` and `find`, which handle paths of any length.

    Raises:
        OSError: Some of the content cannot be removed.
    """
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)
    result = subprocess.run(
        ["find", str(folder.absolute()), "-mindepth", "1", "-delete"], capture_output=True, check=False
    )
    if result.returncode != 0:
        raise OSError(errno.ENOTEMPTY, "some of its content cannot be removed", str(folder))


def remove_entry(folder: Path, name: str) -> None:
    """Remove one entry of a folder, of any kind; do nothing if it does not exist."""
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def format_path(path: str) -> str:
    """Format a path for a message: show escapes and bytes that are not UTF-8 as text, and cut a long path."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _walk(folder: int, prefix: str) -> Iterator[tuple[FolderEntry, int]]:
    """Yield each entry with its folder's descriptor; the faults of `_find_fault` limit the depth of the recursion."""
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        path = prefix + name
        entry = FolderEntry(path, status, _find_fault(path, status))
        if entry.fault or not entry.is_folder:
            yield entry, folder
            continue
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except OSError as problem:
            yield FolderEntry(path, status, f"cannot be opened ({problem.strerror})"), folder
            continue
        try:
            yield entry, folder
            yield from _walk(inner, f"{path}/")
        finally:
            os.close(inner)


def _find_fault(path: str, status: os.stat_result) -> str:
    """Return the reason why an entry may not be copied, empty if it is a regular file or folder with a usual path."""
    mode = status.st_mode
    expected = "expected regular files and folders"
    if stat.S_ISLNK(mode):
        return f"a symbolic link, {expected}"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return f"a device, socket or pipe, {expected}"
    if stat.S_ISREG(mode) and status.st_nlink > 1:
        return f"a file with {status.st_nlink} names (hard links), {expected}"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "a name that is not UTF-8, expected another name"
    depth = path.count("/") + 1
    if size > MAX_PATH_BYTES or depth > MAX_DEPTH:
        return f"{size} bytes and {depth} levels, expected at most {MAX_PATH_BYTES} bytes and {MAX_DEPTH} levels"
    return ""


def _copy(parent: int, name: str, target: Path, max_bytes: int) -> int:
    """Copy a file and return its size; raise `UntrustedFileError` if it may not be copied."""
    try:
        source = os.open(name, _FILE, dir_fd=parent)
    except OSError as error:
        raise UntrustedFileError(f"cannot be read ({error.strerror})") from None
    with os.fdopen(source, "rb") as file:
        status = os.fstat(source)
        # The program may have replaced the file since it was listed.
        fault = _find_fault(name, status)
        if fault:
            raise UntrustedFileError(fault)
        if status.st_size > max_bytes:
            raise UntrustedFileError(f"{status.st_size} bytes, expected at most {max_bytes}")
        with target.open("xb") as copy:
            # The file may grow while it is read, so only its size at the start is copied.
            for start in range(0, status.st_size, _BLOCK_BYTES):
                copy.write(file.read(min(_BLOCK_BYTES, status.st_size - start)))
    target.chmod(0o644)
    return status.st_size


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    folder = os.open(path, _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)
