"""A tiny release for planting faults, and results of nnU-Net's own trainer."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from contract.io.files import PHANTOM_MARKER, write_json
from contract.release.layout import format_table_name
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.make import write_nifti
from rehearsal.phantoms.rendering import Rendered, render

TASKS = ("Task 1", "Task 2", "Task 3")
CLINICAL = {
    "CenterID": "", "Age": "61", "Gender": "1", "Tobacco Consumption": "0", "Alcohol Consumption": "",
    "Performance Status": "1", "Treatment": "1", "M-stage": "M0",
}  # fmt: skip
TARGETS: dict[str, dict[str, str]] = {
    "Task 1": {},
    "Task 2": {"Relapse": "0", "RFS": "900"},
    "Task 3": {"HPV Status": "1"},
}


def halve_matrix(grid: Geometry) -> Geometry:
    """Return a grid with the same field of view and half the matrix in plane."""
    size, step = grid.size, grid.spacing_mm
    return replace(grid, size=(size[0] // 2, size[1] // 2, size[2]), spacing_mm=(step[0] * 2, step[1] * 2, step[2]))


@cache
def render_phantom() -> Rendered:
    """Render a phantom with both lesion labels on coarse grids."""
    case = make_case(19, 0, CENTRES, "head_and_neck")
    protocol = coarsen_protocol(case.protocol, 8)
    return render(replace(case, protocol=replace(protocol, pet=halve_matrix(protocol.pet))))


def respell_header(text: str) -> str:
    """Replace the names of some columns of a table by other spellings."""
    names = {
        "PatientID": " patientid",
        "Gender": "GENDER",
        "Performance Status": "Performance_Status ",
        "CenterID": "Center",
    }
    header, _, rest = text.partition("\n")
    return ",".join(names.get(name, name) for name in header.split(",")) + "\n" + rest


@dataclass
class TinyRelease:
    """Release of different clones of a phantom; `add` patients, spoil them, then `write_tables`."""

    root: Path
    rows: dict[str, dict[str, dict[str, str]]] = field(default_factory=lambda: {task: {} for task in TASKS})
    clones: int = 0
    spoil_table: dict[str, list[Callable[[str], str]]] = field(default_factory=lambda: {task: [] for task in TASKS})

    def add(self, patient_id: str) -> str:
        """Add a sound patient to all three tasks, whose images are shared by hard links."""
        rendered = render_phantom()
        self.clones += 1
        for role, volume in (("__CT", rendered.ct), ("__PT", rendered.pet), ("", rendered.mask)):
            array = volume.array.copy()
            if role:  # a corner voxel of air that tells clones apart
                array[0, 0, 0] += self.clones / 100 if role == "__PT" else self.clones
            self.write(patient_id, role, Volume(array, volume.geometry), tasks=TASKS if role else TASKS[:1])
        for task in TASKS:
            centre = patient_id.split("-", maxsplit=1)[0]
            self.rows[task][patient_id] = {"PatientID": patient_id, **CLINICAL, **TARGETS[task], "CenterID": centre}
        return patient_id

    def path(self, patient_id: str, role: str, task: str = "Task 1") -> Path:
        """Return the path of an image; `role` is "__CT", "__PT" or "" for the mask."""
        return self.root / task / patient_id / f"{patient_id}{role}.nii.gz"

    def read(self, patient_id: str, role: str) -> Volume:
        """Read an image of Task 1."""
        return read_volume(self.path(patient_id, role))

    def write(self, patient_id: str, role: str, volume: Volume, tasks: tuple[str, ...] = TASKS) -> None:
        """Write an image once and link it into the other tasks."""
        first, *links = (self.path(patient_id, role, task) for task in tasks)
        first.parent.mkdir(parents=True, exist_ok=True)
        write_nifti(first, volume)
        for link in links:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            os.link(first, link)

    def change(self, patient_id: str, role: str, array: Callable[[np.ndarray], np.ndarray], **geometry: Any) -> None:
        """Change an image's voxels and geometry in every task that has the image."""
        old = self.read(patient_id, role)
        changed = Volume(array(old.array), replace(old.geometry, **geometry))
        self.write(patient_id, role, changed, tasks=TASKS if role else TASKS[:1])

    def set(self, patient_id: str, **values: str) -> None:
        """Set cells in every table that has the column; `_` means a blank or a hyphen."""
        for rows in self.rows.values():
            for column in rows[patient_id]:
                name = column.replace(" ", "_").replace("-", "_")
                if name in values:
                    rows[patient_id][column] = values[name]

    def forget(self, patient_id: str, *tasks: str, folder: bool = True, row: bool = True) -> None:
        """Remove a patient from some tasks."""
        for task in tasks:
            if folder:
                shutil.rmtree(self.root / task / patient_id)
            if row:
                del self.rows[task][patient_id]

    def table(self, task: str) -> Path:
        """Return the path of a task's CSV file."""
        return self.root / task / format_table_name("HECKTOR 2025", TASKS.index(task) + 1)

    def respell(self, patient_id: str) -> None:
        """Change the header of Task 1 and add a column, change spellings in Task 2, and add a byte order mark in Task
        3.
        """
        self.rows["Task 1"][patient_id]["Site"] = "tongue"
        self.rows["Task 2"][patient_id].update({"Age": "61.0", "Gender": "male "})
        self.spoil_table["Task 1"].append(respell_header)
        self.spoil_table["Task 3"].append(lambda text: "\ufeff" + text)

    def write_tables(self) -> Path:
        """Write the three CSV files with the requested faults and the marker of phantoms, and return the root."""
        write_json(self.root / PHANTOM_MARKER, {})
        for task, rows in self.rows.items():
            columns = list(dict.fromkeys(column for row in rows.values() for column in row))
            with self.table(task).open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
                writer.writeheader()
                writer.writerows(rows.values())
            text = self.table(task).read_text()
            for spoil in self.spoil_table[task]:
                text = spoil(text)
            self.table(task).write_text(text)
        return self.root


