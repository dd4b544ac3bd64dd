"""Cases of the challenge's release: one frozen record for each patient, and all problems of folders and tables.

A release has one folder for each task, or one folder for all answers. A folder contains `<ID>/<ID>__CT.nii.gz` and
`<ID>/<ID>__PT.nii.gz`, the mask `<ID>/<ID>.nii.gz`, and in Task 2 for some patients `<ID>__CTPlanning.nii.gz` and
`<ID>__RTDOSE.nii.gz`. Its CSV file contains clinical variables and outcomes, and each impossible value is an error. A
patient has the same ID in all folders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator

from baseline.release.folders import (
    PatientFolders,
    ReleaseFiles,
    find_missing_masks,
    find_missing_outcomes,
    find_unmatched_patients,
    read_layout,
)
from baseline.work import WorkFolders, read_release_folder
from contract.documents import Document, parse_document
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.clinical import CENTRE, ImpossibleValueError
from contract.editions.inputs import CT_AND_PET, MR
from contract.io.files import write_json
from contract.patient import Patient, find_centres
from contract.release.layout import MASK_ROLE
from contract.release.tables import ERROR, WARNING, Problem, ReleaseTable, Row, read_table

_PATHS: Final = ("ct", "pet", "mask", "planning_ct", "dose")
_Patient = Annotated[
    Patient,
    PlainValidator(lambda value: value if isinstance(value, Patient) else Patient.from_json(value)),
    PlainSerializer(Patient.as_json),
]

MAX_DAYS: Final = 50 * 366
_EVENT: Final = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True}
# A stage such as T4a, cN2b, 2.0 or MX: clinical (c), pathological (p) or after treatment (y), and with a sub-stage.
_STAGE: Final = re.compile(r"[cpy]*([tnm])?\s*([0-4]|x)(?:\.0*)?\s*(?:[a-d][1-3]?)?", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")

Values = dict[str, Any]
CellReader = Callable[[str], Any]


@dataclass(frozen=True)
class ReleaseCase:
    """One training patient, as in `cases.json`; a file that does not exist is None.

    Attributes:
        patient_id: ID of the patient.
        centre: Centre in the table, or else the first part of the ID.
        ct: CT; in an edition of MR the scan with the mask's grid.
        pet: PET; None in an edition of MR.
        mask: Reference mask.
        patient: Clinical variables.
        outcomes: Values of the columns of the edition's answers: days, True for an event, a class. A missing value is
            absent.
        planning_ct: Planning CT.
        dose: Planned dose.
        suv_factor: Factor from Bq/ml to SUV.
        channels: Channels of the networks (`Algorithm.channels`).
        registered: Images and masks of an earlier visit by the input's name, in an edition of MR.
        release: Folder of `--release`, which contains the files. `cases.json` has paths relative to this folder,
            because the folder may be copied or moved.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    patient_id: str
    centre: str
    ct: Path
    pet: Path | None
    mask: Path | None
    patient: _Patient
    outcomes: Mapping[str, bool | float | int | str] = field(default_factory=dict)
    planning_ct: Path | None = None
    dose: Path | None = None
    suv_factor: float | None = None
    channels: tuple[str, ...] = CT_AND_PET
    registered: Mapping[str, Path] = field(default_factory=dict)
    release: Annotated[Path, Field(exclude=True)] = Path()

    @property
    def is_mr(self) -> bool:
        """Return whether the edition is for MR, without CT and PET."""
        return self.channels != CT_AND_PET

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the images and masks that the networks see."""
        return tuple(path for path in (self.ct, self.pet, *self.registered.values()) if path is not None)

    def has_outcome(self, answer: AnswerSpec) -> bool:
        """Return whether every column of a risk or class is known for this patient."""
        return all(column in self.outcomes for column in answer.columns.values())

    def get_outcome(self, answer: AnswerSpec) -> Any:
        """Return the event of a risk or the value of a class; None if it is missing."""
        return self.outcomes.get(answer.columns["event" if answer.kind == "risk" else "class"])

    def as_json(self) -> dict[str, Any]:
        """Return the record in `cases.json`."""
        content: dict[str, Any] = _Cases(cases=(self.with_paths(self.make_relative),)).model_dump(mode="json")["cases"][
            0
        ]
        return content

    def with_paths(self, convert: Callable[[Path], Path]) -> ReleaseCase:
        """Return the patient with each path converted."""
        paths: dict[str, Any] = {
            name: None if (path := getattr(self, name)) is None else convert(path) for name in _PATHS
        }
        return replace(self, **paths, registered={name: convert(path) for name, path in self.registered.items()})

    def make_relative(self, path: Path) -> Path:
        """Return a path relative to the release; other paths stay as they are."""
        return path.relative_to(self.release) if path.is_relative_to(self.release) else path


class _Cases(Document):
    """Content of `cases.json`."""

    cases: tuple[ReleaseCase, ...]


def read_cases(work: WorkFolders) -> tuple[ReleaseCase, ...]:
    """Read the prepared patients, sorted by ID."""
    content = parse_document(work.read(work.cases_json), _Cases, work.cases_json.name)
    release = read_release_folder(work)
    return tuple(replace(case.with_paths(release.joinpath), release=release) for case in content.cases)


def write_cases(work: WorkFolders, cases: Sequence[ReleaseCase]) -> None:
    """Write `cases.json`."""
    write_json(work.cases_json, {"cases": [case.as_json() for case in cases]})


def image_path(raw: Path, case: ReleaseCase, channel: int) -> Path:
    """Return the path of a channel's prepared image: in `imagesTr`, or in `imagesTs` for a patient without a mask."""
    folder = "imagesTs" if case.mask is None else "imagesTr"
    return raw / folder / f"{case.patient_id}_{channel:04d}.nii.gz"


