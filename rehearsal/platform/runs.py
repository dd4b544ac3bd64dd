"""The platform's checks of a run: its end, its logs and its outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import labels
from contract.documents import is_member, is_number
from contract.editions import Algorithm, AnswerSpec, Socket
from contract.errors import OutputError, replace_unprintable
from contract.images.geometry import Geometry
from contract.images.volumes import ImageHeader, read_header, read_volume
from contract.io.files import read_json
from contract.platform import MAX_FILES_IN_IMAGE_FOLDER, PLATFORM_IMAGE_SUFFIXES, TIFF_SUFFIXES
from rehearsal.runners.containers import USAGE_HINT
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import CallResult, Limits

MESSAGE_LIMIT: Final = 1024
# The end of stderr in which the platform looks for the message.
MESSAGE_LINES: Final = 100
MAX_LOG_LINES: Final = 500
LOG_LINE_LIMIT_BYTES: Final = 64 * 1024
_KILLED: Final = (137, -9)
_FILE_TOO_LARGE: Final = (153, -25)
# Only this many bytes at the end of a log are read; a log is shorter, since `Logs` keeps only parts of it.
_READ_BYTES: Final = 4 * 1024 * 1024

# The platform also imports MetaIO in two files, which this project does not write.
_IMPORTABLE_SUFFIXES: Final = (*PLATFORM_IMAGE_SUFFIXES, ".mhd")
_MASK_TYPES: Final = ("8-bit unsigned integer", "8-bit signed integer")
_FAILS_JOB: Final = "the platform would fail this job, and with it the whole submission"
_MAX_FAULTS: Final = 5
# The labels of a mask on a wrong grid are checked only up to this number of voxels, because the check takes seconds for
# more.
_MAX_CHECKED_VOXELS: Final = 20_000_000
# A message shows at most this many characters of a value.
_MAX_SHOWN: Final = 60


def find_run_failure(outcome: RunOutcome, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail a run; None for exit status 0 within the time limit."""
    if outcome.disk_failure is not None:
        return outcome.disk_failure
    if outcome.timed_out:
        return (
            f"Time limit exceeded: still running after {limits.time_limit_s:g} s; the platform would send SIGTERM, "
            f"{GRACE_S:g} s later SIGKILL, and fail the job"
        )
    if outcome.exit_code == 0:
        return None
    if outcome.exit_code in _KILLED:
        return (
            f"killed (exit status {outcome.exit_code}), most likely for memory beyond "
            f"{limits.memory_bytes / 1024**3:.3g} GiB; the platform would fail the job"
        )
    if outcome.exit_code in _FILE_TOO_LARGE:
        return (
            f"exit status {outcome.exit_code} (SIGXFSZ): it wrote a file larger than {limits.file_bytes / 1e9:.3g} GB; "
            "the rehearsal allows no larger file"
        )
    return (
        f"exit status {outcome.exit_code}; the platform would fail the job, keep no output "
        f"and show the submitter {_quote_stderr(stderr)}"
    )


