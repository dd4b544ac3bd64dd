"""What the platform checks of one job's output, and what it lets through although the evaluation will not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import labels
from contract.editions import Socket
from contract.errors import OutputError
from contract.files import read_json
from contract.images.geometry import Geometry
from contract.images.volumes import ImageHeader, read_header, read_volume
from contract.platform import MAX_FILES_IN_IMAGE_FOLDER, PLATFORM_IMAGE_SUFFIXES

# MetaIO in two files is importable too; a job's own output never needs it, but the platform would take it.
_IMPORTABLE_SUFFIXES: Final = (*PLATFORM_IMAGE_SUFFIXES, ".mhd")
_MASK_TYPES: Final = ("8-bit unsigned integer", "8-bit signed integer")
_FAILS_JOB: Final = "the platform would fail this job, and with it the whole submission"
_JSON_NAMES: Final = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}


@dataclass(frozen=True)
class CheckedOutput:
    """An output that the platform takes: the image file, or the JSON `value` with its file.

    `warnings` name what the platform does not look at but the evaluation does.
    """

    socket: Socket
    path: Path
    value: Any = None
    warnings: tuple[str, ...] = ()


def check_output(output_dir: Path, socket: Socket, ct_geometry: Geometry | None) -> CheckedOutput:
    """Check one output socket below `output_dir` as the platform does.

    Args:
        output_dir: what the container saw as `/output`.
        socket: the task's output.
        ct_geometry: the grid that a mask belongs on; None leaves that unchecked.

    Raises:
        OutputError: the platform would fail the job; the message says why.
    """
    try:
        checked = _check_image(output_dir, socket, ct_geometry) if socket.is_image else _check_value(output_dir, socket)
    except OutputError as problem:
        raise OutputError(f"{problem.message}; {_FAILS_JOB}") from None
    surplus = _surplus_files(output_dir, socket)
    if not surplus:
        return checked
    shown = ", ".join(surplus[:3])
    warning = f"{shown}: no output of this task; the platform would drop {len(surplus)} such file(s)"
    return CheckedOutput(socket, checked.path, checked.value, (*checked.warnings, warning))


def _check_image(output_dir: Path, socket: Socket, ct_geometry: Geometry | None) -> CheckedOutput:
    folder = socket.path_under(output_dir)
    path, ignored = _single_image(folder, socket)
    warnings = [f"{ignored} file(s) in {socket.relative_path} are no image; the platform would ignore them"] * (
        ignored > 0
    )
    header = read_header(path, error=OutputError)
    _check_mask_values(path, header, socket)
    if ct_geometry is not None:
        differences = ct_geometry.differences(header.geometry)
        if differences:
            warnings.append(
                f"{path.name}: its grid is not the CT's ({'; '.join(differences)}, CT against mask); "
                "the platform would accept it, the evaluation would score it as missing"
            )
    return CheckedOutput(socket, path, None, tuple(warnings))


def _single_image(folder: Path, socket: Socket) -> tuple[Path, int]:
    """The one importable image in a folder, and how many other files lie beside it."""
    wanted = f"expected exactly one image ({', '.join(PLATFORM_IMAGE_SUFFIXES)}) there"
    if not folder.is_dir():
        raise OutputError(f"no output {socket.relative_path}, {wanted}")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise OutputError(f"{socket.relative_path} is empty, {wanted}")
    if len(files) > MAX_FILES_IN_IMAGE_FOLDER:
        raise OutputError(f"{socket.relative_path}", f"{len(files)} files", f"at most {MAX_FILES_IN_IMAGE_FOLDER}")
    found = [path for path in files if path.name.lower().endswith(_IMPORTABLE_SUFFIXES)]
    if not found:
        shown = ", ".join(path.name for path in files[:3])
        raise OutputError(f"{socket.relative_path}", f"found {shown}, no importable image, {wanted}")
    if len(found) > 1:
        shown = ", ".join(path.name for path in found[:3])
        raise OutputError(f"{socket.relative_path}", f"found {len(found)} images ({shown}), {wanted}")
    return found[0], sum(not path.name.lower().endswith((*_IMPORTABLE_SUFFIXES, ".raw", ".zraw")) for path in files)


def _check_mask_values(path: Path, header: ImageHeader, socket: Socket) -> None:
    if socket.kind != "Segmentation":
        return
    if header.pixel_type not in _MASK_TYPES:
        raise OutputError(path.name, f"{header.pixel_type} pixels", "8-bit integers with one channel")
    declared = (labels.BACKGROUND, *labels.FOREGROUND)
    present = np.unique(read_volume(path, error=OutputError).array)
    others = sorted(int(value) for value in present if int(value) not in declared)
    if others:
        shown = ", ".join(str(value) for value in others[:5])
        raise OutputError(path.name, f"label {shown}", f"only {', '.join(map(str, declared))}")


def _check_value(output_dir: Path, socket: Socket) -> CheckedOutput:
    path = socket.path_under(output_dir)
    if not path.is_file():
        raise OutputError(f"no output {socket.relative_path}, expected a JSON file there")
    value = read_json(path, error=OutputError, accept_nan=True)
    wanted = {"Float": "a number", "Bool": "a boolean"}.get(socket.kind)
    found = "null (NaN and infinities become null)" if value is None else _JSON_NAMES.get(type(value), "an object")
    if wanted is not None and found != wanted:
        raise OutputError(f"{socket.relative_path}", f"found {found}", f"{wanted}")
    return CheckedOutput(socket, path, value)


def _surplus_files(output_dir: Path, socket: Socket) -> list[str]:
    """Files outside the socket's own folder or file, relative to `/output`."""
    own = socket.path_under(output_dir)
    files = sorted(path for path in output_dir.rglob("*") if path.is_file())
    return [str(path.relative_to(output_dir)) for path in files if path != own and own not in path.parents]
