"""The challenge's release, read into one frozen record a patient with everything that is wrong named.

Task folders hold `<ID>/<ID>__CT.nii.gz`, `<ID>/<ID>__PT.nii.gz`, in Task 1 the mask `<ID>/<ID>.nii.gz` and in Task 2
for some `<ID>__CTPlanning.nii.gz` and `<ID>__RTDOSE.nii.gz`; a CSV a task holds the clinical variables and the target.
A patient is its ID, whatever task folders it stands in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from baseline.release.clinical import Values, read_values
from baseline.release.layout import TASK_FOLDERS, Folders, Layout, read_layout
from baseline.release.problems import ERROR, WARNING, Problem
from baseline.release.tables import Table, read_table
from contract.editions import load_edition
from contract.patient import Patient

_ID: Final = re.compile(r"([A-Za-z]+)-\d+.*")
_PATHS: Final = ("ct", "pet", "mask", "planning_ct", "dose")


@dataclass(frozen=True)
class ReleaseCase:
    """One training patient; a target or file that is not released for this patient is None.

    `relapse` is True for an event, `rfs_days` the time to it or to censoring, `hpv` True for positive; stages are
    "T4" or "N2", without sub-stage. `centre` is the ID's first part, or the table's where the ID has none.
    """

    patient_id: str
    centre: str
    ct: Path
    pet: Path
    mask: Path | None
    patient: Patient
    relapse: bool | None
    rfs_days: float | None
    hpv: bool | None
    t_stage: str | None = None
    n_stage: str | None = None
    planning_ct: Path | None = None
    dose: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The record that `case_of` reads."""
        paths = {name: None if getattr(self, name) is None else str(getattr(self, name)) for name in _PATHS}
        return asdict(self) | paths | {"patient": self.patient.as_json()}


def case_of(record: Mapping[str, Any]) -> ReleaseCase:
    """A case from the record that `ReleaseCase.as_json` wrote."""
    paths = {name: None if record[name] is None else Path(record[name]) for name in _PATHS}
    return ReleaseCase(**{**record, **paths, "patient": Patient.from_json(record["patient"])})


@dataclass(frozen=True)
class Release:
    """Every patient that has a CT and a PET, sorted by ID, and what is wrong with folders and tables.

    A patient with an error stands among `cases` as far as it could be read: `patients_with_errors` tells which.
    """

    root: Path
    cases: tuple[ReleaseCase, ...]
    problems: tuple[Problem, ...]


def read_release(root: Path) -> Release:
    """Read all task folders that are there; images are not opened unless copies of one seem to differ.

    Raises:
        InputError: no task folder or no patient folder at all.
    """
    layout = read_layout(root)
    tables = {task: read_table(path, layout.name(path)) for task, path in layout.tables.items()}
    readable = {task: table for task, table in tables.items() if table.readable}
    values = {task: _by_patient(table, layout) for task, table in readable.items()}
    problems = [*layout.problems, *_unmatched(layout, readable, values)]
    cases = []
    for key, folders in sorted(layout.patients.items()):
        merged, differing = _merged(
            folders.patient_id, {task: rows.get(key, {}) for task, rows in values.items()}, tables
        )
        problems += differing
        case = _case(folders, merged)
        if case is not None:
            cases.append(case)
    problems += _centres(cases, layout)
    for table in tables.values():
        problems += table.problems
    return Release(root, tuple(cases), tuple(problems))


def _by_patient(table: Table, layout: Layout) -> dict[str, Values]:
    """A table's values by ID in capitals; another spelling than the folder's is said once."""
    values = read_values(table)
    odd = [
        (written, layout.patients[written.upper()].patient_id)
        for written in values
        if written.upper() in layout.patients and layout.patients[written.upper()].patient_id != written
    ]
    if odd:
        table.dialect(f"{len(odd)} IDs spelled in another way, first {odd[0][0]!r}", f"the folder's, {odd[0][1]!r}")
    return {written.upper(): row for written, row in values.items()}