def find_start_failure(reply: CallResult, exit_code: int | None, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail all cases of a server; None if the server became ready."""
    if reply.status == 200:
        return None
    if exit_code is not None:
        return f"the server ended before it was ready: {_describe_server_end(exit_code, limits, stderr)}"
    response = "no answer" if reply.status is None else f"{reply.status} ({reply.text})"
    return (
        f"GET /health: {response} after {reply.seconds:.0f} s, expected 200 within {limits.health_tries} calls, "
        f"{limits.health_interval_s:g} s apart; the platform would fail the job"
    )


def find_invoke_failure(reply: CallResult, exit_code: int | None, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail a case of a server; None for status 201 in time."""
    if reply.timed_out:
        return (
            f"Invoke time limit exceeded: still running after {limits.case_limit_s('invoke'):g} s; the platform would "
            f"mark the process unhealthy, send SIGTERM, {GRACE_S:g} s later SIGKILL, and fail the job"
        )
    if reply.status == 201:
        return None
    if exit_code is not None:
        return f"the server ended during the case: {_describe_server_end(exit_code, limits, stderr)}"
    response = reply.text if reply.status is None else f"{reply.status} ({reply.text[:MESSAGE_LIMIT]})"
    return (
        f"POST /invoke: {response}, expected 201; the platform would fail the job and show the submitter "
        f"{_quote_stderr(stderr)}"
    )


def _describe_server_end(exit_code: int, limits: Limits, stderr: Path) -> str:
    if exit_code == 0:
        return "exit status 0; the platform would fail the job"
    return str(find_run_failure(RunOutcome(exit_code, 0.0, False, None), limits, stderr))


def _quote_stderr(stderr: Path) -> str:
    message = read_last_line(stderr)
    return f"its last line on stderr: {message}" if message else "no message, since stderr is empty"


def read_last_line(stderr: Path) -> str:
    """Return the last non-empty line among the last 100 lines of a log, as the platform shows it, or an empty text."""
    lines = [line.strip() for line in _read_end(stderr).decode("utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if not USAGE_HINT.match(line)]
    return next((replace_unprintable(line[:MESSAGE_LIMIT]) for line in reversed(lines[-MESSAGE_LINES:]) if line), "")


def find_log_warnings(log: Path) -> list[str]:
    """Find parts of a log that the platform would not keep."""
    content = _read_end(log)
    name = log.suffixes[-1].lstrip(".") if log.suffixes else log.name
    warnings = []
    lines = content.splitlines()
    if len(lines) > MAX_LOG_LINES:
        warnings.append(f"{len(lines)} lines on {name}; the platform would keep {MAX_LOG_LINES}")
    if any(len(line) > LOG_LINE_LIMIT_BYTES for line in lines):
        warnings.append(f"a line of more than 64 KiB on {name}; the platform would drop it")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        warnings.append(f"output on {name} that is not UTF-8; the platform might fail the job")
    return warnings


def _read_end(log: Path) -> bytes:
    """Read at most the last 4 MiB of a log; a log that does not exist is empty."""
    if not log.is_file():
        return b""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _READ_BYTES))
        return file.read()


@dataclass(frozen=True)
class CheckedOutput:
    """An output that the platform accepts: an image file, or a JSON file with its `value`.

    `unscored` is the reason why the evaluation would score the output as missing; it is empty for a scored output.
    """

    answer: AnswerSpec
    path: Path
    value: Any = None
    unscored: str = ""


@dataclass(frozen=True)
class CheckedOutputs:
    """The outputs of one job, one for each answer, and warnings about files that the platform would ignore."""

    outputs: tuple[CheckedOutput, ...]
    warnings: tuple[str, ...]


def check_outputs(
    output_dir: Path,
    task: Algorithm,
    ct_geometry: Geometry | None,
    faults: Sequence[str] = (),
    *,
    is_partial: bool = False,
) -> CheckedOutputs:
    """Check all answers of a task as the platform does.

    Args:
        output_dir: Copy of the container's `/output`.
        task: Task that declares the answers.
        ct_geometry: Grid on which a mask is expected; None skips this check.
        faults: Reasons why some files were not copied.
        is_partial: Whether the run failed; then answers without an output are not checked.

    Raises:
        OutputError: The platform would fail the job; the message has all reasons.
    """
    outputs: list[CheckedOutput] = []
    warnings: list[str] = []
    reasons = _limit_faults(faults)
    surplus = _find_surplus_files(output_dir, task.answers)
    surplus_line = f"{', '.join(surplus[:3])}: no output of this task"
    for answer in task.answers:
        if is_partial and not answer.socket.path_under(output_dir).exists():
            continue
        try:
            output, answer_warnings = _check_answer(output_dir, answer, ct_geometry)
            outputs.append(output)
            warnings += answer_warnings
        except OutputError as error:
            reasons.append(error.message)
    if reasons:
        raise OutputError("; ".join([*reasons, *([surplus_line] if surplus else []), _FAILS_JOB]))
    if surplus:
        warnings.append(f"{surplus_line}; the platform would drop {len(surplus)} such file(s)")
    return CheckedOutputs(tuple(outputs), tuple(warnings))


def _limit_faults(faults: Sequence[str]) -> list[str]:
    """Return the first faults, and a line that counts the remaining faults."""
    more = len(faults) - _MAX_FAULTS
    return [*faults[:_MAX_FAULTS], *([f"{more} more of this kind"] if more > 0 else [])]


def _check_answer(
    output_dir: Path, answer: AnswerSpec, ct_geometry: Geometry | None
) -> tuple[CheckedOutput, list[str]]:
    if answer.kind != "mask":
        return _check_value(output_dir, answer), []
    path, ignored = _find_single_image(answer.socket.path_under(output_dir), answer.socket)
    unscored = _find_unscored_reason(path, answer, ct_geometry)
    warnings = []
    if ignored:
        warnings.append(
            f"{ignored} file(s) in {answer.socket.relative_path} are not images; the platform would ignore them"
        )
    if unscored:
        warnings.append(
            f"{path.name}: {unscored}; the platform would accept it, the evaluation would score it as missing"
        )
    return CheckedOutput(answer, path, unscored=unscored), warnings


def _find_unscored_reason(path: Path, answer: AnswerSpec, ct_geometry: Geometry | None) -> str:
    """Return the reason why a mask would be scored as missing, empty if it would be scored.

    Raises:
        OutputError: The platform would not accept the mask.
    """
    if path.name.lower().endswith(TIFF_SUFFIXES):
        return "a TIFF"
    header = read_header(path, error=OutputError)
    _check_pixel_type(path, header)
    differences = [] if ct_geometry is None else ct_geometry.find_differences(header.geometry)
    if not differences or math.prod(header.geometry.size) <= _MAX_CHECKED_VOXELS:
        _check_labels(path, answer)
    return f"its grid is not the CT's ({'; '.join(differences)}, CT against mask)" if differences else ""


def _find_single_image(folder: Path, socket: Socket) -> tuple[Path, int]:
    """Find the only importable image in a folder; return with it the number of files that the platform ignores."""
    expected = f"exactly one image ({', '.join(PLATFORM_IMAGE_SUFFIXES)}) there"
    if not folder.is_dir():
        raise OutputError(f"no output {socket.relative_path}", "", expected)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise OutputError(f"{socket.relative_path} is empty", "", expected)
    if len(files) > MAX_FILES_IN_IMAGE_FOLDER:
        raise OutputError(socket.relative_path, f"{len(files)} files", f"at most {MAX_FILES_IN_IMAGE_FOLDER}")
    images = [path for path in files if path.name.lower().endswith(_IMPORTABLE_SUFFIXES)]
    if not images:
        names = ", ".join(path.name for path in files[:3])
        raise OutputError(socket.relative_path, f"found {names}, no importable image", expected)
    if len(images) > 1:
        names = ", ".join(path.name for path in images[:3])
        raise OutputError(socket.relative_path, f"found {len(images)} images ({names})", expected)
    image_suffixes = (*_IMPORTABLE_SUFFIXES, ".raw", ".zraw")
    return images[0], sum(not path.name.lower().endswith(image_suffixes) for path in files)


def _check_pixel_type(path: Path, header: ImageHeader) -> None:
    if header.pixel_type not in _MASK_TYPES:
        raise OutputError(path.name, f"{header.pixel_type} pixels", "8-bit integers with one channel")


def _check_labels(path: Path, answer: AnswerSpec) -> None:
    declared = (labels.BACKGROUND, *answer.labels.values())
    present = np.unique(read_volume(path, error=OutputError).array)
    unknown = sorted(int(value) for value in present if int(value) not in declared)
    if unknown:
        values = ", ".join(str(value) for value in unknown[:5])
        raise OutputError(path.name, f"label {values}", f"only {', '.join(map(str, declared))}")


def _check_value(output_dir: Path, answer: AnswerSpec) -> CheckedOutput:
    name = answer.socket.relative_path
    path = answer.socket.path_under(output_dir)
    if not path.is_file():
        raise OutputError(f"no output {name}", "", "a JSON file there")
    value = read_json(path, error=OutputError, accept_nan=True)
    if not _is_valid(value, answer):
        raise OutputError(name, f"found {_format_value(value)}", _describe_expected(answer))
    return CheckedOutput(answer, path, value)


def _is_valid(value: Any, answer: AnswerSpec) -> bool:
    if answer.kind == "risk":
        return is_number(value)
    return is_member(value, answer.classes)


def _format_value(value: Any) -> str:
    if value is None:
        return "null (NaN and infinities become null)"
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _describe_expected(answer: AnswerSpec) -> str:
    if answer.kind == "risk":
        return "a number"
    return f"one of {', '.join(map(json.dumps, answer.classes))}"


def _find_surplus_files(output_dir: Path, answers: Sequence[AnswerSpec]) -> list[str]:
    """Find files that belong to no answer, relative to `/output`."""
    answer_paths = {answer.socket.path_under(output_dir) for answer in answers}
    files = sorted(path for path in output_dir.rglob("*") if path.is_file())
    return [str(path.relative_to(output_dir)) for path in files if not answer_paths & {path, *path.parents}]
