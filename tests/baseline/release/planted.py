"""Faults that tests plant in a release, each in one patient, row or file, with the problems to expect."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

# severity, kind, patient, file below the root, `found` (a regular expression)
Expected = tuple[str, str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
Plant = Callable[[Release, str], list[Expected]]

CSV = {task: f"{task}/HECKTOR_2025_Training_{task.replace(' ', '_')}.csv" for task in ("Task 1", "Task 2", "Task 3")}


def format_image_path(patient: str, role: str, task: str = "Task 1") -> str:
    return f"{task}/{patient}/{patient}{role}.nii.gz"


def expect_error(kind: str, patient: str, file: str, finding: str) -> list[Expected]:
    return [("error", kind, patient, file, finding)]


def expect_warning(kind: str, patient: str, file: str, finding: str) -> list[Expected]:
    return [("warning", kind, patient, file, finding)]


# Images


def truncate_ct(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__CT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return expect_error("unreadable", p, format_image_path(p, "__CT"), "truncated")


def crop_mask(release: Release, p: str) -> list[Expected]:
    release.change(
        p, "", lambda mask: mask[1:], size=(*release.read(p, "").geometry.size[:2], len(release.read(p, "").array) - 1)
    )
    return expect_error("geometry", p, format_image_path(p, ""), r"size \(64, 64, \d+\) against \(64, 64, \d+\)")


def move_pet(release: Release, p: str) -> list[Expected]:
    release.change(p, "__PT", lambda pet: pet, origin_mm=(5000.0, 0.0, 0.0))
    return expect_error("geometry", p, format_image_path(p, "__PT"), "no overlap with the CT")


def crop_pet(release: Release, p: str) -> list[Expected]:
    grid = release.read(p, "__PT").geometry
    part = grid.crop((28, 28, 0), (8, 8, grid.size[2]))
    release.change(p, "__PT", lambda pet: pet[:, 28:36, 28:36], size=part.size, origin_mm=part.origin_mm)
    return expect_error("geometry", p, format_image_path(p, "__PT"), r"size \(8, 8, \d+\)$")


def flip_axes(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", ""):
        release.change(
            p,
            role,
            lambda array: array,
            direction=(-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0),
            origin_mm=(250.0, 250.0, release.read(p, role).geometry.origin_mm[2]),
        )
    return expect_warning("geometry", p, format_image_path(p, "__CT"), r"direction \(-1, 0, 0, 0, -1, 0, 0, 0, 1\)")


def divide_lengths_by_100(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", "__PT", ""):
        grid = release.read(p, role).geometry
        release.change(
            p, role, lambda array: array,
            spacing_mm=tuple(step / 100 for step in grid.spacing_mm), origin_mm=tuple(v / 100 for v in grid.origin_mm),
        )  # fmt: skip
    return [
        ("warning", "geometry", p, format_image_path(p, "__CT"), r"spacing \(0\.\d+, 0\.\d+, 0\.0\d+\) mm"),
        ("warning", "geometry", p, format_image_path(p, "__PT"), r"spacing \(0\.\d+, 0\.\d+, 0\.05\) mm"),
    ]


def make_voxel_fault(
    role: str, spoil: Callable[[np.ndarray], np.ndarray], severity: str, kind: str, finding: str
) -> Plant:
    """Return a fault that changes the voxels of an image on the same grid."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.change(p, role, spoil)
        return [(severity, kind, p, format_image_path(p, role), finding)]

    return plant


