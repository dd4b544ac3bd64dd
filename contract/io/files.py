"""Read and write files: atomic writing, strict JSON and text."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import math
import os
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from contract.errors import HecktorError, InputError, OutputError, make_read_error, make_write_error
from contract.platform import normalise_unicode

MAX_JSON_BYTES = 16 * 1024 * 1024
_MIN_FREE_BYTES = 4096
_PARTIAL = ".partial-"
# Attempts to rename a folder while other processes write folders of the same name.
_MAX_RENAMES = 100
# Maximum number of digits of a whole number. The largest double has 309 digits, and Python converts at most 4,300.
_MAX_DIGITS = 310
_MAX_DOUBLE_DIGITS = sys.float_info.max_10_exp + 1
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# Texts of at least this many characters are parsed by the faster parser.
_LARGE_TEXT = 100_000
# `hecktor phantoms` writes it into each cohort, so that synthetic patients are recognised.
PHANTOM_MARKER = Path("truth", "cohort.json")
_TEXT_OR_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `target`, which replaces `target` when the block succeeds.

    The temporary name keeps the suffixes of the target, because image writers choose the format by them. After an
    error the temporary file is removed and an earlier `target` is unchanged.

    Raises:
        OutputError: The file cannot be created, written or renamed.
    """
    with _convert_errors(target):
        partial = _create_partial(target)
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _create_partial(target: Path) -> Path:
    """Create an empty file with a temporary name in the folder of `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # The mode follows the umask. A file of `tempfile` could be read only by its owner.
    partial = target.with_name(f"{_PARTIAL}{secrets.token_hex(8)}{''.join(target.suffixes[-2:])}")
    partial.touch(exist_ok=False)
    return partial


def format_utf8_path(path: Path, error: type[HecktorError]) -> str:
    """Return the path as text for ITK, which ends the process at a name that is not UTF-8.

    Raises:
        HecktorError: Of class `error`: a name in the path is not UTF-8.
    """
    for part in path.parts:
        if not _is_utf8(part):
            raise error(part, "a name that is not UTF-8", "another name of this file or folder")
    return str(path)


def _is_utf8(text: str) -> bool:
    # Python stores bytes that are not UTF-8 as surrogates.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def write_bytes(target: Path, content: bytes) -> None:
    """Write one file as `write_files` does; raise `OutputError` if it cannot be written."""
    write_files({target: content})


def write_files(contents: Mapping[Path, bytes], *, partials: Path | None = None) -> None:
    """Write several files atomically: they get their names when all are complete.

    If a file cannot be written or renamed, earlier files of these names are unchanged.

    Args:
        contents: Content by path.
        partials: Folder of the temporary files, on the same file system; by default the folder of each file. A process
            that is killed leaves its temporary files there.

    Raises:
        OutputError: A file cannot be created, written or renamed.
    """
    partial_of: dict[Path, Path] = {}
    try:
        for target, content in contents.items():
            with _convert_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                partial_of[target] = _create_partial(target if partials is None else partials / target.name)
                partial_of[target].write_bytes(content)
        _rename_partials(partial_of)
    finally:
        for partial in partial_of.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _rename_partials(partial_of: Mapping[Path, Path]) -> None:
    """Rename each temporary file to its target; after a failure the earlier files of all targets are restored.

    Raises:
        OutputError: A file cannot be renamed.
    """
    renamed: list[Path] = []
    earlier_of = {target: partial.with_name(f"{partial.name}.earlier") for target, partial in partial_of.items()}
    try:
        for target, partial in partial_of.items():
            with _convert_errors(target):
                if len(partial_of) > 1:
                    with suppress(OSError):  # There is no earlier file, or the file system has no links.
                        earlier_of[target].hardlink_to(target)
                _rename_partial(partial, target)
            renamed.append(target)
    except OutputError:
        for target in renamed:
            with suppress(OSError):
                earlier = earlier_of[target]
                earlier.replace(target) if earlier.exists() else target.unlink()
        raise
    finally:
        for earlier in earlier_of.values():
            with suppress(OSError):
                earlier.unlink(missing_ok=True)


def _rename_partial(partial: Path, target: Path) -> None:
    partial.replace(target)


@contextmanager
def _convert_errors(target: Path) -> Iterator[None]:
    """Convert an OSError of the block to an `OutputError` about `target`."""
    try:
        yield
    except OSError as problem:
        folder = "/".join(target.parts[-3:-1])
        raise make_write_error(target.name, problem, f"a writable folder {folder}") from None


def check_free_space(folder: Path) -> None:
    """Raise the OSError of a full disk if a folder has no space left, since libraries raise other errors instead."""
    if shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a hidden folder in the folder of `target`, which replaces `target` when the block succeeds.

    Every writer has a different hidden folder, and an earlier `target` is complete until it is replaced. If two
    processes write at the same time, `target` is the result of the later one. Hidden folders of killed writers are
    removed.

    Raises:
        OutputError: The folder cannot be created or renamed.
    """
    with _convert_errors(target):
        target = target.resolve() if target.is_symlink() else target
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_PARTIAL}{target.name[:40]}-"
        _remove_abandoned(target.parent, prefix)
        partial, lock = _create_locked_folder(target.parent, prefix)
    try:
        yield partial
        with _convert_errors(target):
            with suppress(FileNotFoundError):  # There is no earlier folder.
                shutil.copymode(target, partial)
            replace_path(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def replace_path(new: Path, target: Path) -> None:
    """Rename a complete folder or file to `target`, and remove an earlier `target` afterwards.

    If the renaming fails, the earlier `target` is restored.

    Raises:
        OSError: A path cannot be renamed.
    """
    earlier = target.with_name(f"{_PARTIAL}{secrets.token_hex(8)}")
    for _ in range(_MAX_RENAMES):
        with suppress(FileNotFoundError):
            target.rename(earlier)
        try:
            new.rename(target)
        except OSError as problem:
            if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):  # Another writer was faster.
                remove_path(earlier)
                continue
            with suppress(OSError):
                earlier.rename(target)
            raise
        remove_path(earlier)
        return
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(target))


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with its content, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _create_locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a folder with a new name and lock it, so that no other writer removes it as abandoned.

    Returns:
        The folder, and the file descriptor that holds the lock.
    """
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir()
        with suppress(FileNotFoundError):  # Another writer removed the folder before it was locked.
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # On a file system without locks, abandoned folders are not removed.
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the hidden folders of killed writers, which are the folders that no process has locked."""
    for folder in [path for path in parent.iterdir() if path.name.startswith(prefix)]:
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def write_text(target: Path, text: str) -> None:
    """Write UTF-8 text atomically as `write_bytes` does."""
    write_bytes(target, text.encode("utf-8"))