def image_paths(raw: Path, case: ReleaseCase) -> list[Path]:
    """Return the paths of the prepared images of all channels."""
    return [image_path(raw, case, number) for number in range(len(case.channels))]


def label_path(raw: Path, case: ReleaseCase) -> Path:
    """Return the path of the prepared reference mask on the network's grid."""
    return raw / "labelsTr" / f"{case.patient_id}.nii.gz"


def list_head_specs(edition: Edition) -> tuple[AnswerSpec, ...]:
    """List the risks and classes of an edition, in order."""
    return tuple(answer for algorithm in edition.algorithms for answer in algorithm.head_specs)


def event_key(answer: AnswerSpec) -> str:
    """Return the key of an outcome in records: the event's column in lower case, or the name of a class."""
    return answer.columns["event"].lower() if answer.kind == "risk" else answer.name


def count_outcomes(answer: AnswerSpec, cases: Sequence[ReleaseCase]) -> dict[str, int]:
    """Count the patients with a known outcome, and their events, or the patients of each class except the last."""
    outcomes = [case.get_outcome(answer) for case in cases if case.has_outcome(answer)]
    counts = {f"with_{answer.name}": len(outcomes)}
    if answer.kind == "risk":
        return counts | {f"{event_key(answer)}s": outcomes.count(True)}
    for value in answer.classes[:-1]:
        word = "negative" if value is False else str(value)
        counts[f"{answer.name}_{word}"] = outcomes.count(value)
    return counts


@dataclass(frozen=True)
class Release:
    """Every patient with a CT and a PET, or all MR images, sorted by ID, and the problems of folders and tables.

    Attributes:
        folder: Folder of `--release`.
        root: The same folder, or the folder above it that contains the table.
        cases: Patients, also patients with errors if they could be read.
        problems: Problems of folders and tables.
    """

    folder: Path
    root: Path
    cases: tuple[ReleaseCase, ...]
    problems: tuple[Problem, ...]