def make_setter(value: float, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that sets the first `count` voxels of the second slice to a value."""

    def spoil(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float32)
        changed[1].flat[:count] = value
        return changed

    return spoil


IMAGE_FAULTS: dict[str, Plant] = {
    "CT cut off": truncate_ct,
    "mask on another grid": crop_mask,
    "PET elsewhere": move_pet,
    "PET of few voxels": crop_pet,
    "flipped axes": flip_axes,
    "centimetres": divide_lengths_by_100,
    "label 3": make_voxel_fault("", lambda m: np.where(m == 2, 3, m), "error", "labels", "labels 3$"),
    "half a label": make_voxel_fault("", make_setter(0.5, 1), "error", "labels", "labels 0.5$"),
    "mirrored mask": make_voxel_fault("", lambda m: m[:, ::-1], "warning", "mirrored", "with y mirrored$"),
    "empty mask": make_voxel_fault("", np.zeros_like, "warning", "labels", "an empty mask"),
    "inverted CT": make_voxel_fault("__CT", lambda ct: -ct, "error", "hounsfield", "an inverted CT"),
    "rescale forgotten": make_voxel_fault(
        "__CT", lambda ct: (np.clip(ct, -1024, None) + 1024).astype(np.uint16), "error", "hounsfield", "rescale intercept"
    ),
    "CT from 0 to 1": make_voxel_fault(
        "__CT", lambda ct: ((ct + 1024.0) / 4096).astype(np.float32), "error", "hounsfield", "another unit"
    ),
    "CT of bytes": make_voxel_fault(
        "__CT", lambda ct: np.clip((ct + 160) * 0.64, 0, 255).astype(np.uint8), "error", "hounsfield", "another unit"
    ),
    "constant CT": make_voxel_fault("__CT", np.zeros_like, "error", "hounsfield", "values from 0 to 0"),
    "CT with NaN": make_voxel_fault("__CT", make_setter(np.nan, 3), "warning", "not-finite", "3 voxels are NaN or infinite"),
    "PET of NaN": make_voxel_fault("__PT", lambda p: p * np.nan, "error", "not-finite", "all voxels are NaN"),
    "PET with infinity": make_voxel_fault("__PT", make_setter(np.inf, 2), "warning", "not-finite", "2 voxels are NaN or"),
    "PET in Bq/ml": make_voxel_fault("__PT", lambda p: p * 5000, "error", "suv", r"an activity concentration \(Bq/ml\)"),
    "PET of zeros": make_voxel_fault("__PT", np.zeros_like, "error", "suv", "all voxels are zero"),
    "negated PET": make_voxel_fault("__PT", np.negative, "error", "suv", "voxels below zero, "),
    "PET with negatives": make_voxel_fault("__PT", make_setter(-0.5, 4), "warning", "suv", r"4 voxels below zero \(lowest -0.5"),
    "PET from 0 to 1": make_voxel_fault("__PT", lambda p: p / p.max(), "error", "suv", "a normalised image"),
}  # fmt: skip


# Files, folders and tables


def remove_ct(release: Release, p: str) -> list[Expected]:
    release.path(p, "__CT").unlink()
    return expect_error("missing-file", p, format_image_path(p, "__CT"), r"not found \(no other file\)")


def rename_pet(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__PT", "Task 3")
    path.rename(path.with_name("PET.nii.gz"))
    return expect_error("missing-file", p, format_image_path(p, "__PT", "Task 3"), r"not found \(PET.nii.gz\)")


def remove_mask(release: Release, p: str) -> list[Expected]:
    release.path(p, "").unlink()
    return expect_error("missing-file", p, format_image_path(p, ""), "not found")


def copy_ct_of_another_patient(release: Release, p: str) -> list[Expected]:
    release.write(p, "__CT", release.read("CHUM-001", "__CT"))
    return expect_error(
        "doubled-image", p, format_image_path(p, "__CT"), "the same image as Task 1/CHUM-001/CHUM-001__CT.nii.gz"
    )


def remove_from_task_1(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1")
    return expect_warning("no-mask", p, f"Task 2/{p}", "no folder in Task 1")


def remove_images(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1", row=False)
    release.forget(p, "Task 2", "Task 3")
    return expect_error("row-without-images", p, CSV["Task 1"], f"a row of {p}, no folder Task 1/{p}")


def remove_images_from_task_2(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 2", row=False)
    return expect_warning("row-without-images", p, CSV["Task 2"], f"a row of {p}, no folder Task 2/{p}")


def remove_row(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1", folder=False)
    release.forget(p, "Task 2", "Task 3")
    return expect_error("images-without-row", p, f"Task 1/{p}", f"a folder, no row in {CSV['Task 1']}")


def remove_row_from_task_3(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 3", folder=False)
    return expect_warning("images-without-row", p, f"Task 3/{p}", f"a folder, no row in {CSV['Task 3']}")


def repeat_row(release: Release, p: str) -> list[Expected]:
    release.rows["Task 1"][f"{p} again"] = dict(release.rows["Task 1"][p])
    return expect_error("csv-doubled-row", p, CSV["Task 1"], r"rows \d+ and \d+")


def truncate_row(release: Release, p: str) -> list[Expected]:
    release.spoil_table["Task 3"].append(lambda text: re.sub(rf"^({p},[^,]*),.*$", r"\1", text, flags=re.MULTILINE))
    return expect_error("csv-row", p, CSV["Task 3"], r"row \d+ has 2 cells")


def add_rows_without_id(release: Release, p: str) -> list[Expected]:
    release.spoil_table["Task 1"].insert(0, lambda text: text + "," * text.partition("\n")[0].count(",") + "\n")
    release.spoil_table["Task 1"].insert(
        0, lambda text: text + ",M" + "," * (text.partition("\n")[0].count(",") - 1) + "\n"
    )
    number = len(release.rows["Task 1"])
    return expect_error("csv-row", f"(row {number + 2})", CSV["Task 1"], f"row {number + 2} has no PatientID")


def make_cell_fault(column: str, cell: str, task: str, finding: str) -> Plant:
    """Return a fault that puts an impossible value into a table."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.rows[task][p][column] = cell
        return expect_error("impossible-value", p, CSV[task], finding)

    return plant


def remove_event(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["Relapse"] = ""
    return expect_error("days-without-event", p, CSV["Task 2"], "RFS 900 without Relapse")


def remove_days(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["RFS"] = "nan"
    return expect_error("event-without-days", p, CSV["Task 2"], "Relapse 0 without RFS")


def remove_outcomes(release: Release, p: str) -> list[Expected]:
    release.set(p, RFS="", Relapse="", HPV_Status="", Gender="", Age="n/a")
    return []


def change_age_in_task_2(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["Age"] = "62"
    return expect_error("values-differ", p, CSV["Task 2"], f"Age 62.0, but 61.0 in {CSV['Task 1']}")


def remove_age_from_task_1(release: Release, p: str) -> list[Expected]:
    release.rows["Task 1"][p]["Age"] = ""
    return []


FILE_AND_TABLE_FAULTS: dict[str, Plant] = {
    "missing CT": remove_ct,
    "missing PET": rename_pet,
    "missing mask": remove_mask,
    "image of another patient": copy_ct_of_another_patient,
    "not in Task 1": remove_from_task_1,
    "row without images": remove_images,
    "row with images elsewhere": remove_images_from_task_2,
    "images without row": remove_row,
    "images with a row elsewhere": remove_row_from_task_3,
    "doubled row": repeat_row,
    "row cut off": truncate_row,
    "age 200": make_cell_fault("Age", "200", "Task 1", "Age '200'"),
    "age 0": make_cell_fault("Age", "0", "Task 1", "Age '0'"),
    "unknown gender": make_cell_fault("Gender", "x", "Task 1", "Gender 'x'"),
    "tobacco 2": make_cell_fault("Tobacco Consumption", "2", "Task 1", "Tobacco Consumption '2'"),
    "alcohol often": make_cell_fault("Alcohol Consumption", "often", "Task 1", "Alcohol Consumption 'often'"),
    "performance status 7": make_cell_fault("Performance Status", "7", "Task 2", "Performance Status '7'"),
    "treatment 3": make_cell_fault("Treatment", "3", "Task 3", "Treatment '3'"),
    "M5": make_cell_fault("M-stage", "M5", "Task 1", "M-stage 'M5'"),
    "relapse 2": make_cell_fault("Relapse", "2", "Task 2", "Relapse '2'"),
    "negative days": make_cell_fault("RFS", "-5", "Task 2", "RFS '-5'"),
    "days in words": make_cell_fault("RFS", "soon", "Task 2", "RFS 'soon'"),
    "a century of days": make_cell_fault("RFS", "36500", "Task 2", "RFS '36500'"),
    "HPV 3": make_cell_fault("HPV Status", "3", "Task 3", "HPV Status '3'"),
    "days without event": remove_event,
    "event without days": remove_days,
    "neither event nor days": remove_outcomes,
    "other age in Task 2": change_age_in_task_2,
    "age only in Task 2": remove_age_from_task_1,
}


def plant_spellings(release: Release) -> list[Expected]:
    """Change spellings that are accepted without a problem, and add a column that is not read."""
    release.respell("MDA-001")
    return expect_warning("csv-column", "", CSV["Task 1"], "unknown columns: Site")
