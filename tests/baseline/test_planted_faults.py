"""A release with every fault planted in it, one patient, row or file a fault: each is named, nothing else is."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.checks import check_release, sound_cases
from baseline.problems import Problem, patients_with_errors
from baseline.release import read_release
from contract.errors import InputError
from contract.images import Volume

# severity, kind, patient, file below the root, what is said to be found (a regular expression)
Expected = tuple[str, str, str, str, str]
Release = Any  # tests/baseline/conftest.py: TinyRelease
Plant = Callable[[Release, str], list[Expected]]

CSV = {task: f"{task}/HECKTOR_2025_Training_{task.replace(' ', '_')}.csv" for task in ("Task 1", "Task 2", "Task 3")}


def image(patient: str, role: str, task: str = "Task 1") -> str:
    return f"{task}/{patient}/{patient}{role}.nii.gz"


def error(kind: str, patient: str, file: str, found: str) -> list[Expected]:
    return [("error", kind, patient, file, found)]


def warning(kind: str, patient: str, file: str, found: str) -> list[Expected]:
    return [("warning", kind, patient, file, found)]


def without_ct(release: Release, p: str) -> list[Expected]:
    release.path(p, "__CT").unlink()
    return error("missing-file", p, image(p, "__CT"), r"not there \(no other file\)")


def without_pet(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__PT", "Task 3")
    path.rename(path.with_name("PET.nii.gz"))
    unused = warning("unexpected-file", p, f"Task 3/{p}/PET.nii.gz", "a file that nothing reads")
    return error("missing-file", p, image(p, "__PT", "Task 3"), r"not there \(PET.nii.gz\)") + unused


def without_mask(release: Release, p: str) -> list[Expected]:
    release.path(p, "").unlink()
    return error("missing-file", p, image(p, ""), "not there")


def doubled_ct(release: Release, p: str) -> list[Expected]:
    shutil.copy(release.path(p, "__CT"), release.path(p, "__CT").with_name(f"{p}__CT (1).nii.gz"))
    return error("doubled-file", p, f"Task 1/{p}/{p}__CT (1).nii.gz", f"a second CT beside {p}__CT.nii.gz")


def doubled_folder(release: Release, p: str) -> list[Expected]:
    shutil.copytree(release.root / "Task 2" / p, release.root / "Task 2" / p.lower())
    return error("doubled-folder", p, f"Task 2/{p.lower()}", f"a second folder of {p}")


def stray_file(release: Release, p: str) -> list[Expected]:
    (release.root / "Task 2" / p / "notes.txt").write_text("x")
    (release.root / "Task 2" / p / ".DS_Store").write_text("hidden files are nobody's business")
    return warning("unexpected-file", p, f"Task 2/{p}/notes.txt", "a file that nothing reads")


def stray_file_beside_the_folders(release: Release, p: str) -> list[Expected]:
    (release.root / "Task 3" / "readme.txt").write_text("x")
    return warning("unexpected-file", "", "Task 3/readme.txt", "a file that nothing reads")


def dose_without_planning_ct(release: Release, p: str) -> list[Expected]:
    shutil.copy(release.path(p, "__CT"), release.path(p, "__RTDOSE", "Task 2"))
    return warning("missing-file", p, image(p, "__CTPlanning", "Task 2"), "not there")


def image_of_another(release: Release, p: str) -> list[Expected]:
    release.write(p, "__CT", release.read("CHUM-001", "__CT"))
    return error("doubled-image", p, image(p, "__CT"), "the same image as Task 1/CHUM-001/CHUM-001__CT.nii.gz")


def other_ct_in_task_3(release: Release, p: str) -> list[Expected]:
    ct = release.read(p, "__CT")
    release.path(p, "__CT", "Task 3").unlink()
    release.write(p, "__CT", Volume(ct.array + 1, ct.geometry), tasks=("Task 3",))
    return error("images-differ", p, image(p, "__CT", "Task 3"), f"another CT than in {image(p, '__CT')}")


def same_ct_compressed_anew(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__CT", "Task 2")
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[148:150] = b"hi"  # the header's free text
    path.unlink()
    path.write_bytes(gzip.compress(bytes(content), 9))
    return []


def not_in_task_1(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1")
    return warning("no-mask", p, f"Task 2/{p}", "no folder in Task 1")


def row_without_images(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1", row=False)
    release.forget(p, "Task 2", "Task 3")
    return error("row-without-images", p, CSV["Task 1"], f"a row of {p}, no folder Task 1/{p}")


def row_with_images_elsewhere(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 2", row=False)
    return warning("row-without-images", p, CSV["Task 2"], f"a row of {p}, no folder Task 2/{p}")


def images_without_row(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 1", folder=False)
    release.forget(p, "Task 2", "Task 3")
    return error("images-without-row", p, f"Task 1/{p}", f"a folder, no row in {CSV['Task 1']}")


def images_with_a_row_elsewhere(release: Release, p: str) -> list[Expected]:
    release.forget(p, "Task 3", folder=False)
    return warning("images-without-row", p, f"Task 3/{p}", f"a folder, no row in {CSV['Task 3']}")


def doubled_row(release: Release, p: str) -> list[Expected]:
    release.rows["Task 1"][f"{p} again"] = dict(release.rows["Task 1"][p])
    return error("csv-doubled-row", p, CSV["Task 1"], r"stands in rows \d+ and \d+")


def cell_too_many(release: Release, p: str) -> list[Expected]:
    release.spoil_table["Task 3"].append(lambda text: re.sub(rf"^{p},.*$", r"\g<0>,7", text, flags=re.MULTILINE))
    return error("csv-row", p, CSV["Task 3"], r"row \d+ has 11 cells")


def row_without_id(release: Release, p: str) -> list[Expected]:
    release.spoil_table["Task 1"].insert(0, lambda text: text + "," * text.partition("\n")[0].count(",") + "\n")
    release.spoil_table["Task 1"].insert(
        0, lambda text: text + ",M" + "," * (text.partition("\n")[0].count(",") - 1) + "\n"
    )
    number = len(release.rows["Task 1"])
    return error("csv-row", f"(row {number + 2})", CSV["Task 1"], f"row {number + 2} has no PatientID")


def impossible(column: str, cell: str, task: str, found: str) -> Plant:
    """A cell in one table that cannot be true."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.rows[task][p][column] = cell
        return error("impossible-value", p, CSV[task], found)

    return plant


