"""Tests that every fault planted in a release is named, and nothing else: each patient, row or file has one fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.release.cases import read_release
from baseline.release.prepare import find_problems, list_patients_with_errors, select_sound_cases
from baseline.work import WorkFolders
from contract.errors import InputError
from contract.images.volumes import Volume
from tests.baseline.prepared import EDITION

Release = Any  # tests/baseline/conftest.py: TinyRelease
Plant = Callable[[Release, str], object]
# Severity, kind, file below the root, and finding as a regular expression; {p} is the patient.
Expected = tuple[str, str, str, str]
Fault = tuple[Plant, list[Expected]]

TASKS = ("Task 1", "Task 2", "Task 3")
CSV_1, CSV_2, CSV_3 = (f"{task}/HECKTOR_2025_Training_{task.replace(' ', '_')}.csv" for task in TASKS)


def format_image(role: str, task: str = "Task 1") -> str:
    return f"{task}/{{p}}/{{p}}{role}.nii.gz"


CT, PET, MASK, DOSE = format_image("__CT"), format_image("__PT"), format_image(""), format_image("__RTDOSE", "Task 2")


def error(kind: str, file: str, finding: str) -> list[Expected]:
    return [("error", kind, file, finding)]


def warning(kind: str, file: str, finding: str) -> list[Expected]:
    return [("warning", kind, file, finding)]


# Images


def cut_file(role: str, task: str = "Task 1") -> Plant:
    """Return a fault that leaves half of a file, whose header is sound."""

    def plant(release: Release, p: str) -> None:
        if task == "Task 2":
            add_dose(release, p)
        path = release.path(p, role, task)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return plant


def crop_mask(release: Release, p: str) -> None:
    x, y, z = release.read(p, "").geometry.size
    release.change(p, "", lambda mask: mask[1:], size=(x, y, z - 1))


def crop_pet(release: Release, p: str) -> None:
    grid = release.read(p, "__PT").geometry
    part = grid.crop((28, 28, 0), (8, 8, grid.size[2]))
    release.change(p, "__PT", lambda pet: pet[:, 28:36, 28:36], size=part.size, origin_mm=part.origin_mm)


def flip_axes(release: Release, p: str) -> None:
    for role in ("__CT", ""):
        direction, z = (-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0), release.read(p, role).geometry.origin_mm[2]
        release.change(p, role, lambda array: array, direction=direction, origin_mm=(250.0, 250.0, z))


def divide_lengths_by_100(release: Release, p: str) -> None:
    for role in ("__CT", "__PT", ""):
        grid = release.read(p, role).geometry
        spacing, origin = (tuple(length / 100 for length in lengths) for lengths in (grid.spacing_mm, grid.origin_mm))
        release.change(p, role, lambda array: array, spacing_mm=spacing, origin_mm=origin)


def reverse_spacing(release: Release, p: str) -> None:
    """Store the spacing as (z, y, x)."""
    for role in ("__CT", "__PT", ""):
        release.change(p, role, lambda array: array, spacing_mm=release.read(p, role).geometry.spacing_mm[::-1])


def break_links(release: Release, p: str) -> None:
    """Replace a CT by links to nothing and a mask by a folder, and add such links for the planning CT and the dose."""
    for task, role in [*((task, "__CT") for task in TASKS), ("Task 2", "__CTPlanning"), ("Task 2", "__RTDOSE")]:
        release.path(p, role, task).unlink(missing_ok=True)
        release.path(p, role, task).symlink_to("nowhere.nii.gz")
    release.path(p, "").unlink()
    release.path(p, "").mkdir()


def add_dose(release: Release, p: str, scale: float = 1.0, shift: float = 0.0, **geometry: Any) -> None:
    """Add a planning CT like the CT, and a dose of 0 to 70 Gy on its grid."""
    ct = release.read(p, "__CT")
    release.write(p, "__CTPlanning", ct, tasks=("Task 2",))
    dose = np.clip(ct.array, 0, 70).astype(np.float32) * scale + shift
    release.write(p, "__RTDOSE", Volume(dose, replace(ct.geometry, **geometry)), tasks=("Task 2",))


def spoil(role: str, change: Callable[[np.ndarray], np.ndarray], **geometry: Any) -> Plant:
    return lambda release, p: release.change(p, role, change, **geometry)


def set_voxels(value: float, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that sets the first `count` voxels of the second slice to a value."""

    def change(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float32)
        changed[1].flat[:count] = value
        return changed

    return change


