"""Find the cases of a cohort, and lay them out as the platform mounts them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from contract import platform
from contract.editions import Algorithm, Socket
from contract.errors import InputError
from contract.images.volumes import find_image_suffix, find_single_image, read_volume, write_volume
from contract.io.files import list_folder, read_json, suggest_folder, write_json
from contract.platform import is_system_name, normalise_unicode
from contract.predictions import make_socket_entry, read_inputs
from contract.release.tables import ReleaseTable

_EXPECTED: Final = "a cohort in the platform's layout, or a release with Task 1 or <ID>/<ID>__CT.nii.gz"


@dataclass(frozen=True)
class CohortCase:
    """One patient of a cohort.

    Attributes:
        case_id: ID of the patient.
        image_name: File name under which the patient's images were uploaded; the evaluation matches cases by it.
        files: Image or JSON file of each socket of the task that this patient has.
        values: JSON values that have no file.
    """

    case_id: str
    image_name: str
    files: tuple[tuple[Socket, Path], ...]
    values: tuple[tuple[Socket, Any], ...] = ()

    def find_file(self, socket: Socket) -> Path:
        """Return the file of a socket; raise `KeyError` if the case has no such file."""
        return dict(self.files)[socket]


@dataclass(frozen=True)
class Cohort:
    """The cases to rehearse; for a release also its reference masks by case, and its table if there is one."""

    cases: tuple[CohortCase, ...]
    warnings: tuple[str, ...] = ()
    masks: Mapping[str, Path] = field(default_factory=dict)
    table: ReleaseTable | None = None


@dataclass(frozen=True)
class StagedJob:
    """A case as one algorithm job: `/input` as mounted, and the entries for `inputs.json` and `predictions.json`."""

    pk: str
    case: CohortCase
    input_dir: Path
    entries: tuple[dict[str, Any], ...]


def find_cases(cohort: Path, task: Algorithm, only: Sequence[str] = ()) -> tuple[CohortCase, ...]:
    """Find the cases `<cohort>/<ID>/input/` with the inputs of a task, sorted by ID.

    Args:
        cohort: Folder of the cases.
        task: Task that declares the inputs.
        only: IDs to which the cases are restricted; empty for all cases.

    Raises:
        InputError: There is no case, an ID of `only` does not exist, or a case does not have a required input.
    """
    if not cohort.is_dir():
        raise InputError(cohort.name, "no such folder", _EXPECTED)
    patients = [folder for folder in list_folder(cohort) if folder.is_dir() and not is_system_name(folder.name)]
    inputs = [folder / "input" for folder in patients if (folder / "input").is_dir()]
    folders = {normalise_unicode(path.parent.name): path for path in inputs}
    only = [normalise_unicode(name) for name in only]
    unknown = sorted(set(only) - set(folders))
    if unknown:
        raise InputError(cohort.name, f"no case {', '.join(unknown)}", "one of its folders")
    chosen = [(name, path) for name, path in folders.items() if not only or name in only]
    if not chosen:
        nearby = suggest_folder(cohort, lambda path: any(path.glob("*/input")))
        raise InputError(cohort.absolute().name, f"no folder <ID>/input in it{nearby}", _EXPECTED)
    return tuple(_read_case(name, path, task) for name, path in chosen)


def stage_job(case: CohortCase, folder: Path) -> StagedJob:
    """Lay out a case as `/input` in `folder`: images with new primary keys as names, and `inputs.json`.

    Images in other formats are converted to compressed `.mha`, as the platform does at upload.
    """
    entries: list[dict[str, Any]] = []
    for socket, source in case.files:
        number = len(entries) + 1
        if socket.is_image:
            image_pk = str(uuid.uuid4())
            _place_image_file(source, socket.path_under(folder) / f"{image_pk}.mha")
            entries.append(make_socket_entry(socket, number, image=(image_pk, case.image_name)))
        else:
            place_file(source, socket.path_under(folder))
            value = read_json(source, accept_nan=True)
            entries.append(make_socket_entry(socket, number, value=value))
    for socket, value in case.values:
        write_json(socket.path_under(folder), value)
        entries.append(make_socket_entry(socket, len(entries) + 1, value=value))
    write_json(folder / platform.INPUTS_JSON, entries)
    return StagedJob(str(uuid.uuid4()), case, folder, tuple(entries))


def place_file(source: Path, target: Path) -> None:
    """Copy a file to `target`; through a link a program could change the original file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)


def _place_image_file(source: Path, target: Path) -> None:
    if find_image_suffix(source) == ".mha":
        place_file(source, target)
        return
    write_volume(target, read_volume(source))
    target.chmod(0o644)


def _read_case(case_id: str, folder: Path, task: Algorithm) -> CohortCase:
    files: list[tuple[Socket, Path]] = []
    for name, socket in {**task.inputs, **task.optional_inputs}.items():
        path = socket.path_under(folder)
        if not path.exists():
            if name in task.optional_inputs:
                continue
            raise InputError(case_id, f"no {socket.relative_path}", f"it for task {task.name}")
        files.append((socket, find_single_image(path) if socket.is_image else path))
    return CohortCase(case_id, _read_image_name(case_id, folder, task.scan.slug), tuple(files))


def _read_image_name(case_id: str, folder: Path, scan_slug: str) -> str:
    listed = folder / platform.INPUTS_JSON
    items = read_inputs(listed, error=InputError) if listed.is_file() else ()
    return {item.slug: item.image_name for item in items}.get(scan_slug) or f"{case_id}.mha"
