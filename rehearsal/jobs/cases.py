"""Cases of a cohort, and their layout as mounted by the platform."""

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
from contract.platform import compose, is_system_name
from contract.predictions import make_socket_entry, read_inputs
from contract.release.tables import ReleaseTable

_EXPECTED: Final = "a cohort in the platform's layout, or a release with Task 1 or <ID>/<ID>__CT.nii.gz"


@dataclass(frozen=True)
class CohortCase:
    """One patient of a cohort.

    `files` holds the image or JSON file of each of the task's sockets that this patient has, `values` the JSON values
    that have no file. `image_name` is the file name under which the patient's images were uploaded; the evaluation
    matches cases by it.
    """

    case_id: str
    image_name: str
    files: tuple[tuple[Socket, Path], ...]
    values: tuple[tuple[Socket, Any], ...] = ()

    def file(self, socket: Socket) -> Path:
        """The case's file of a socket; KeyError where the case has none."""
        return dict(self.files)[socket]


@dataclass(frozen=True)
class Cohort:
    """The cases to rehearse; of a release also the reference masks by case and the table, None without one."""

    cases: tuple[CohortCase, ...]
    warnings: tuple[str, ...] = ()
    masks: Mapping[str, Path] = field(default_factory=dict)
    table: ReleaseTable | None = None


@dataclass(frozen=True)
class StagedJob:
    """A case as one algorithm job: `/input` as mounted, and its entries for `inputs.json` and `predictions.json`."""

    pk: str
    case: CohortCase
    input_dir: Path
    entries: tuple[dict[str, Any], ...]


def find_cases(cohort: Path, task: Algorithm, only: Sequence[str] = ()) -> tuple[CohortCase, ...]:
    """The cases `<cohort>/<ID>/input/` with the inputs of a task, sorted by ID; with `only` these IDs alone.

    Raises:
        InputError: there is no case, an ID of `only` does not exist, or a case lacks a required input.
    """
    if not cohort.is_dir():
        raise InputError(cohort.name, "no such folder", _EXPECTED)
    patients = [folder for folder in list_folder(cohort) if folder.is_dir() and not is_system_name(folder.name)]
    inputs = [folder / "input" for folder in patients if (folder / "input").is_dir()]
    folders, only = {compose(path.parent.name): path for path in inputs}, [compose(name) for name in only]
    unknown = sorted(set(only) - set(folders))
    if unknown:
        raise InputError(cohort.name, f"no case {', '.join(unknown)}", "one of its folders")
    chosen = [(name, path) for name, path in folders.items() if not only or name in only]
    if not chosen:
        nearby = suggest_folder(cohort, lambda path: any(path.glob("*/input")))
        raise InputError(cohort.absolute().name, f"no folder <ID>/input in it{nearby}", _EXPECTED)
    return tuple(_case(name, path, task) for name, path in chosen)


def stage_job(case: CohortCase, folder: Path) -> StagedJob:
    """Lay out a case as `/input` in `folder`: images named by new image pks, and `inputs.json`.

    Images in other formats are converted to compressed `.mha`, as the platform does at upload.
    """
    entries: list[dict[str, Any]] = []
    for socket, source in case.files:
        number = len(entries) + 1
        if socket.is_image:
            image_pk = str(uuid.uuid4())
            _place_image(source, socket.path_under(folder) / f"{image_pk}.mha")
            entries.append(make_socket_entry(socket, number, image=(image_pk, case.image_name)))
        else:
            place(source, socket.path_under(folder))
            value = read_json(source, accept_nan=True)
            entries.append(make_socket_entry(socket, number, value=value))
    for socket, value in case.values:
        write_json(socket.path_under(folder), value)
        entries.append(make_socket_entry(socket, len(entries) + 1, value=value))
    write_json(folder / platform.INPUTS_JSON, entries)
    return StagedJob(str(uuid.uuid4()), case, folder, tuple(entries))


def place(source: Path, target: Path) -> None:
    """Copy a file to `target`; no link, through which a program could change the file itself."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)


def _place_image(source: Path, target: Path) -> None:
    if find_image_suffix(source) == ".mha":
        place(source, target)
        return
    write_volume(target, read_volume(source))
    target.chmod(0o644)


def _case(case_id: str, folder: Path, task: Algorithm) -> CohortCase:
    files: list[tuple[Socket, Path]] = []
    for name, socket in {**task.inputs, **task.optional_inputs}.items():
        path = socket.path_under(folder)
        if not path.exists():
            if name in task.optional_inputs:
                continue
            raise InputError(case_id, f"no {socket.relative_path}", f"it for task {task.name}")
        files.append((socket, find_single_image(path) if socket.is_image else path))
    return CohortCase(case_id, _image_name(case_id, folder, task.scan.slug), tuple(files))


def _image_name(case_id: str, folder: Path, scan_slug: str) -> str:
    listed = folder / platform.INPUTS_JSON
    items = read_inputs(listed, error=InputError) if listed.is_file() else ()
    return {item.slug: item.image_name for item in items}.get(scan_slug) or f"{case_id}.mha"
