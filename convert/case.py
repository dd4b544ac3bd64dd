"""Write a case in the platform's layout: images by socket, `ehr.json`, `inputs.json`, and a reference mask."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from contract.editions import Edition
from contract.editions.clinical import ClinicalValue
from contract.editions.declaration import EHR
from contract.errors import OutputError
from contract.files import whole_folder, write_json
from contract.images.volumes import Volume, write_mask, write_volume
from contract.platform import INPUTS_JSON
from contract.predictions import socket_entry
from convert.dicom.volumes import SeriesVolume

GROUND_TRUTH: Final = "ground_truth"


def case_name(folder: Path) -> str:
    """Name of a case: its folder, or the patient's folder above `input` in a cohort `PATIENT/input`."""
    resolved = folder.resolve()
    return resolved.parent.name if resolved.name == "input" else resolved.name


def check_free(folder: Path) -> None:
    """Raise OutputError if `folder` exists and is no empty folder."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise OutputError(str(folder), "exists and is not empty", "a new or empty folder")


def write_case(
    folder: Path,
    edition: Edition,
    images: Mapping[str, SeriesVolume],
    ehr: Mapping[str, ClinicalValue],
    mask: Volume | None,
) -> None:
    """Write a case whole or not at all.

    Args:
        folder: new or empty folder.
        edition: gives the sockets.
        images: images by the name of the input; the UID gives the file's name.
        ehr: content of `ehr.json`.
        mask: reference mask on the CT's grid, written to `ground_truth/CASE.mha`; None without structures.

    Raises:
        OutputError: the folder is in use or cannot be written.
    """
    check_free(folder)
    name = case_name(folder)
    entries: list[dict[str, Any]] = []
    try:
        with whole_folder(folder) as partial:
            for key, image in images.items():
                socket, pk = edition.inputs[key], str(uuid.uuid5(uuid.NAMESPACE_OID, image.uid))
                write_volume(socket.path_under(partial) / f"{pk}.mha", image.volume)
                entries.append(socket_entry(socket, len(entries) + 1, image=(pk, f"{name}.mha")))
            write_json(edition.inputs[EHR].path_under(partial), dict(ehr))
            entries.append(socket_entry(edition.inputs[EHR], len(entries) + 1, value=dict(ehr)))
            write_json(partial / INPUTS_JSON, entries)
            if mask is not None:
                write_mask(partial / GROUND_TRUTH / f"{name}.mha", mask.array, mask.geometry)
    except OSError as problem:
        raise OutputError(
            str(folder), f"cannot be written ({problem.strerror or problem})", "a writable folder"
        ) from None