def make_empty_release(folder: Path) -> TinyRelease:
    """Make a release without patients below `folder`."""
    root = folder / "release"
    for task in TASKS:
        (root / task).mkdir(parents=True)
    return TinyRelease(root)


PATIENTS = 8


@pytest.fixture(scope="session", autouse=True)
def find_regions_once() -> Iterator[None]:
    """Find the region of head and neck once for the clones of a phantom, which differ only in the first slice."""
    from baseline.release import data_set

    find_region, regions = data_set.localise, dict[Any, Any]()

    def localise(case: Any) -> Any:
        if case.is_mr:
            return find_region(case)
        images = [image for image in (case.scan, case.pet) if image is not None]
        key = tuple((image.geometry, hashlib.sha256(image.array[1:].tobytes()).digest()) for image in images)
        if key not in regions:
            regions[key] = find_region(case)
        return regions[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_set, "localise", localise)
        yield


def write_two_centres(release: TinyRelease) -> Path:
    """Write eight clones of a phantom at two centres; the old patients relapse early and are HPV negative."""
    for number in range(PATIENTS):
        name = release.add(f"{('CHUM', 'HMR')[number // 4]}-{number:03d}")
        old = number % 2
        release.set(name, Age=f"{50 + 20 * old + number}", Relapse=str(old), RFS=str(2000 - 1500 * old + number))
        release.set(name, HPV_Status=str(1 - old))
    return release.write_tables()


@pytest.fixture
def tiny_release(tmp_path: Path) -> TinyRelease:
    """Return a release without patients, to which tests add some."""
    return make_empty_release(tmp_path)


@pytest.fixture(scope="session")
def session_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `work`, a prepared release, and `masks`, with a mask of each patient. Tests change only copies."""
    from baseline.cli import main
    from tests.baseline.prepared import make_block

    root = tmp_path_factory.mktemp("prepared")
    places = ["--release", str(write_two_centres(make_empty_release(root))), "--work", str(root / "work")]
    assert main(["prepare", *places, "--folds", "2", "--jobs", "1", "--spacing-mm", "3", "3", "3"]) == 0
    for number, case in enumerate(read_cases(WorkFolders(root / "work"))):
        mask = root / "masks" / f"{case.patient_id}{('.nii.gz', '.mha')[number % 2]}"
        write_mask(mask, *make_block(case, (8, 5, 6, 7)[number % 4]))
    return root


@pytest.fixture
def work_and_masks(session_work: Path, tmp_path: Path) -> tuple[WorkFolders, Path]:
    """Copy a prepared release and a folder with a mask of each patient, which tests may change."""
    return copy_work(session_work, tmp_path)


def copy_work(source: Path, target: Path) -> tuple[WorkFolders, Path]:
    for name in ("work", "masks"):
        shutil.copytree(source / name, target / name, symlinks=True)
    return WorkFolders(target / "work"), target / "masks"


@pytest.fixture(scope="session")
def session_work_with_heads(session_work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit heads of the masks in a copy of the prepared release. Tests change only the copy `work_with_heads`."""
    from tests.baseline.prepared import run_heads

    root = tmp_path_factory.mktemp("heads")
    run_heads(*copy_work(session_work, root))
    return root


@pytest.fixture
def work_with_heads(session_work_with_heads: Path, tmp_path: Path) -> tuple[WorkFolders, Path]:
    """Copy a working directory with heads of existing masks, and the masks."""
    return copy_work(session_work_with_heads, tmp_path)


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figure after an epoch; nnU-Net's figure takes longer than the rest of a tiny training."""
    monkeypatch.setattr("nnunetv2.training.logging.nnunet_logger.LocalLogger.plot_progress_png", lambda *_: None)


@pytest.fixture(scope="session")
def training_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Train every preset of nnU-Net's trainer once. Tests change only the copy `results`."""
    from tests.baseline.package.nnunet_results import train_presets

    return train_presets(tmp_path_factory.mktemp("nnunet"))


@pytest.fixture
def results(training_results: dict[str, Path], tmp_path: Path) -> Path:
    """Copy the results of the default U-Net, which tests may change."""
    return Path(
        shutil.copytree(training_results["plain"], tmp_path / "Dataset001_Tiny" / training_results["plain"].name)
    )
