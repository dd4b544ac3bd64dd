"""The platform's checks of a job's outputs, and warnings about outputs that the evaluation would not score."""

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
from contract.errors import OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import ImageHeader, read_header, read_volume
from contract.io.files import read_json
from contract.platform import MAX_FILES_IN_IMAGE_FOLDER, PLATFORM_IMAGE_SUFFIXES, TIFF_SUFFIXES

# The platform also imports MetaIO in two files, though no job of ours writes it.
_IMPORTABLE_SUFFIXES: Final = (*PLATFORM_IMAGE_SUFFIXES, ".mhd")
_MASK_TYPES: Final = ("8-bit unsigned integer", "8-bit signed integer")
_FAILS_JOB: Final = "the platform would fail this job, and with it the whole submission"
_MAX_FAULTS: Final = 5
# Of a mask on another grid, whose labels are looked at all the same: more would take seconds.
_CHEAP_VOXELS: Final = 20_000_000
_MAX_SHOWN: Final = 60  # characters of a value in a message


@dataclass(frozen=True)
class CheckedOutput:
    """An output that the platform accepts: an image file, or a JSON file with its `value`.

    `unscored` says why the evaluation would score it as missing; empty if it would not.
    """

    answer: AnswerSpec
    path: Path
    value: Any = None
    unscored: str = ""


@dataclass(frozen=True)
class CheckedOutputs:
    """The outputs of one job, one for each answer; `warnings` are about what the platform ignores or accepts."""

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
    """Check all answers of a task below `output_dir`, a copy of the container's `/output`, as the platform does.

    A mask is expected on the grid `ct_geometry`; None skips this check. `faults` are reasons why something was not
    copied. Of a run that failed (`is_partial`) only the outputs that are there are checked. Raises OutputError with
    all reasons if the platform would fail the job.
    """
    outputs: list[CheckedOutput] = []
    warnings: list[str] = []
    reasons = _first_of(faults)
    surplus = _surplus_files(output_dir, task.answers)
    others = [f"{', '.join(surplus[:3])}: no output of this task"] if surplus else []
    for answer in task.answers:
        if is_partial and not answer.socket.path_under(output_dir).exists():
            continue
        try:
            output, remarks = _check_answer(output_dir, answer, ct_geometry)
            outputs.append(output)
            warnings += remarks
        except OutputError as problem:
            reasons.append(problem.message)
    if reasons:
        raise OutputError("; ".join([*reasons, *others, _FAILS_JOB]))
    warnings += [f"{shown}; the platform would drop {len(surplus)} such file(s)" for shown in others]
    return CheckedOutputs(tuple(outputs), tuple(warnings))


def _first_of(faults: Sequence[str]) -> list[str]:
    more = len(faults) - _MAX_FAULTS
    return [*faults[:_MAX_FAULTS], *([f"{more} more of this kind"] if more > 0 else [])]


def _check_answer(
    output_dir: Path, answer: AnswerSpec, ct_geometry: Geometry | None
) -> tuple[CheckedOutput, list[str]]:
    if answer.kind != "mask":
        return _check_value(output_dir, answer), []
    path, ignored = _single_image(answer.socket.path_under(output_dir), answer.socket)
    unscored, remarks = _unscored(path, answer, ct_geometry), []
    if ignored:
        remarks.append(
            f"{ignored} file(s) in {answer.socket.relative_path} are not images; the platform would ignore them"
        )
    if unscored:
        remarks.append(
            f"{path.name}: {unscored}; the platform would accept it, the evaluation would score it as missing"
        )
    return CheckedOutput(answer, path, unscored=unscored), remarks


def _unscored(path: Path, answer: AnswerSpec, ct_geometry: Geometry | None) -> str:
    """The reason to score a mask as missing. Raises OutputError if the platform would not accept it."""
    if path.name.lower().endswith(TIFF_SUFFIXES):
        return "a TIFF"
    header = read_header(path, error=OutputError)
    _check_pixel_type(path, header)
    differences = [] if ct_geometry is None else ct_geometry.find_differences(header.geometry)
    if not differences or math.prod(header.geometry.size) <= _CHEAP_VOXELS:
        _check_labels(path, answer)
    return f"its grid is not the CT's ({'; '.join(differences)}, CT against mask)" if differences else ""


def _single_image(folder: Path, socket: Socket) -> tuple[Path, int]:
    """The only importable image in a folder, and the number of other files beside it."""
    wanted = f"exactly one image ({', '.join(PLATFORM_IMAGE_SUFFIXES)}) there"
    if not folder.is_dir():
        raise OutputError(f"no output {socket.relative_path}", "", wanted)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise OutputError(f"{socket.relative_path} is empty", "", wanted)
    if len(files) > MAX_FILES_IN_IMAGE_FOLDER:
        raise OutputError(socket.relative_path, f"{len(files)} files", f"at most {MAX_FILES_IN_IMAGE_FOLDER}")
    images = [path for path in files if path.name.lower().endswith(_IMPORTABLE_SUFFIXES)]
    if not images:
        shown = ", ".join(path.name for path in files[:3])
        raise OutputError(socket.relative_path, f"found {shown}, no importable image", wanted)
    if len(images) > 1:
        shown = ", ".join(path.name for path in images[:3])
        raise OutputError(socket.relative_path, f"found {len(images)} images ({shown})", wanted)
    return images[0], sum(not path.name.lower().endswith((*_IMPORTABLE_SUFFIXES, ".raw", ".zraw")) for path in files)


def _check_pixel_type(path: Path, header: ImageHeader) -> None:
    if header.pixel_type not in _MASK_TYPES:
        raise OutputError(path.name, f"{header.pixel_type} pixels", "8-bit integers with one channel")


def _check_labels(path: Path, answer: AnswerSpec) -> None:
    declared = (labels.BACKGROUND, *answer.labels.values())
    present = np.unique(read_volume(path, error=OutputError).array)
    others = sorted(int(value) for value in present if int(value) not in declared)
    if others:
        shown = ", ".join(str(value) for value in others[:5])
        raise OutputError(path.name, f"label {shown}", f"only {', '.join(map(str, declared))}")


def _check_value(output_dir: Path, answer: AnswerSpec) -> CheckedOutput:
    name, path = answer.socket.relative_path, answer.socket.path_under(output_dir)
    if not path.is_file():
        raise OutputError(f"no output {name}", "", "a JSON file there")
    value = read_json(path, error=OutputError, accept_nan=True)
    if not _is_valid(value, answer):
        raise OutputError(name, f"found {_shown(value)}", _expected_value(answer))
    return CheckedOutput(answer, path, value)


def _is_valid(value: Any, answer: AnswerSpec) -> bool:
    if answer.kind == "risk":
        return is_number(value)
    return is_member(value, answer.classes)


def _shown(value: Any) -> str:
    if value is None:
        return "null (NaN and infinities become null)"
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _expected_value(answer: AnswerSpec) -> str:
    if answer.kind == "risk":
        return "a number"
    return f"one of {', '.join(map(json.dumps, answer.classes))}"


def _surplus_files(output_dir: Path, answers: Sequence[AnswerSpec]) -> list[str]:
    """Files outside the answers' folders and files, relative to `/output`."""
    own = {answer.socket.path_under(output_dir) for answer in answers}
    files = sorted(path for path in output_dir.rglob("*") if path.is_file())
    return [str(path.relative_to(output_dir)) for path in files if not own & {path, *path.parents}]
