"""Atomic file writing and strict JSON."""

from __future__ import annotations

import codecs
import csv
import errno
import fcntl
import io
import json
import math
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from contract.errors import HecktorError, InputError, OutputError, make_read_error, make_write_error
from contract.platform import compose

MAX_JSON_BYTES = 16 * 1024 * 1024
_LEAST_FREE_BYTES = 4096
_CSV_IN_UTF8 = 'a CSV file in UTF-8: save it as "CSV UTF-8"'
_PARTIAL = ".partial-"
# Attempts to give a folder its name while other processes write folders of that name.
_MAX_RENAMES = 100
# Of a whole number; the largest double has 309, and Python converts no more than 4,300.
_MAX_DIGITS = 310
# `hecktor phantoms` writes it into each cohort, so that synthetic patients are recognised.
PHANTOM_MARKER = Path("truth", "cohort.json")
# Where a text begins that a spreadsheet would calculate: at the start, or after a sign at which one splits cells whose
# separator is no comma, as where decimals have one. Numbers and a dash alone are no formula.
_AT_START = r"'*[=+@\t\r-](?=(?s:.))(?![\d.]+(e[+-]?\d+)?$|inf$)"
_AFTER_SEPARATOR = r"(?<=[;\t\r\n])"
_IN_CELL = r"[\"'\s]*[=+@-]"
_FORMULA = re.compile(rf"\A(?={_AT_START})|{_AFTER_SEPARATOR}(?={_IN_CELL})")
_MARKED_FORMULA = re.compile(rf"\A'(?={_AT_START})|{_AFTER_SEPARATOR}'(?={_IN_CELL})")
_TEXT_OR_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target` that replaces it when the block succeeds.

    The temporary name keeps the suffixes of the target, because image writers choose the format by them. After an
    error the temporary file is removed and an earlier `target` is unchanged.

    Raises:
        OutputError: the file cannot be created, written or renamed.
    """
    with _refusing(target):
        partial = _new_partial(target)
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _new_partial(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not by `tempfile`, whose files only their owner may read: modes follow the umask.
    partial = target.with_name(f"{_PARTIAL}{secrets.token_hex(8)}{''.join(target.suffixes[-2:])}")
    partial.touch(exist_ok=False)
    return partial


def format_utf8_path(path: Path, error: type[HecktorError]) -> str:
    """The path as text for ITK, which ends the process at a name that is not UTF-8.

    Raises:
        HecktorError: of class `error`: a name in the path is not UTF-8.
    """
    odd = next((part for part in path.parts if not _is_utf8(part)), None)
    if odd is not None:
        raise error(odd, "a name that is not UTF-8", "another name of this file or folder")
    return str(path)


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)  # how Python holds bytes that are no UTF-8


def write_bytes(target: Path, content: bytes) -> None:
    """Write one file as `write_files` does. Raises `OutputError`."""
    write_files({target: content})


def write_files(contents: Mapping[Path, bytes], *, partials: Path | None = None) -> None:
    """Write several files atomically: they get their names when all are complete.

    A failure to write or rename one of them leaves earlier files of these names unchanged. Until then they have
    temporary names beside them, or in the folder `partials` on the same file system, where a process that is killed
    leaves them.

    Raises:
        OutputError: a file cannot be created, written or renamed.
    """
    partial_of: dict[Path, Path] = {}
    try:
        for target, content in contents.items():
            with _refusing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                partial_of[target] = _new_partial(target if partials is None else partials / target.name)
                partial_of[target].write_bytes(content)
        _give_names(partial_of)
    finally:
        for partial in partial_of.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _give_names(partial_of: Mapping[Path, Path]) -> None:
    """Rename each partial file to its target; after a failure the earlier files of all targets are back.

    Raises:
        OutputError: A file cannot be renamed.
    """
    renamed: list[Path] = []
    earlier_of = {target: partial.with_name(f"{partial.name}.earlier") for target, partial in partial_of.items()}
    try:
        for target, partial in partial_of.items():
            with _refusing(target):
                if len(partial_of) > 1:
                    with suppress(OSError):  # no earlier file, or a file system without links
                        earlier_of[target].hardlink_to(target)
                _give_name(partial, target)
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


def _give_name(partial: Path, target: Path) -> None:
    partial.replace(target)


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Turn an OSError of the block into the `OutputError` of `target`."""
    try:
        yield
    except OSError as problem:
        raise _refused(target, problem) from None


def _refused(target: Path, problem: OSError) -> OutputError:
    return make_write_error(target.name, problem, f"a writable folder {'/'.join(target.parts[-3:-1])}")


def check_free_space(folder: Path) -> None:
    """Raise the OSError of a full disk if `folder` has no space left: libraries hide it behind errors of their own."""
    if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a hidden folder beside `target` that replaces it when the block succeeds.

    Each writer has a folder of its own, and an earlier `target` is complete until the new one takes its name. Of two
    writers the later one wins. Folders that killed writers left beside `target` are removed.

    Raises:
        OutputError: The folder cannot be created or renamed.
    """
    with _refusing(target):
        target = target.resolve() if target.is_symlink() else target
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_PARTIAL}{target.name[:40]}-"
        _remove_abandoned(target.parent, prefix)
        partial, lock = _new_locked_folder(target.parent, prefix)
    try:
        yield partial
        with _refusing(target):
            with suppress(FileNotFoundError):  # no earlier folder
                shutil.copymode(target, partial)
            replace_path(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def replace_path(new: Path, target: Path) -> None:
    """Rename a complete folder or file to `target`; an earlier `target` is renamed aside and removed last.

    If the renaming fails, the earlier `target` gets its name back.

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
            if problem.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another writer was faster
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


def _new_locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a folder of a new name and lock it, so that no other writer takes it for an abandoned one."""
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir()
        with suppress(FileNotFoundError):  # another writer removed it before it was locked
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # a file system without locks, where abandoned folders stay
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the hidden folders of killed writers: those that nobody has locked."""
    for folder in [path for path in parent.iterdir() if path.name.startswith(prefix)]:
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def write_text(target: Path, text: str) -> None:
    """Write UTF-8 text atomically, see `write_bytes`."""
    write_bytes(target, text.encode("utf-8"))


def write_csv(target: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table as `format_csv` gives it, whole or not at all."""
    write_text(target, format_csv(columns, rows))


def format_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, for_people: bool = False) -> str:
    """A table with a header; a cell that a row lacks is empty.

    In a table `for_people` an apostrophe precedes texts that a spreadsheet would take for a formula, such as the name
    of a team that begins with `=`, or has it after a semicolon, where spreadsheets split if decimals have a comma.
    Tables that programs read hold names as they are.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _no_formula(value) for key, value in row.items()} if for_people else row for row in rows)
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    return _FORMULA.sub("'", value) if isinstance(value, str) else value


def remove_apostrophes(text: str) -> str:
    """A text of a table for people without the apostrophes that `format_csv` put into it."""
    return _MARKED_FORMULA.sub("", text)


def write_json(target: Path, value: Any, *, indent: int | None = 2) -> None:
    """Write `value` as standard JSON atomically.

    Raises:
        ValueError: `value` holds NaN or an infinity, which are not JSON.
    """
    write_text(target, format_json(value, indent=indent))


def format_json(value: Any, *, indent: int | None = 2) -> str:
    """`value` as standard JSON with a final line break. Raises `ValueError` for NaN and infinities."""
    return json.dumps(value, indent=indent, allow_nan=False) + "\n"


def find_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted. `Path.rglob` passes over folders that this user may not read.

    Raises:
        OSError: A folder cannot be read.
    """

    def refuse(problem: OSError) -> None:
        raise problem

    walk = os.walk(folder, onerror=refuse)
    return sorted(path for root, _, names in walk for name in names if (path := Path(root, name)).is_file())


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the entries of a folder whose names match, sorted. `Path.glob` finds nothing in an unreadable folder.

    Raises:
        OSError: The folder cannot be read.
    """
    return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))


def suggest_folder(folder: Path, fits: Callable[[Path], bool]) -> str:
    """A folder above or in this one that fits instead, as `, but FOLDER is one`; empty if none does."""
    if not folder.is_dir():
        return ""
    places = [folder.absolute().parent, *sorted(path.absolute() for path in folder.iterdir() if path.is_dir())]
    with suppress(OSError):  # a folder without permission
        return next((f", but {place} is one" for place in places if fits(place)), "")
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

    `accept_nan` reads NaN, Infinity, -Infinity and numbers beyond a double as None, as the platform's parser does;
    of whole numbers those of more than 310 digits.
    `name` stands for the file in messages, by default its own name.

    Raises:
        HecktorError: of class `error`: absent, too large, or not strict JSON.
    """
    text = read_text(path, "a JSON file", error=error, max_bytes=max_bytes, name=name)
    return parse_json(text, name or path.name, error=error, accept_nan=accept_nan)


def parse_json(text: str, name: str, *, error: type[HecktorError] = InputError, accept_nan: bool = False) -> Any:
    """Parse strict JSON from `text`; `name` names it in messages. See `read_json` for `accept_nan` and errors."""

    def constant_or_none(constant: str) -> Any:
        if accept_nan:
            return None
        raise error(name, f"found {constant}", "standard JSON, without NaN and infinities")

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            duplicate = min(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise error(name, f"key {duplicate!r} appears twice", "each key once")
        return unique

    def finite_float(token: str) -> float | None:
        number = float(token)
        if not math.isfinite(number):
            if accept_nan:
                return None
            raise error(name, f"number {token[:40]} is too large", "a finite number")
        return number

    try:
        return json.loads(
            text,
            parse_constant=constant_or_none,
            object_pairs_hook=unique_keys,
            parse_float=finite_float,
            parse_int=lambda token: int(token) if len(token) <= _MAX_DIGITS else finite_float(token),
        )
    except RecursionError:
        raise error(name, "nested too deeply", "a plain JSON document") from None
    except ValueError as problem:
        raise error(name, f"not valid JSON ({problem})", "a JSON document") from None


def remove_trailing_commas(text: str) -> str:
    """JSON text without commas before a closing bracket, which strict JSON refuses; texts in quotes are unchanged."""
    return _TEXT_OR_TRAILING_COMMA.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def read_csv_text(path: Path, *, error: type[HecktorError], max_bytes: int) -> str:
    """Read the text of a CSV file in UTF-8; line ends become `\\n`.

    Raises:
        HecktorError: of class `error`: see `read_text` and `decode_csv`.
    """
    content = read_bytes(path, "a CSV file", error=error, max_bytes=max_bytes, name=path.name)
    return decode_csv(content, path.name, error=error)


def decode_csv(content: bytes, name: str, *, error: type[HecktorError]) -> str:
    """Decode the content of a CSV file in UTF-8, with or without a byte order mark.

    Line ends become `\\n`, and letters are composed (Unicode form NFC).

    Raises:
        HecktorError: of class `error`: another encoding, or a first line such as `sep=,`, which spreadsheets write. The
            message says how to save the table.
    """
    # The first character of UTF-16 text is a byte order mark, or a zero byte stands next to a letter.
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or content[:2].count(0) == 1:
        raise error(name, "UTF-16 text", _CSV_IN_UTF8)
    try:
        text = compose(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise error(name, "not UTF-8 text, perhaps Latin-1 or Windows-1252", _CSV_IN_UTF8) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first_line = text.partition("\n")[0].strip().strip('"')
    if first_line.lower().startswith("sep=") and len(first_line) <= len("sep=") + 1:
        raise error(name, f'"{first_line}" in line 1', f"the names of the columns; {_CSV_IN_UTF8}")
    return text


def read_text(path: Path, expected: str, *, error: type[HecktorError], max_bytes: int, name: str = "") -> str:
    """Read a UTF-8 text file, with or without a byte order mark; `expected` names its kind in messages.

    `name` stands for the file in messages, by default its own name.

    Raises:
        HecktorError: of class `error`: absent, not a regular file, too large, not UTF-8, or unreadable.
    """
    name = name or path.name
    content = read_bytes(path, expected, error=error, max_bytes=max_bytes, name=name)
    return decode_text(content, name, expected, error=error)


def decode_text(content: bytes, name: str, expected: str, *, error: type[HecktorError]) -> str:
    """Decode the UTF-8 text of a file as `read_text` does; raise `error` if it is not UTF-8."""
    try:
        text = compose(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise error(name, "not UTF-8 text", expected) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, expected: str, *, error: type[HecktorError], max_bytes: int, name: str = "") -> bytes:
    """Read a regular file of at most `max_bytes`; arguments and errors are those of `read_text`."""
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
