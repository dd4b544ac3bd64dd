"""Faults of files, folders and tables, each planted in one patient or row."""

from __future__ import annotations

import re

from tests.baseline.release.planted import CSV, Expected, Plant, Release, error, image, warning


def without_ct(release: Release, p: str) -> list[Expected]:
    release.path(p, "__CT").unlink()
    return error("missing-file", p, image(p, "__CT"), r"not found \(no other file\)")


def without_pet(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__PT", "Task 3")
    path.rename(path.with_name("PET.nii.gz"))
    return error("missing-file", p, image(p, "__PT", "Task 3"), r"not found \(PET.nii.gz\)")


def without_mask(release: Release, p: str) -> list[Expected]:
    release.path(p, "").unlink()
    return error("missing-file", p, image(p, ""), "not found")


def image_of_another(release: Release, p: str) -> list[Expected]:
    release.write(p, "__CT", release.read("CHUM-001", "__CT"))
    return error("doubled-image", p, image(p, "__CT"), "the same image as Task 1/CHUM-001/CHUM-001__CT.nii.gz")


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
    return error("csv-doubled-row", p, CSV["Task 1"], r"rows \d+ and \d+")


def row_cut_off(release: Release, p: str) -> list[Expected]:
    release.spoil_table["Task 3"].append(lambda text: re.sub(rf"^({p},[^,]*),.*$", r"\1", text, flags=re.MULTILINE))
    return error("csv-row", p, CSV["Task 3"], r"row \d+ has 2 cells")


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


FILE_AND_TABLE_FAULTS: dict[str, Plant] = {
    "missing CT": without_ct,
    "missing PET": without_pet,
    "missing mask": without_mask,
    "image of another patient": image_of_another,
    "not in Task 1": not_in_task_1,
    "row without images": row_without_images,
    "row with images elsewhere": row_with_images_elsewhere,
    "images without row": images_without_row,
    "images with a row elsewhere": images_with_a_row_elsewhere,
    "doubled row": doubled_row,
    "row cut off": row_cut_off,
    "age 200": impossible("Age", "200", "Task 1", "Age '200'"),
    "age 0": impossible("Age", "0", "Task 1", "Age '0'"),
    "gender nobody knows": impossible("Gender", "x", "Task 1", "Gender 'x'"),
    "tobacco 2": impossible("Tobacco Consumption", "2", "Task 1", "Tobacco Consumption '2'"),
    "alcohol often": impossible("Alcohol Consumption", "often", "Task 1", "Alcohol Consumption 'often'"),
    "performance status 7": impossible("Performance Status", "7", "Task 2", "Performance Status '7'"),
    "treatment 3": impossible("Treatment", "3", "Task 3", "Treatment '3'"),
    "M5": impossible("M-stage", "M5", "Task 1", "M-stage 'M5'"),
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
}


def plant_spellings(release: Release) -> list[Expected]:
    """Spellings that are read without a word, and a column that is not read."""
    release.respell("MDA-001")
    return warning("csv-column", "", CSV["Task 1"], "unknown columns: Site")
