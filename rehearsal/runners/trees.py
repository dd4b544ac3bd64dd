"""Folders that a program wrote which nobody trusts: listed, copied out and removed without following a link.

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
# Without O_NONBLOCK the opening of a named pipe waits for its writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE: Final = 1 << 20
_SHOWN: Final = 80  # characters of a name in a message


@dataclass(frozen=True)
class FolderEntry:
    """A file or folder below a root; `fault` says why it is not copied, empty if it may be."""

    path: str
    status: os.stat_result
    fault: str = ""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


def entries_below(root: Path) -> Iterator[FolderEntry]:
    """Each entry below `root`, a folder before its content; not what is in a folder with a fault.

    No more than MAX_ENTRIES are listed; then the last one has a fault.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _opened_folder(root) as folder:
        for number, (entry, _) in enumerate(_walk(folder, ""), start=1):
            if number > MAX_ENTRIES:
                yield FolderEntry(entry.path, entry.status, f"more than {MAX_ENTRIES} files and folders")
                return
            yield entry


def copy_out(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the regular files and folders below `source` to the new folder `target`; return what is not copied and why.

    Refused are links, files with several names, devices, sockets and pipes, names that are not UTF-8, and more than
    MAX_DEPTH levels, MAX_PATH_BYTES of a path, MAX_ENTRIES or MAX_BYTES together.
    """
    target.mkdir(parents=True)
    try:
        with _opened_folder(source) as folder:
            return tuple(_copies(folder, target))
    except OSError as problem:
        return (f"{source.name}: cannot be copied ({problem.strerror})",)


def _copies(folder: int, target: Path) -> Iterator[str]:
    """Copy what `copy_out` copies; yields what is not copied and why."""
    left = MAX_BYTES
    for number, (entry, parent) in enumerate(_walk(folder, ""), start=1):
        if number > MAX_ENTRIES:
            yield f"more than {MAX_ENTRIES} files and folders"
            return
        fault = entry.fault
        if not fault and entry.is_folder:
            (target / entry.path).mkdir()
        elif not fault:
            left, fault = _copied(parent, Path(entry.path).name, target / entry.path, left)
        if fault:
            yield f"{shown(entry.path)}: {fault}"


def copy_file_out(folder: Path, name: str, target: Path, max_bytes: int) -> str:
    """Copy one regular file of a folder; returns why it is not copied, empty if it was or is absent."""
    with _opened_folder(folder) as parent:
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return ""
        target.parent.mkdir(parents=True, exist_ok=True)
        return _fault(name, status) or _copied(parent, name, target, max_bytes)[1]


def remove_tree(folder: Path) -> None:
    """Remove a folder with all its content, whatever its depth and modes are; an absent one is no error."""
    if os.path.lexists(folder):
        empty_folder(folder)
        folder.rmdir()


def empty_folder(folder: Path) -> None:
    """Remove all content of a folder, as `remove_tree` does, with programs that take paths of any length.

    Raises OSError if something is left.
    """
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)
    removed = subprocess.run(
        ["find", str(folder.absolute()), "-mindepth", "1", "-delete"], capture_output=True, check=False
    )
    if removed.returncode != 0:
        raise OSError(errno.ENOTEMPTY, "some of its content cannot be removed", str(folder))


def remove_entry(folder: Path, name: str) -> None:
    """Remove one entry of a folder, whatever it is; an absent one is no error."""
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def shown(path: str) -> str:
    """A path for a message: escapes and bytes that are not UTF-8 as text, and cut."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _walk(folder: int, prefix: str) -> Iterator[tuple[FolderEntry, int]]:
    """Each entry with its folder's descriptor. The depth of the recursion is bounded by the faults of `_fault`."""
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        path = prefix + name
        entry = FolderEntry(path, status, _fault(path, status))
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


def _fault(path: str, status: os.stat_result) -> str:
    """The reason why an entry is no regular file or folder with a usual path; empty if it is one."""
    mode, regular = status.st_mode, "expected regular files and folders"
    if stat.S_ISLNK(mode):
        return f"a symbolic link, {regular}"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return f"a device, socket or pipe, {regular}"
    if stat.S_ISREG(mode) and status.st_nlink > 1:
        return f"a file with {status.st_nlink} names (hard links), {regular}"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "a name that is not UTF-8, expected another name"
    depth = path.count("/") + 1
    if size > MAX_PATH_BYTES or depth > MAX_DEPTH:
        return f"{size} bytes and {depth} levels, expected at most {MAX_PATH_BYTES} bytes and {MAX_DEPTH} levels"
    return ""


def _copied(parent: int, name: str, target: Path, left: int) -> tuple[int, str]:
    """Copy a file of at most `left` bytes; returns the bytes that are left then, and why it is not copied."""
    try:
        source = os.open(name, _FILE, dir_fd=parent)
    except OSError as problem:
        return left, f"cannot be read ({problem.strerror})"
    with os.fdopen(source, "rb") as file:
        status = os.fstat(source)
        # It may be another file than the one that was listed.
        if fault := _fault(name, status):
            return left, fault
        if status.st_size > left:
            return left, f"{status.st_size} bytes, expected at most {left}"
        with target.open("xb") as copy:
            for start in range(0, status.st_size, _PIECE):  # no further: it may grow while it is read
                copy.write(file.read(min(_PIECE, status.st_size - start)))
    target.chmod(0o644)
    return left - status.st_size, ""


@contextlib.contextmanager
def _opened_folder(path: Path) -> Iterator[int]:
    folder = os.open(path, _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)