def write_json(target: Path, value: Any, *, indent: int | None = 2) -> None:
    """Write `value` as standard JSON atomically.

    Raises:
        ValueError: The value contains NaN or an infinity, which are not JSON.
    """
    write_text(target, format_json(value, indent=indent))


def format_json(value: Any, *, indent: int | None = 2) -> str:
    """Format a value as standard JSON with a final line break; raise ValueError for NaN and infinities."""
    return json.dumps(value, indent=indent, allow_nan=False) + "\n"


def find_files(folder: Path) -> list[Path]:
    """List all files below a folder, sorted. `Path.rglob` would skip folders that this user may not read.

    Raises:
        OSError: A folder cannot be read.
    """

    def refuse(problem: OSError) -> None:
        raise problem

    walk = os.walk(folder, onerror=refuse)
    return sorted(path for root, _, names in walk for name in names if (path := Path(root, name)).is_file())


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """List the entries of a folder whose names match, sorted. `Path.glob` would find nothing in an unreadable folder.

    Raises:
        OSError: The folder cannot be read.
    """
    return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))


def suggest_folder(folder: Path, fits: Callable[[Path], bool]) -> str:
    """Suggest the parent or a subfolder in place of a folder that is not suitable.

    Returns:
        The end of a message, `, but FOLDER is one`; empty if no such folder fits.
    """
    if not folder.is_dir():
        return ""
    candidates = [folder.absolute().parent, *sorted(path.absolute() for path in folder.iterdir() if path.is_dir())]
    for candidate in candidates:
        with suppress(OSError):  # A folder may be closed to this user.
            if fits(candidate):
                return f", but {candidate} is one"
    return ""


def read_json(
    path: Path,
    *,
    error: type[HecktorError] = InputError,
    max_bytes: int = MAX_JSON_BYTES,
    accept_nan: bool = False,
    name: str = "",
) -> Any:
    """Read one JSON document strictly: UTF-8, no duplicate keys, no NaN or infinity, bounded size and depth.

    Args:
        path: The file.
        error: Class of the exceptions raised.
        max_bytes: Largest size of the file.
        accept_nan: Whether NaN, Infinity, -Infinity, numbers that exceed a double and whole numbers of more than 310
            digits are read as None, as the platform's parser does.
        name: Name in messages, by default the name of the file.

    Raises:
        HecktorError: Of class `error`: the file does not exist, is too large, or is not strict JSON.
    """
    text = read_text(path, "a JSON file", error=error, max_bytes=max_bytes, name=name)
    if not accept_nan and len(text) >= _LARGE_TEXT:
        with suppress(ValueError):  # `parse_json` names the fault
            return parse_large_json(text)
    return parse_json(text, name or path.name, error=error, accept_nan=accept_nan)


