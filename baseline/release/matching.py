"""Match the rows of the tables with the patients' folders; name tables without outcomes and patients without masks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from baseline.release.layout import ReleaseFiles
from baseline.release.problems import ERROR, WARNING, Problem
from baseline.release.tables import ReleaseTable

_ID: Final = re.compile(r"([A-Za-z]+)-\d+.*")


def centre_of(patient_id: str) -> str:
    """The centre in an ID, in capitals; empty if the ID has none."""
    match = _ID.fullmatch(patient_id)
    return match[1].upper() if match else ""


def unmatched(layout: ReleaseFiles, tables: Mapping[str, ReleaseTable]) -> list[Problem]:
    """Rows without images and images without a row: an error if no other folder or table has them."""
    problems: list[Problem] = []
    anywhere = {patient for table in tables.values() for patient in table.rows}
    for task, table in tables.items():
        there = {patient for patient, folders in layout.patients.items() if task in folders.files}
        problems += _rows_without_images(layout, table, task, there)
        for patient in sorted(there - set(table.rows) - table.refused):
            severity = WARNING if patient in anywhere else ERROR
            found = f"a folder, no row in {table.file}"
            file = layout.name(layout.folders[task].path / patient)
            problems.append(Problem(severity, "images-without-row", patient, file, found, "a row"))
    return problems


def _rows_without_images(
    layout: ReleaseFiles, table: ReleaseTable, task: str, there: Collection[str]
) -> Iterator[Problem]:
    """Rows of a centre of which no patient has a folder give one warning: a release may lack a whole centre."""
    present = {"", *map(centre_of, layout.patients)}
    missing = sorted(set(table.rows) - set(there))
    for centre, count in sorted(Counter(map(centre_of, missing)).items()):
        if centre not in present:
            found = f"{count} rows of {centre}, no folder of this centre"
            yield Problem(WARNING, "centre-without-images", "", table.file, found, "its images, or no rows")
    for patient in (patient for patient in missing if centre_of(patient) in present):
        severity = WARNING if patient in layout.patients else ERROR
        found = f"a row of {patient}, no folder {task}/{patient}"
        yield Problem(severity, "row-without-images", patient, table.file, found, "its images")


def without_outcomes(layout: ReleaseFiles, tables: Mapping[str, ReleaseTable]) -> list[Problem]:
    """Tables that lack a column of an outcome: no row of such a table can train its head."""
    problems = []
    for task, table in tables.items():
        outcomes = layout.folders[task].outcomes
        missing = [column for column in outcomes if column not in table.columns]
        if missing:
            found, expected = f"no column {', '.join(missing)}", f"all outcomes: {', '.join(outcomes)}"
            problems.append(Problem(WARNING, "csv-column", "", table.file, found, expected))
    return problems


def without_mask(layout: ReleaseFiles) -> list[Problem]:
    """Patients whose missing mask is no error: they are in no folder with masks, or masks are optional there."""
    with_masks = [folder for folder in layout.folders.values() if folder.has_masks]
    problems = []
    for patient in layout.patients.values():
        own = [folder for folder in with_masks if folder.name in patient.files]
        if not with_masks or patient.first("mask") or any("mask" in folder.needed for folder in own):
            continue
        where = layout.name(layout.folders[next(iter(patient.files))].path / patient.patient_id)
        missing = f"no {patient.patient_id}.nii.gz" if own else f"no folder in {with_masks[0].name}"
        found = f"{missing}: without a reference mask only the heads can use it"
        problems.append(Problem(WARNING, "no-mask", patient.patient_id, where, found, "a reference mask"))
    return problems