def read_release(root: Path, edition: Edition, allow_missing: Collection[str] = ()) -> Release:
    """Read all folders and tables of the release; no image is opened.

    The outcomes of the answers `allow_missing` may be absent from the tables.
    """
    folder, layout = root.absolute(), read_layout(root, edition)
    tables = {task: read_table(path, layout.name(path), edition) for task, path in layout.tables.items()}
    readable = {task: table for task, table in tables.items() if table.is_readable}
    values = {task: read_values(table, edition) for task, table in readable.items()}
    centres = _find_centres(layout, values, edition)
    problems = [*layout.problems, *find_unmatched_patients(layout, readable, centres), *find_missing_masks(layout)]
    problems += find_missing_outcomes(layout, readable, edition, allow_missing)
    cases = []
    for patient, folders in sorted(layout.patients.items()):
        rows = {task: task_values.get(patient, {}) for task, task_values in values.items()}
        merged, differences = _merge_values(patient, rows, tables)
        problems += differences
        case = _make_case(folders, merged, edition, centres.get(patient, ""))
        if case is not None:
            cases.append(replace(case, release=folder))
    for case in cases:
        if not case.centre and any(variable.name == CENTRE for variable in edition.clinical):
            file = layout.name(case.ct.parent)
            problems.append(Problem(ERROR, "no-centre", case.patient_id, file, "no centre", "<centre>-<number>"))
    for table in tables.values():
        problems += table.problems
    return Release(folder, layout.root, tuple(cases), tuple(problems))


def _merge_values(
    patient: str, rows: Mapping[str, Values], tables: Mapping[str, ReleaseTable]
) -> tuple[Values, list[Problem]]:
    """Merge the values of all tasks; if two values differ, the first is used and the case gets an error."""
    merged: Values = {}
    source: dict[str, str] = {}
    problems = []
    for task, values in rows.items():
        for column, value in values.items():
            if merged.setdefault(column, value) != value:
                difference = f"{column} {value}, but {merged[column]} in {tables[source[column]].file}"
                file = tables[task].file
                problems.append(Problem(ERROR, "values-differ", patient, file, difference, "the same in each task"))
            source.setdefault(column, task)
    return merged, problems


def _find_centres(layout: ReleaseFiles, values: Mapping[str, Mapping[str, Values]], edition: Edition) -> dict[str, str]:
    """Find the known centres of all patients of folders and tables; the first of two tables counts."""
    key = next((variable.key for variable in edition.clinical if variable.name == CENTRE), "")
    known: dict[str, str] = {}
    for rows in values.values():
        for patient, row in rows.items():
            if row.get(key) is not None:
                known.setdefault(patient, str(row[key]))
    return find_centres({*layout.patients, *(patient for rows in values.values() for patient in rows)}, known)


def _make_case(folders: PatientFolders, values: Values, edition: Edition, centre: str) -> ReleaseCase | None:
    algorithm = edition.algorithms[0]
    is_mr = algorithm.modality == MR
    scans = (algorithm.input_names[0], *algorithm.registered_inputs) if is_mr else ("CT", "PET")
    images = {role: path for role in scans if (path := folders.first(role)) is not None}
    if len(images) < len(scans):
        return None
    scan, *earlier_images = images.values()
    patient = Patient.from_json({variable.name: values.get(variable.key) for variable in edition.clinical})
    columns = [column for answer in list_head_specs(edition) for column in answer.columns.values()]
    return ReleaseCase(
        patient_id=folders.patient_id,
        centre=centre,
        ct=scan,
        pet=images.get("PET"),
        mask=folders.first(MASK_ROLE),
        patient=patient,
        outcomes={column: values[column] for column in columns if column in values},
        planning_ct=folders.first("planning CT"),
        dose=folders.first("dose"),
        channels=algorithm.channels,
        registered=dict(zip(algorithm.registered_inputs, earlier_images, strict=True)) if is_mr else {},
    )