IMAGE_FAULTS: dict[str, Fault] = {
    "CT cut off": (cut_file("__CT"), error("unreadable", CT, "truncated")),
    "planning CT cut off": (
        cut_file("__CTPlanning", "Task 2"), error("unreadable", format_image("__CTPlanning", "Task 2"), "^truncated")
    ),
    "dose cut off": (cut_file("__RTDOSE", "Task 2"), error("unreadable", DOSE, "^truncated")),
    "links to nothing": (
        break_links,
        [
            *(("error", "unreadable", format_image("__CT", task), "^a broken link$") for task in TASKS),
            ("error", "unreadable", format_image("__CTPlanning", "Task 2"), "^a broken link$"),
            ("error", "unreadable", DOSE, "^a broken link$"),
            ("error", "unreadable", MASK, "^not a regular file$"),
        ],
    ),
    "mask on another grid": (crop_mask, error("geometry", MASK, r"size \(64, 64, \d+\) against \(64, 64, \d+\)")),
    "PET elsewhere": (
        spoil("__PT", lambda pet: pet, origin_mm=(5000.0, 0.0, 0.0)), error("geometry", PET, "no overlap with the CT")
    ),
    "PET of few voxels": (crop_pet, error("geometry", PET, r"size \(8, 8, \d+\)$")),
    "flipped axes": (flip_axes, warning("geometry", CT, r"direction \(-1, 0, 0, 0, -1, 0, 0, 0, 1\)")),
    "centimetres": (
        divide_lengths_by_100,
        [
            *warning("geometry", CT, r"spacing \(0\.\d+, 0\.\d+, 0\.0\d+\) mm"),
            *warning("geometry", PET, r"spacing \(0\.\d+, 0\.\d+, 0\.05\) mm"),
        ],
    ),
    "spacing as (z, y, x)": (
        reverse_spacing,
        [
            *warning("geometry", CT, r"^spacing \(\d\.?\d*, \d+\.?\d*, \d+\.?\d*\) mm$"),
            *warning("geometry", PET, r"^spacing \(5, \d+\.?\d*, \d+\.?\d*\) mm$"),
        ],
    ),
    "label 3": (spoil("", lambda mask: np.where(mask == 2, 3, mask)), error("labels", MASK, "labels 3$")),
    "half a label": (spoil("", set_voxels(0.5, 1)), error("labels", MASK, "labels 0.5$")),
    "mirrored mask": (spoil("", lambda mask: mask[:, ::-1]), warning("mirrored", MASK, "with y mirrored$")),
    "empty mask": (spoil("", np.zeros_like), warning("labels", MASK, "an empty mask")),
    "inverted CT": (spoil("__CT", lambda ct: -ct), error("hounsfield", CT, "an inverted CT")),
    "rescale forgotten": (
        spoil("__CT", lambda ct: (np.clip(ct, -1024, None) + 1024).astype(np.uint16)),
        error("hounsfield", CT, "rescale intercept"),
    ),
    "CT from 0 to 1": (
        spoil("__CT", lambda ct: ((ct + 1024.0) / 4096).astype(np.float32)), error("hounsfield", CT, "another unit")
    ),
    "CT of bytes": (
        spoil("__CT", lambda ct: np.clip((ct + 160) * 0.64, 0, 255).astype(np.uint8)),
        error("hounsfield", CT, "another unit"),
    ),
    "constant CT": (spoil("__CT", np.zeros_like), error("hounsfield", CT, "values from 0 to 0")),
    "CT with NaN": (spoil("__CT", set_voxels(np.nan, 3)), warning("not-finite", CT, "3 voxels are NaN or infinite")),
    "PET of NaN": (spoil("__PT", lambda pet: pet * np.nan), error("not-finite", PET, "all voxels are NaN")),
    "PET with infinity": (spoil("__PT", set_voxels(np.inf, 2)), warning("not-finite", PET, "2 voxels are NaN or")),
    "PET in Bq/ml": (spoil("__PT", lambda pet: pet * 5000), error("suv", PET, r"an activity concentration \(Bq/ml\)")),
    "PET of zeros": (spoil("__PT", np.zeros_like), error("suv", PET, "all voxels are zero")),
    "negated PET": (spoil("__PT", np.negative), error("suv", PET, "voxels below zero, ")),
    "PET with negatives": (spoil("__PT", set_voxels(-0.5, 4)), warning("suv", PET, r"4 voxels below zero \(lowest -0.5")),
    "PET from 0 to 1": (spoil("__PT", lambda pet: pet / pet.max()), error("suv", PET, "a normalised image")),
    "sound dose": (add_dose, []),
    "dose in cGy": (lambda r, p: add_dose(r, p, scale=100), warning("dose", DOSE, "^highest value 7000: another unit")),
    "dose of zeros": (lambda r, p: add_dose(r, p, scale=0), warning("dose", DOSE, "^highest value 0: another unit")),
    "negative dose": (lambda r, p: add_dose(r, p, shift=-1), warning("dose", DOSE, "^lowest value -1: the dose is ignored")),
    "dose elsewhere": (
        lambda r, p: add_dose(r, p, origin_mm=(5000.0, 0.0, 0.0)), warning("geometry", DOSE, "^no overlap with the CT")
    ),
}  # fmt: skip


