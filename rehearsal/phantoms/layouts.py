"""Phantoms on disk: in the challenge's release layout, or as the platform mounts a case."""

from __future__ import annotations

import csv
import io
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import SimpleITK as sitk

from contract import files, predictions, sockets
from contract.images import volumes as images
from contract.images.volumes import Volume
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.scanner import Rendered

TASK_FOLDERS = ("Task 1", "Task 2", "Task 3")
CLINICAL_COLUMNS = (
    "Age",
    "Gender",
    "Tobacco Consumption",
    "Alcohol Consumption",
    "Performance Status",
    "Treatment",
    "M-stage",
)
TARGETS: dict[int, Callable[[PhantomCase], dict[str, int]]] = {
    1: lambda _: {},
    2: lambda case: {"Relapse": int(case.outcome.relapse), "RFS": case.outcome.rfs_days},
    3: lambda case: {"HPV Status": int(case.outcome.hpv_positive)},
}
# A namespace of our own keeps the names the same on every machine.
UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "phantoms.hecktor.invalid")


def clinical_row(case: PhantomCase, task: int) -> dict[str, int | str | None]:
    """One row of the release's CSV for a task; None is missing."""
    return {"PatientID": case.patient_id, "CenterID": case.centre.code, **case.record, **TARGETS[task](case)}


def csv_name(task: int) -> str:
    """The release's CSV file name."""
    return f"HECKTOR_2025_Training_Task_{task}.csv"


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all; None becomes an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(path, text.getvalue())


def write_nifti(path: Path, volume: Volume) -> None:
    """Write `.nii.gz` at the fastest compression, the same bytes each time (SimpleITK always takes the slow one)."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    sitk.WriteImage(images.to_sitk(volume), str(plain))
    with plain.open("rb") as source, path.open("wb") as target:
        _gzip(source, target)
    plain.unlink()


def _gzip(source: BinaryIO, target: BinaryIO) -> None:
    compressor = zlib.compressobj(level=1, wbits=31)
    while block := source.read(1 << 20):
        target.write(compressor.compress(block))
    target.write(compressor.flush())


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside ``target`` that takes its name when the block ends without an error."""
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard link, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class ReleaseLayout:
    """``Task N/<ID>/<ID>__CT.nii.gz`` and so on, with one CSV a task."""

    name = "release"

    def is_complete(self, root: Path, case: PhantomCase) -> bool:
        """Whether all of the patient's folders stand."""
        return all((root / task / case.patient_id).is_dir() for task in TASK_FOLDERS)

    def write_case(self, root: Path, case: PhantomCase, rendered: Rendered) -> None:
        """Write a patient's images in all three tasks; the images are shared by hard links."""
        name = case.patient_id
        with whole_folder(root / TASK_FOLDERS[0] / name) as folder:
            write_nifti(folder / f"{name}__CT.nii.gz", rendered.ct)
            write_nifti(folder / f"{name}__PT.nii.gz", rendered.pet)
            write_nifti(folder / f"{name}.nii.gz", rendered.mask)
        for task in TASK_FOLDERS[1:]:
            with whole_folder(root / task / name) as folder:
                for image in (f"{name}__CT.nii.gz", f"{name}__PT.nii.gz"):
                    link_or_copy(root / TASK_FOLDERS[0] / name / image, folder / image)
                if task == "Task 2" and rendered.planning is not None and rendered.dose is not None:
                    write_nifti(folder / f"{name}__CTPlanning.nii.gz", rendered.planning)
                    write_nifti(folder / f"{name}__RTDOSE.nii.gz", rendered.dose)

    def write_tables(self, root: Path, cases: Sequence[PhantomCase]) -> None:
        """Write one CSV a task."""
        for task, folder in enumerate(TASK_FOLDERS, start=1):
            write_table(root / folder / csv_name(task), [clinical_row(case, task) for case in cases])


class PlatformLayout:
    """``<ID>/input/`` as the platform mounts it, and ``ground_truth/`` as the evaluation reads it."""

    name = "platform"

    def is_complete(self, root: Path, case: PhantomCase) -> bool:
        """Whether the patient's folder and reference mask stand."""
        return (root / case.patient_id).is_dir() and (root / "ground_truth" / f"{case.patient_id}.mha").is_file()

    def write_case(self, root: Path, case: PhantomCase, rendered: Rendered) -> None:
        """Write a patient's input folder and reference mask."""
        name = case.patient_id
        images.write_mask(root / "ground_truth" / f"{name}.mha", rendered.mask.array, rendered.mask.geometry)
        volumes = [(sockets.CT, rendered.ct), (sockets.PET, rendered.pet)]
        if rendered.planning is not None and rendered.dose is not None:
            volumes += [(sockets.CT_PLANNING, rendered.planning), (sockets.RT_DOSE, rendered.dose)]
        ehr = platform_ehr(case)
        entries: list[dict[str, Any]] = []
        with whole_folder(root / name) as folder:
            for socket, volume in volumes:
                image = str(uuid.uuid5(UUID_NAMESPACE, f"{case.noise_seed}/{name}/{socket.slug}"))
                target = socket.path_under(folder / "input") / f"{image}.mha"
                images.write_volume(target, volume)
                entries.append(predictions.socket_entry(socket, len(entries) + 1, image=(image, f"{name}.mha")))
            entries.append(predictions.socket_entry(sockets.EHR, len(entries) + 1, value=ehr))
            files.write_json(sockets.EHR.path_under(folder / "input"), ehr)
            files.write_json(folder / "input" / "inputs.json", entries)

    def write_tables(self, root: Path, cases: Sequence[PhantomCase]) -> None:
        """Write the targets of tasks 2 and 3 beside the reference masks."""
        for task in (2, 3):
            rows = [clinical_row(case, task) for case in cases]
            write_table(root / "ground_truth" / csv_name(task), rows)


def platform_ehr(case: PhantomCase) -> dict[str, int | str | None]:
    """A patient's `ehr.json`; what is missing is null for some and absent for others, as on the platform."""
    keep_null = bool(np.random.default_rng(case.noise_seed).random() < 0.5)
    ehr = {key: value for key, value in case.record.items() if value is not None or keep_null}
    return {**ehr, "CenterID": case.centre.code}


Layout = ReleaseLayout | PlatformLayout
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (ReleaseLayout(), PlatformLayout())}