def _unmatched(
    layout: Layout, tables: Mapping[str, Table], values: Mapping[str, Mapping[str, Values]]
) -> list[Problem]:
    """Rows without images and images without a row: an error where no other task has them."""
    problems = []
    anywhere = {key for rows in values.values() for key in rows}
    for task, table in tables.items():
        written = {name.upper(): name for name in table.rows}
        there = {key for key, folders in layout.patients.items() if task in folders.files}
        for key in sorted(set(written) - there):
            severity = WARNING if key in layout.patients else ERROR
            patient = layout.patients[key].patient_id if key in layout.patients else written[key]
            found = f"a row of {patient}, no folder {task}/{patient}"
            problems.append(Problem(severity, "row-without-images", patient, table.file, found, "its images"))
        for key in sorted(there - set(written) - table.refused):
            patient = layout.patients[key].patient_id
            severity = WARNING if key in anywhere else ERROR
            found = f"a folder, no row in {table.file}"
            problems.append(Problem(severity, "images-without-row", patient, f"{task}/{patient}", found, "a row"))
    if TASK_FOLDERS[0] in layout.tasks():
        for folders in layout.patients.values():
            if TASK_FOLDERS[0] not in folders.files:
                where = f"{next(iter(folders.files))}/{folders.patient_id}"
                found = f"no folder in {TASK_FOLDERS[0]}: without a reference mask it serves the heads alone"
                problems.append(Problem(WARNING, "no-mask", folders.patient_id, where, found, "a reference mask"))
    return problems


def _merged(patient: str, rows: Mapping[str, Values], tables: Mapping[str, Table]) -> tuple[Values, list[Problem]]:
    """One set of values from all tasks; where two tasks disagree the first is kept and the case has an error."""
    merged: Values = {}
    source: dict[str, str] = {}
    problems = []
    for task, values in rows.items():
        for column, value in values.items():
            if merged.setdefault(column, value) != value:
                found = f"{column} {value}, but {merged[column]} in {tables[source[column]].file}"
                file = tables[task].file
                problems.append(Problem(ERROR, "values-differ", patient, file, found, "the same in each task"))
            source.setdefault(column, task)
    return merged, problems


def _case(folders: Folders, values: Values) -> ReleaseCase | None:
    ct, pet = folders.first("CT"), folders.first("PET")
    if ct is None or pet is None:
        return None
    patient = Patient.from_json({variable.name: values.get(variable.key) for variable in load_edition().clinical})
    prefix = _ID.fullmatch(folders.patient_id)
    return ReleaseCase(
        patient_id=folders.patient_id,
        centre=prefix[1].upper() if prefix else patient.centre or "",
        ct=ct,
        pet=pet,
        mask=folders.first("mask"),
        patient=patient,
        relapse=values.get("Relapse"),
        rfs_days=values.get("RFS"),
        hpv=values.get("HPV Status"),
        t_stage=values.get("T-stage"),
        n_stage=values.get("N-stage"),
        planning_ct=folders.first("planning CT"),
        dose=folders.first("dose"),
    )


def _centres(cases: Sequence[ReleaseCase], layout: Layout) -> list[Problem]:
    """The centre must be known, and a table's `CenterID` must be the same for all IDs of a centre."""
    problems = []
    codes: dict[str, Counter[str]] = {}
    for case in cases:
        if case.patient.centre is not None:
            codes.setdefault(case.centre, Counter())[case.patient.centre] += 1
    for case in cases:
        file = layout.name(case.ct.parent)
        if not case.centre:
            problems.append(Problem(ERROR, "no-centre", case.patient_id, file, "no centre", "<centre>-<number>"))
        elif case.patient.centre is not None:
            usual, _ = codes[case.centre].most_common(1)[0]
            if case.patient.centre != usual:
                found = f"CenterID {case.patient.centre}; {case.centre} by its ID, which is what counts"
                problems.append(Problem(WARNING, "centre", case.patient_id, file, found, f"{usual} as the others'"))
    return problems
