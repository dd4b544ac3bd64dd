"""Errors and warnings for users, with messages made of separate fields.

The tree::

    HecktorError            one line: file, found, expected
    |-- InputError          an input image or ehr.json is unusable
    |-- ModelPackageError   the model package is incomplete, altered or of another format version
    |-- OutputError         an output cannot be written or breaks the challenge's rules
    |-- GroundTruthError    the evaluation's reference data is unusable
    |-- PredictionError     a submitted prediction is unusable
    |-- MetricError         a metric is undefined for this cohort (no comparable pair, only one class)
    |-- TimeLimitError      the time limit leaves no time for an answer
    `-- EngineError         no container engine responds, or it failed

Any other exception is a bug and keeps its stack trace.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard, TypeVar

AnyError = TypeVar("AnyError", bound="HecktorError")

_DISK_ERRORS: Final = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG)
# Exit status that a shell gives a command after SIGINT.
INTERRUPTED: Final = 130


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters, such as unpaired surrogates, that a log or file cannot hold."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


@dataclass(frozen=True)
class Finding:
    """A warning for users. Its text is one sentence made of its fields.

    Attributes:
        what: The file or option.
        found: The problem.
        expected: The expectation.
        action: What the program does in spite of the problem.
    """

    what: str
    found: str
    expected: str = ""
    action: str = ""

    def __str__(self) -> str:
        return format_sentence(self.what, self.found, self.expected) + (f"; {self.action}" if self.action else "")


def format_sentence(what: str, found: str = "", expected: str = "") -> str:
    """Join the fields as `WHAT: FOUND, expected EXPECTED`; empty fields are left out."""
    return what + (f": {found}" if found else "") + (f", expected {expected}" if expected else "")


class HecktorError(Exception):
    """An error that a user can fix. Its message is one line that a submitter may see.

    Args:
        what: The file, option or case at fault, or a whole sentence.
        found: The problem.
        expected: The expectation.
    """

    def __init__(self, what: str, found: str = "", expected: str = "") -> None:
        self.what, self.found, self.expected = what, found, expected
        self.message = replace_unprintable(" ".join(format_sentence(what, found, expected).split()))
        super().__init__(what, found, expected)

    def __str__(self) -> str:
        return self.message


class InputError(HecktorError):
    """An input image or `ehr.json` is unusable."""


class ModelPackageError(HecktorError):
    """The model package is incomplete, altered or of another format version."""


class OutputError(HecktorError):
    """An output cannot be written or breaks the challenge's rules."""


class GroundTruthError(HecktorError):
    """The evaluation's reference data is unusable."""


class PredictionError(HecktorError):
    """A submitted prediction is unusable."""


class MetricError(HecktorError):
    """A metric is undefined for this cohort, for example without a comparable pair."""


class TimeLimitError(HecktorError):
    """The time limit leaves no time for an answer."""


class EngineError(HecktorError):
    """No container engine responds, or it failed."""


def make_write_error(what: str, problem: Exception, expected: str = "a writable folder") -> OutputError:
    """Make the error for a file or folder that cannot be written; it names a full disk or a missing permission."""
    if getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(problem):
        folder = expected.removeprefix("a writable folder")
        return OutputError(what, "no space left on the disk", f"free space in{folder}" if folder else "free space")
    if is_permission_error(problem):
        return make_permission_error(problem.filename, OutputError, is_output=True)
    return OutputError(what, f"cannot be written ({getattr(problem, 'strerror', None) or problem})", expected)


def make_read_error(what: str, problem: OSError, error: type[AnyError], expected: str) -> AnyError:
    """Make the error for a file or folder that cannot be read; it names a missing permission."""
    if is_permission_error(problem):
        return make_permission_error(problem.filename, error)
    return error(what, f"cannot be read ({problem.strerror or problem})", expected)


def is_permission_error(problem: BaseException) -> TypeGuard[OSError]:
    """Return whether an exception says that the system denied this user access to a path."""
    if not isinstance(problem, PermissionError) or problem.errno not in (errno.EACCES, errno.EPERM):
        return False
    return isinstance(problem.filename, str | bytes | os.PathLike)


def make_permission_error(name: str | bytes | Path, error: type[AnyError], *, is_output: bool = False) -> AnyError:
    """Make the error for a path that this user may not use.

    The message names the outermost folder that is closed to the user, or the file, and the command that opens it.

    Args:
        name: The path.
        error: Class of the error.
        is_output: Whether the user must also write there.
    """
    path = Path(os.path.abspath(os.fsdecode(name)))  # noqa: PTH100 - `resolve` needs the permission
    mode = "a+rwX" if is_output else "-R a+rX"
    closed = next((folder for folder in reversed(path.parents) if not _may_use(folder, os.X_OK)), None)
    if closed is None:
        is_readable = _may_use(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)
        if is_readable or not path.exists():
            # Reading is possible, so the caller wanted to write.
            mode = "a+rwX"
        is_folder_closed = not path.exists() or (is_readable and path.is_file())
        closed = path.parent if is_folder_closed else path
    problem = f"user {os.geteuid()} has no permission"
    with suppress(OSError):
        status = closed.stat()
        problem += f" (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o})"
    place = " (in a container: the folder that is mounted there)" if closed.is_mount() else ""
    return error(str(closed), problem, f"access for this user: chmod {mode} {shlex.quote(str(closed))}{place}")


def _may_use(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def combine_errors(errors: Sequence[HecktorError], summary: str) -> HecktorError:
    """Combine several errors into one, so that all can be fixed at once; a single error is returned unchanged."""
    if len(errors) == 1:
        return errors[0]
    return type(errors[0])(summary, "; ".join(error.message for error in errors))


def run_main(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run a command's `main` and turn a `HecktorError` into a line on stderr and exit status 1.

    Grand Challenge shows the submitter the last non-empty line of stderr, so nothing is printed after it.
    A full or read-only disk also gives one line and status 1, and Ctrl-C gives one line and status 130. Any other
    exception propagates with its traceback.
    """
    status = 1
    try:
        return main(argv)
    except KeyboardInterrupt:
        message, status = "interrupted", INTERRUPTED
    except HecktorError as error:
        message = error.message
    except (OSError, RuntimeError) as problem:
        user_error = find_user_error(problem)
        if user_error is None:
            raise
        message = user_error.message
    sys.stdout.flush()
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()
    return status


def find_user_error(problem: OSError | RuntimeError) -> HecktorError | None:
    """Convert an error of the system that a user can fix to a `HecktorError`; return None if it is a bug."""
    if isinstance(problem, RuntimeError):
        # Path.resolve of Python 3.11 hides the system's error for a loop of links.
        cause = problem.__context__
        if not isinstance(cause, OSError) or cause.errno != errno.ELOOP:
            return None
        problem = cause
    if is_permission_error(problem):
        return make_permission_error(problem.filename, HecktorError)
    if problem.errno in _DISK_ERRORS:
        what = Path(os.fsdecode(problem.filename)).name if isinstance(problem.filename, str | bytes) else "a file"
        return HecktorError(what, f"cannot be written ({problem.strerror})", "a writable disk with space")
    if isinstance(problem.filename, str | bytes):
        return HecktorError(os.fsdecode(problem.filename), f"cannot be used ({problem.strerror})", "a usable path")
    return None