# Files, folders and tables


def rename_pet(release: Release, p: str) -> None:
    path = release.path(p, "__PT", "Task 3")
    path.rename(path.with_name("PET.nii.gz"))


def forget(*tasks: str, folder: bool = True, row: bool = True, everywhere: bool = False) -> Plant:
    """Return a fault that removes a patient's folder or row from some tasks, and with `everywhere` all of Tasks 2 and 3."""

    def plant(release: Release, p: str) -> None:
        release.forget(p, *tasks, folder=folder, row=row)
        if everywhere:
            release.forget(p, "Task 2", "Task 3")

    return plant


def cut_row(release: Release, p: str) -> None:
    release.spoil_table["Task 3"].append(lambda text: re.sub(rf"^({p},[^,]*),.*$", r"\1", text, flags=re.MULTILINE))


def set_cells(task: str, **cells: str) -> Plant:
    """Return a fault that changes cells of a table; `_` in a name means a blank."""
    return lambda release, p: release.rows[task][p].update(
        {name.replace("_", " "): cell for name, cell in cells.items()}
    )


FILE_AND_TABLE_FAULTS: dict[str, Fault] = {
    "missing CT": (
        lambda r, p: r.path(p, "__CT").unlink(), error("missing-file", CT, r"not found \(no other file\)")
    ),
    "missing PET": (rename_pet, error("missing-file", format_image("__PT", "Task 3"), r"not found \(PET.nii.gz\)")),
    "missing mask": (lambda r, p: r.path(p, "").unlink(), error("missing-file", MASK, "not found")),
    "image of another patient": (
        lambda r, p: r.write(p, "__CT", r.read("CHUM-001", "__CT")),
        error("doubled-image", CT, "the same image as Task 1/CHUM-001/CHUM-001__CT.nii.gz"),
    ),
    "not in Task 1": (forget("Task 1"), warning("no-mask", "Task 2/{p}", "no folder in Task 1")),
    "row without images": (
        forget("Task 1", row=False, everywhere=True),
        error("row-without-images", CSV_1, "a row of {p}, no folder Task 1/{p}"),
    ),
    "row with images elsewhere": (
        forget("Task 2", row=False), warning("row-without-images", CSV_2, "a row of {p}, no folder Task 2/{p}")
    ),
    "images without row": (
        forget("Task 1", folder=False, everywhere=True),
        error("images-without-row", "Task 1/{p}", f"a folder, no row in {CSV_1}"),
    ),
    "images with a row elsewhere": (
        forget("Task 3", folder=False), warning("images-without-row", "Task 3/{p}", f"a folder, no row in {CSV_3}")
    ),
    "doubled row": (
        lambda r, p: r.rows["Task 1"].update({f"{p} again": dict(r.rows["Task 1"][p])}),
        error("csv-doubled-row", CSV_1, r"rows \d+ and \d+"),
    ),
    "row cut off": (cut_row, error("csv-row", CSV_3, r"row \d+ has 2 cells")),
    "days without event": (
        set_cells("Task 2", Relapse=""), error("days-without-event", CSV_2, "RFS 900 without Relapse")
    ),
    "event without days": (set_cells("Task 2", RFS="nan"), error("event-without-days", CSV_2, "Relapse 0 without RFS")),
    "no outcomes": (lambda r, p: r.set(p, RFS="", Relapse="", HPV_Status="", Gender="", Age="n/a"), []),
    "other age in Task 2": (
        set_cells("Task 2", Age="62"), error("values-differ", CSV_2, f"Age 62.0, but 61.0 in {CSV_1}")
    ),
    "age only in Task 2": (set_cells("Task 1", Age=""), []),
    "no centre": (lambda r, p: r.set(p, CenterID=""), error("no-centre", "Task 1/{p}", "no centre")),
}  # fmt: skip
for task, column, cell in (
    ("Task 1", "Age", "200"), ("Task 1", "Age", "0"), ("Task 1", "Gender", "x"), ("Task 1", "Tobacco Consumption", "2"),
    ("Task 1", "Alcohol Consumption", "often"), ("Task 2", "Performance Status", "7"), ("Task 3", "Treatment", "3"),
    ("Task 1", "M-stage", "M5"), ("Task 2", "Relapse", "2"), ("Task 2", "RFS", "-5"), ("Task 2", "RFS", "soon"),
    ("Task 2", "RFS", "36500"), ("Task 3", "HPV Status", "3"),
):  # fmt: skip
    table = (CSV_1, CSV_2, CSV_3)[TASKS.index(task)]
    expected = error("impossible-value", table, re.escape(f"{column} '{cell}'"))
    FILE_AND_TABLE_FAULTS[f"{column} {cell}"] = (set_cells(task, **{column: cell}), expected)