class NotCountedError(Exception):
    """A known value is not a class of the answer, such as T0; `expected` names the classes."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def read_values(table: ReleaseTable, edition: Edition) -> dict[str, Values]:
    """Read the cells of each patient by canonical column; missing and impossible values are left out.

    Events become booleans, times become numbers of days, stages and classes become the edition's values, clinical
    variables become the values of their declaration. Impossible values, and values that are not a class, such as T0,
    are problems of the table.
    """
    readers = _make_readers(edition)
    values: dict[str, Values] = {}
    for patient, row in table.rows.items():
        values[patient] = {}
        for column, cell in row.items():
            try:
                value = readers[column](cell)
            except ImpossibleValueError as problem:
                actual = f"{column} {cell[:40]!r}{problem.suffix}"
                table.report(ERROR, "impossible-value", patient, actual, str(problem))
                continue
            except NotCountedError as problem:
                text = f"{column} {problem.value}: the patient counts for all other answers"
                table.report(WARNING, "not-counted", patient, text, problem.expected)
                continue
            if value is not None:
                values[patient][column] = value
        for algorithm in edition.algorithms:
            _check_follow_up(row, values[patient], patient, table, algorithm)
    return values


def _check_follow_up(row: Row, values: Values, patient: str, table: ReleaseTable, algorithm: Algorithm) -> None:
    """Report a time without event or an event without time.

    If the algorithm has other answers, the outcome counts as missing. Otherwise the patient's row is of no use, which
    is an error.
    """
    for answer in (answer for answer in algorithm.head_specs if answer.kind == "risk"):
        time, event = answer.columns["time"], answer.columns["event"]
        if (time in row) == (event in row):
            continue
        present, missing = (time, event) if time in row else (event, time)
        if missing not in table.columns:  # a missing column is reported once for the whole table
            values.pop(present, None)
            continue
        kind = "days-without-event" if present == time else "event-without-days"
        has_other_answers = len(algorithm.answers) > 1
        severity = WARNING if has_other_answers else ERROR
        text = f"{present} {row[present]} without {missing}" + (", counted as missing" if has_other_answers else "")
        table.report(severity, kind, patient, text, "both or neither")
        if has_other_answers:
            values.pop(present, None)


def _make_readers(edition: Edition) -> dict[str, CellReader]:
    """Make a reader for each column of the edition's tables."""
    readers: dict[str, CellReader] = {}
    for variable in edition.clinical:
        readers[variable.key] = (
            _make_clinical_stage_reader(variable.read) if variable.type == "stage" else variable.read
        )
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.head_specs):
        if answer.kind == "risk":
            readers[answer.columns["time"]] = _read_days
            readers[answer.columns["event"]] = _make_word_reader(_EVENT, "0 or 1")
        else:
            readers[answer.columns["class"]] = _make_class_reader(answer)
    return readers


def _make_clinical_stage_reader(read: CellReader) -> CellReader:
    """Make a reader of a stage in any spelling; an unknown stage (MX) is missing."""

    def read_stage(cell: str) -> Any:
        match = _STAGE.fullmatch(cell)
        if match is None:
            return read(cell)
        return None if match[2] in "xX" else read(f"{match[1] or ''}{match[2]}")

    return read_stage


def _make_class_reader(answer: AnswerSpec) -> CellReader:
    """Make a reader of a class by its value or a declared word.

    A stage may have other spellings, and an undeclared TX is missing.
    """
    words = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    expected = "0 or 1" if answer.classes == (False, True) else " or ".join(map(str, answer.classes))
    read = _make_word_reader(words, expected)
    has_stages = all(_STAGE.fullmatch(str(value)) for value in answer.classes)

    def read_class(cell: str) -> Any:
        match = _STAGE.fullmatch(cell) if has_stages else None
        text = cell if match is None else f"{match[1] or str(answer.classes[0])[0]}{match[2]}".upper()
        if text.upper() in answer.not_counted:
            raise NotCountedError(text.upper(), expected)
        return None if match is not None and text.endswith("X") else read(text)

    return read_class


def _make_word_reader(words: Mapping[str, Any], expected: str) -> CellReader:
    def read(cell: str) -> Any:
        number = _WHOLE_NUMBER.fullmatch(cell)
        word = number[1] if number else cell.lower()
        if word not in words:
            raise ImpossibleValueError(expected)
        return words[word]

    return read


def _read_days(cell: str) -> float:
    expected = f"0 to {MAX_DAYS} days"
    try:
        days = float(cell)
    except ValueError:
        raise ImpossibleValueError(expected) from None
    if not (math.isfinite(days) and 0 <= days <= MAX_DAYS):
        raise ImpossibleValueError(expected)
    return days