def days_without_event(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["Relapse"] = ""
    return error("days-without-event", p, CSV["Task 2"], "RFS 900 without Relapse")


def event_without_days(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["RFS"] = "nan"
    return error("event-without-days", p, CSV["Task 2"], "Relapse 0 without RFS")


def neither_event_nor_days(release: Release, p: str) -> list[Expected]:
    release.set(p, RFS="", Relapse="", HPV_Status="", Gender="", Age="n/a")
    return []


def other_age_in_task_2(release: Release, p: str) -> list[Expected]:
    release.rows["Task 2"][p]["Age"] = "62"
    return error("values-differ", p, CSV["Task 2"], f"Age 62.0, but 61.0 in {CSV['Task 1']}")


def age_in_task_2_alone(release: Release, p: str) -> list[Expected]:
    release.rows["Task 1"][p]["Age"] = ""
    return []


def centre_of_others(release: Release, p: str) -> list[Expected]:
    release.set(p, CenterID="USZ")
    return warning("centre", p, f"Task 1/{p}", "CenterID USZ; CHUM by its ID")


def ct_cut_off(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__CT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return error("unreadable", p, image(p, "__CT"), "truncated")


def mask_on_another_grid(release: Release, p: str) -> list[Expected]:
    release.change(
        p, "", lambda mask: mask[1:], size=(*release.read(p, "").geometry.size[:2], len(release.read(p, "").array) - 1)
    )
    return error("geometry", p, image(p, ""), r"size \(64, 64, \d+\) against \(64, 64, \d+\)")


def pet_elsewhere(release: Release, p: str) -> list[Expected]:
    release.change(p, "__PT", lambda pet: pet, origin_mm=(5000.0, 0.0, 0.0))
    return error("geometry", p, image(p, "__PT"), "no overlap with the CT")


def pet_of_few_voxels(release: Release, p: str) -> list[Expected]:
    grid = release.read(p, "__PT").geometry
    part = grid.cropped((20, 20, 0), (8, 8, grid.size[2]))
    release.change(p, "__PT", lambda pet: pet[:, 20:28, 20:28], size=part.size, origin_mm=part.origin_mm)
    return error("geometry", p, image(p, "__PT"), r"size \(8, 8, \d+\)$")


def flipped_axes(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", ""):
        release.change(
            p,
            role,
            lambda array: array,
            direction=(-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0),
            origin_mm=(250.0, 250.0, release.read(p, role).geometry.origin_mm[2]),
        )
    return warning("geometry", p, image(p, "__CT"), r"direction \(-1, 0, 0, 0, -1, 0, 0, 0, 1\)")


def centimetres(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", "__PT", ""):
        grid = release.read(p, role).geometry
        release.change(
            p, role, lambda array: array,
            spacing_mm=tuple(step / 100 for step in grid.spacing_mm), origin_mm=tuple(v / 100 for v in grid.origin_mm),
        )  # fmt: skip
    return [
        ("warning", "geometry", p, image(p, "__CT"), r"spacing \(0\.\d+, 0\.\d+, 0\.04\) mm"),
        ("warning", "geometry", p, image(p, "__PT"), r"spacing \(0\.\d+, 0\.\d+, 0\.05\) mm"),
    ]


def spoiled_image(role: str, spoil: Callable[[np.ndarray], np.ndarray], severity: str, kind: str, found: str) -> Plant:
    """Other voxels on the same grid."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.change(p, role, spoil)
        return [(severity, kind, p, image(p, role), found)]

    return plant


def with_values(first: float, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Set the first `count` voxels of the second slice."""

    def spoil(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float32)
        changed[1].flat[:count] = first
        return changed

    return spoil


PATIENT_FAULTS: dict[str, Plant] = {
    "missing CT": without_ct,
    "missing PET": without_pet,
    "missing mask": without_mask,
    "doubled CT": doubled_ct,
    "doubled folder": doubled_folder,
    "stray file": stray_file,
    "stray file beside the folders": stray_file_beside_the_folders,
    "dose without planning CT": dose_without_planning_ct,
    "image of another patient": image_of_another,
    "other CT in Task 3": other_ct_in_task_3,
    "same CT compressed anew": same_ct_compressed_anew,
    "not in Task 1": not_in_task_1,
    "row without images": row_without_images,
    "row with images elsewhere": row_with_images_elsewhere,
    "images without row": images_without_row,
    "images with a row elsewhere": images_with_a_row_elsewhere,
    "doubled row": doubled_row,
    "cell too many": cell_too_many,
    "age 200": impossible("Age", "200", "Task 1", "Age '200'"),
    "age 0": impossible("Age", "0", "Task 1", "Age '0'"),
    "gender nobody knows": impossible("Gender", "x", "Task 1", "Gender 'x'"),
    "tobacco 2": impossible("Tobacco Consumption", "2", "Task 1", "Tobacco Consumption '2'"),
    "alcohol often": impossible("Alcohol Consumption", "often", "Task 1", "Alcohol Consumption 'often'"),
    "performance status 7": impossible("Performance Status", "7", "Task 2", "Performance Status '7'"),
    "treatment 3": impossible("Treatment", "3", "Task 3", "Treatment '3'"),
    "M5": impossible("M-stage", "M5", "Task 1", "M-stage 'M5'"),
    "T9": impossible("T-stage", "T9", "Task 1", "T-stage 'T9'"),
    "a T stage for N": impossible("N-stage", "T2", "Task 1", "N-stage 'T2'"),
    "weight 900 kg": impossible("Weight", "900", "Task 1", "Weight '900'"),
    "relapse 2": impossible("Relapse", "2", "Task 2", "Relapse '2'"),
    "negative days": impossible("RFS", "-5", "Task 2", "RFS '-5'"),
    "days in words": impossible("RFS", "soon", "Task 2", "RFS 'soon'"),
    "a century of days": impossible("RFS", "36500", "Task 2", "RFS '36500'"),
    "HPV 3": impossible("HPV Status", "3", "Task 3", "HPV Status '3'"),
    "days without event": days_without_event,
    "event without days": event_without_days,
    "neither event nor days": neither_event_nor_days,
    "other age in Task 2": other_age_in_task_2,
    "age in Task 2 alone": age_in_task_2_alone,
    "centre of others": centre_of_others,
    "CT cut off": ct_cut_off,
    "mask on another grid": mask_on_another_grid,
    "PET elsewhere": pet_elsewhere,
    "PET of few voxels": pet_of_few_voxels,
    "flipped axes": flipped_axes,
    "centimetres": centimetres,
    "label 3": spoiled_image("", lambda m: np.where(m == 2, 3, m), "error", "labels", "labels 3$"),
    "half a label": spoiled_image("", with_values(0.5, 1), "error", "labels", "labels 0.5$"),
    "empty mask": spoiled_image("", np.zeros_like, "warning", "labels", "an empty mask"),
    "inverted CT": spoiled_image("__CT", lambda ct: -ct, "error", "hounsfield", "an inverted CT"),
    "rescale forgotten": spoiled_image(
        "__CT", lambda ct: (np.clip(ct, -1024, None) + 1024).astype(np.uint16), "error", "hounsfield", "rescale intercept"
    ),
    "CT from 0 to 1": spoiled_image(
        "__CT", lambda ct: ((ct + 1024.0) / 4096).astype(np.float32), "error", "hounsfield", "another unit"
    ),
    "CT of bytes": spoiled_image(
        "__CT", lambda ct: np.clip((ct + 160) * 0.64, 0, 255).astype(np.uint8), "error", "hounsfield", "another unit"
    ),
    "constant CT": spoiled_image("__CT", np.zeros_like, "error", "hounsfield", "values from 0 to 0"),
    "CT with NaN": spoiled_image("__CT", with_values(np.nan, 3), "warning", "not-finite", "3 voxels are NaN or infinite"),
    "PET of NaN": spoiled_image("__PT", lambda p: p * np.nan, "error", "not-finite", "all voxels are NaN"),
    "PET with infinity": spoiled_image("__PT", with_values(np.inf, 2), "warning", "not-finite", "2 voxels are NaN or"),
    "PET in Bq/ml": spoiled_image("__PT", lambda p: p * 5000, "error", "suv", r"an activity concentration \(Bq/ml\)"),
    "PET of zeros": spoiled_image("__PT", np.zeros_like, "error", "suv", "all voxels are zero"),
    "negated PET": spoiled_image("__PT", np.negative, "error", "suv", "voxels below zero, "),
    "PET with negatives": spoiled_image("__PT", with_values(-0.5, 4), "warning", "suv", r"4 voxels below zero \(lowest -0.5"),
    "PET from 0 to 1": spoiled_image("__PT", lambda p: p / p.max(), "error", "suv", "a normalised image"),
}  # fmt: skip


def plant_dialects(release: Release) -> list[Expected]:
    """Spellings that are read, and said once a file."""
    release.respell("MDA-001")
    one, two, three = CSV.values()
    return [
        ("warning", "csv-dialect", "", one, r"column names ' patientid', 'GENDER', 'Performance_Status '$"),
        ("warning", "csv-dialect", "", one, r"T-stage spelled in another way in 1 cells, first 'T4a', read as T4"),
        ("warning", "csv-dialect", "", one, r"N-stage spelled in another way in 1 cells, first 'cN2b', read as N2"),
        ("warning", "csv-column", "", one, "columns that nothing reads: Site"),
        ("warning", "csv-dialect", "", two, "cells separated by ';'"),
        ("warning", "csv-dialect", "", two, r"blanks around cells in 1 cells, first 'male ' \(row 2, Gender\)"),
        ("warning", "csv-dialect", "", two, r"a decimal comma in 1 cells, first '61,0' \(row 2, Age\)"),
        ("warning", "csv-dialect", "", two, "Gender spelled in another way in 1 cells, first 'male', read as 1"),
        ("warning", "csv-dialect", "", two, "1 IDs spelled in another way, first 'mda-001'"),
        ("warning", "csv-dialect", "", three, "a byte order mark"),
    ]


@pytest.fixture
def faulty(tiny_release: Release) -> tuple[Path, list[Expected]]:
    """The release with all faults, after one sound patient, and what must be said of it."""
    tiny_release.add("MDA-001")
    tiny_release.add("CHUM-001")
    expected: list[Expected] = []
    for number, plant in enumerate(PATIENT_FAULTS.values(), start=2):
        expected += plant(tiny_release, tiny_release.add(f"CHUM-{number:03d}"))
    nameless = tiny_release.add("P0001")
    tiny_release.set(nameless, CenterID="")
    expected += error("no-centre", nameless, f"Task 1/{nameless}", "no centre")
    expected += row_without_id(tiny_release, "")
    expected += plant_dialects(tiny_release)
    return tiny_release.write_tables(), expected


def matches(problem: Problem, expected: Expected) -> bool:
    severity, kind, patient, file, found = expected
    same = (problem.severity, problem.kind, problem.patient_id, problem.file) == (severity, kind, patient, file)
    return same and re.search(found, problem.found) is not None


def test_each_fault_is_named_and_nothing_else(faulty: tuple[Path, list[Expected]], tmp_path: Path) -> None:
    root, expected = faulty
    release = read_release(root)
    problems = check_release(release, tmp_path / "checks", jobs=1)
    wrong = [one for one in expected if sum(matches(problem, one) for problem in problems) != 1]
    assert not wrong, "\n".join(map(str, wrong))
    beyond = [problem for problem in problems if not any(matches(problem, one) for one in expected)]
    assert not beyond, "\n".join(map(str, beyond))
    assert len(problems) == len(expected)
    assert [problem.is_error for problem in problems] == sorted((p.is_error for p in problems), reverse=True)
    assert check_release(release, tmp_path / "checks", jobs=1) == problems
    with pytest.raises(InputError, match=r"^release: \d+ errors, expected none"):
        sound_cases(release, problems, keep_going=False)
    kept = {case.patient_id for case in sound_cases(release, problems, keep_going=True)}
    left_out = {patient for severity, _, patient, _, _ in expected if severity == "error"}
    assert set(patients_with_errors(problems)) == left_out
    assert kept == {case.patient_id for case in release.cases} - left_out
    assert {"MDA-001", "CHUM-001"} <= kept