def plant_faults_of_tables(release: Release) -> list[tuple[str, ...]]:
    """Add rows without an ID, spellings that are accepted, an empty column, and a column that is not read."""
    last_row = len(release.rows["Task 1"]) + 2
    for cells in ("", ",M"):  # an empty row, which does not count, after a row with one value
        release.spoil_table["Task 1"].insert(
            0,
            lambda text, cells=cells: (
                text + cells + "," * (text.partition("\n")[0].count(",") - len(cells) // 2) + "\n"
            ),
        )
    release.respell("MDA-001")
    release.spoil_table["Task 2"].append(lambda text: text.replace("\n", ",\n"))
    return [
        ("error", "csv-row", f"(row {last_row})", CSV_1, f"row {last_row} has no PatientID"),
        ("warning", "csv-column", "", CSV_1, "unknown columns: Site"),
    ]


def test_each_fault_is_named_and_nothing_else(tiny_release: Release, tmp_path: Path) -> None:
    """The release has two sound patients, and a patient for each fault."""
    tiny_release.add("MDA-001")
    tiny_release.add("CHUM-001")
    expected: list[tuple[str, ...]] = []
    for number, (name, (plant, problems)) in enumerate((FILE_AND_TABLE_FAULTS | IMAGE_FAULTS).items(), start=2):
        p = tiny_release.add("P0001" if name == "no centre" else f"CHUM-{number:03d}")
        plant(tiny_release, p)
        expected += [
            (severity, kind, p, file.replace("{p}", p), finding.replace("{p}", p))
            for severity, kind, file, finding in problems
        ]
    expected += plant_faults_of_tables(tiny_release)
    release = read_release(tiny_release.write_tables(), EDITION)
    problems = find_problems(release, WorkFolders(tmp_path / "work"), jobs=1)
    rows = [(problem.severity, problem.kind, problem.patient_id, problem.file) for problem in problems]
    counts = [
        sum(
            row == tuple(place) and re.search(finding, problem.found) is not None
            for row, problem in zip(rows, problems, strict=True)
        )
        for *place, finding in expected
    ]
    assert [fault for fault, count in zip(expected, counts, strict=True) if count != 1] == []
    assert [
        problem for row, problem in zip(rows, problems, strict=True) if row not in {fault[:4] for fault in expected}
    ] == []
    assert len(problems) == len(expected)
    assert [problem.is_error for problem in problems] == sorted((p.is_error for p in problems), reverse=True)
    assert find_problems(release, WorkFolders(tmp_path / "work"), jobs=1) == problems
    with pytest.raises(InputError, match=r"^release: \d+ errors"):
        select_sound_cases(release, problems, keep_going=False)
    sound = {case.patient_id for case in select_sound_cases(release, problems, keep_going=True)}
    left_out = {patient for severity, _, patient, *_ in expected if severity == "error"}
    assert set(list_patients_with_errors(problems)) == left_out
    assert sound == {case.patient_id for case in release.cases} - left_out
    assert {"MDA-001", "CHUM-001"} <= sound