def parse_json(text: str, name: str, *, error: type[HecktorError] = InputError, accept_nan: bool = False) -> Any:
    """Parse strict JSON as `read_json` does, which documents the arguments and errors."""

    def read_constant(constant: str) -> Any:
        if accept_nan:
            return None
        raise error(name, f"found {constant}", "standard JSON, without NaN and infinities")

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value_of = dict(pairs)
        if len(value_of) < len(pairs):
            duplicate = min(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise error(name, f"key {duplicate!r} appears twice", "each key once")
        return value_of

    def read_float(token: str) -> float | None:
        number = float(token)
        if not math.isfinite(number):
            if accept_nan:
                return None
            raise error(name, f"number {token[:40]} is too large", "a finite number")
        return number

    try:
        return json.loads(
            text,
            parse_constant=read_constant,
            object_pairs_hook=make_object,
            parse_float=read_float,
            parse_int=lambda token: int(token) if len(token) <= _MAX_DIGITS else read_float(token),
        )
    except RecursionError:
        raise error(name, "nested too deeply", "a plain JSON document") from None
    except ValueError as problem:
        raise error(name, f"not valid JSON ({problem})", "a JSON document") from None


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector, which would traverse a large document in memory many times.

    The collector only frees reference cycles; reference counting still frees all other objects.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_large_json(text: str) -> Any:
    """Parse the JSON of a large file several times faster than `parse_json`.

    The parser of pydantic keeps the last value of a repeated key. As a colon follows each key, a repeated key leaves
    more colons in the text than in the result, which is written as JSON again.

    Raises:
        ValueError: The text is not strict JSON, or only `parse_json` can tell whether it is.
    """
    from pydantic_core import from_json, to_json  # slow to import

    with pause_garbage_collector():
        content = from_json(text, allow_inf_nan=False)
    written = to_json(content, inf_nan_mode="constants")
    if "\\u003" in text or text.count(":") != written.count(b":"):  # \u003a is a colon
        raise ValueError("a key may appear twice")
    if b"Infinity" in written or b"0" * _MAX_DOUBLE_DIGITS in written.translate(_DIGITS_TO_ZEROS):
        raise ValueError("a number may exceed a double")
    return content


def remove_trailing_commas(text: str) -> str:
    """Remove commas before a closing bracket, which strict JSON refuses; texts in quotes are unchanged."""
    return _TEXT_OR_TRAILING_COMMA.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def read_text(path: Path, expected: str, *, error: type[HecktorError], max_bytes: int, name: str = "") -> str:
    """Read a UTF-8 text file, with or without a byte order mark.

    Args:
        path: The file.
        expected: Kind of the file in messages.
        error: Class of the exceptions raised.
        max_bytes: Largest size of the file.
        name: Name in messages, by default the name of the file.

    Raises:
        HecktorError: Of class `error`: the file does not exist, is not a regular file, is too large, is not UTF-8, or
            cannot be read.
    """
    name = name or path.name
    content = read_bytes(path, expected, error=error, max_bytes=max_bytes, name=name)
    return decode_text(content, name, expected, error=error)


def decode_text(content: bytes, name: str, expected: str, *, error: type[HecktorError]) -> str:
    """Decode the UTF-8 text of a file as `read_text` does; raise `error` if it is not UTF-8."""
    try:
        text = normalise_unicode(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise error(name, "not UTF-8 text", expected) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, expected: str, *, error: type[HecktorError], max_bytes: int, name: str = "") -> bytes:
    """Read a regular file of at most `max_bytes`; `read_text` documents the arguments and errors."""
    name = name or path.name
    if not path.exists():
        raise error(name, f"not found in {path.parent.name or 'the current folder'}", expected)
    if not path.is_file():
        raise error(name, "not a regular file", expected)
    size = path.stat().st_size
    if size > max_bytes:
        raise error(name, f"{size} bytes", f"at most {max_bytes}")
    try:
        return path.read_bytes()
    except OSError as problem:
        raise make_read_error(name, problem, error, "a readable file") from None
