"""Read the challenge's release: one frozen record for each patient, and all problems of folders and tables.

Its folders, one for each task or one for all answers, hold `<ID>/<ID>__CT.nii.gz` and `<ID>/<ID>__PT.nii.gz`, the
mask `<ID>/<ID>.nii.gz`, and in Task 2 for some patients `<ID>__CTPlanning.nii.gz` and `<ID>__RTDOSE.nii.gz`. Each
folder's CSV file holds clinical variables and targets. A patient is identified by the ID across all folders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator

from baseline.preparation import release_of
from baseline.release.clinical import Values, read_values
from baseline.release.folders import (
    PatientFolders,
    ReleaseFiles,
    find_missing_outcomes,
    read_layout,
    unmatched,
    without_mask,
)
from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.editions import AnswerSpec, Edition
from contract.editions.clinical import CENTRE
from contract.editions.inputs import CT_AND_PET, MR
from contract.io.files import write_json
from contract.patient import Patient, find_centres
from contract.release.layout import MASK_ROLE
from contract.release.tables import ERROR, Problem, ReleaseTable, read_table

_PATHS: Final = ("ct", "pet", "mask", "planning_ct", "dose")
_Patient = Annotated[
    Patient,
    PlainValidator(lambda one: one if isinstance(one, Patient) else Patient.from_json(one)),
    PlainSerializer(Patient.as_json),
]


@dataclass(frozen=True)
class ReleaseCase:
    """One training patient, as in `cases.json`; a file that the release lacks is None.

    `outcomes` maps the columns of the edition's answers to their values: days, True for an event, a class; a missing
    one is absent. `centre` is the table's value, or else the first part of the ID. `suv_factor` turns a PET in
    Bq/ml into SUV. In an edition of MR `ct` is the scan with the mask's grid, `registered` holds the images and masks
    of an earlier visit by the input's name, and there is no PET; `channels` are the networks' (`Algorithm.channels`).
    `release` is the folder that was given with `--release`, below which the files lie; `cases.json` has their paths in
    it, since it may be copied or moved.
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
        """True for a patient of an edition of MR, without CT and PET."""
        return self.channels != CT_AND_PET

    @property
    def files(self) -> tuple[Path, ...]:
        """The images and masks that the networks see."""
        return tuple(path for path in (self.ct, self.pet, *self.registered.values()) if path is not None)

    def has(self, answer: AnswerSpec) -> bool:
        """True if every column of a risk or class is known for this patient."""
        return all(column in self.outcomes for column in answer.columns.values())

    def outcome(self, answer: AnswerSpec) -> Any:
        """Event of a risk or value of a class; None if it is missing."""
        return self.outcomes.get(answer.columns["event" if answer.kind == "risk" else "class"])

    def as_json(self) -> dict[str, Any]:
        """The record in `cases.json`."""
        content: dict[str, Any] = _Cases(cases=(self.moved(self.below),)).model_dump(mode="json")["cases"][0]
        return content

    def moved(self, place: Callable[[Path], Path]) -> ReleaseCase:
        """The patient with each file elsewhere."""
        paths: dict[str, Any] = {
            name: None if (path := getattr(self, name)) is None else place(path) for name in _PATHS
        }
        return replace(self, **paths, registered={name: place(path) for name, path in self.registered.items()})

    def below(self, path: Path) -> Path:
        """A file's path relative to the release."""
        return path.relative_to(self.release) if path.is_relative_to(self.release) else path


class _Cases(Document):
    """`cases.json`."""

    cases: tuple[ReleaseCase, ...]


def read_cases(work: WorkFolders) -> tuple[ReleaseCase, ...]:
    """The prepared patients, sorted by ID."""
    content, release = parse_document(work.read(work.cases_json), _Cases, work.cases_json.name), release_of(work)
    return tuple(replace(case.moved(release.joinpath), release=release) for case in content.cases)


def write_cases(work: WorkFolders, cases: Sequence[ReleaseCase]) -> None:
    """Write `cases.json`."""
    write_json(work.cases_json, {"cases": [case.as_json() for case in cases]})


def image_path(raw: Path, case: ReleaseCase, channel: int) -> Path:
    """A channel's prepared image, in nnU-Net's training images, or in `imagesTs` for a patient without a mask."""
    folder = "imagesTs" if case.mask is None else "imagesTr"
    return raw / folder / f"{case.patient_id}_{channel:04d}.nii.gz"


def image_paths(raw: Path, case: ReleaseCase) -> list[Path]:
    """The prepared images of all channels."""
    return [image_path(raw, case, number) for number in range(len(case.channels))]


def label_path(raw: Path, case: ReleaseCase) -> Path:
    """The prepared reference mask on the network's grid."""
    return raw / "labelsTr" / f"{case.patient_id}.nii.gz"


def head_answers(edition: Edition) -> tuple[AnswerSpec, ...]:
    """The risks and classes of an edition, in order."""
    return tuple(answer for algorithm in edition.algorithms for answer in algorithm.head_specs)


def event_key(answer: AnswerSpec) -> str:
    """Key of an outcome in our records: the event's column in small letters, or the name of a class."""
    return answer.columns["event"].lower() if answer.kind == "risk" else answer.name


def outcome_counts(answer: AnswerSpec, cases: Sequence[ReleaseCase]) -> dict[str, int]:
    """Patients with a known outcome, and of them those with the event, or with each class but the last."""
    known = [case.outcome(answer) for case in cases if case.has(answer)]
    if answer.kind == "risk":
        return {f"with_{answer.name}": len(known), f"{event_key(answer)}s": known.count(True)}
    words = {value: "negative" if value is False else str(value) for value in answer.classes[:-1]}
    return {f"with_{answer.name}": len(known)} | {
        f"{answer.name}_{word}": sum(value == one for one in known) for value, word in words.items()
    }


@dataclass(frozen=True)
class Release:
    """Every patient with a CT and a PET, or all MR images, sorted by ID, and the problems of folders and tables.

    `root` is the folder `given` with `--release`, or one above it that holds the table. `cases` includes patients with
    errors, as far as they could be read; `patients_with_errors` names them.
    """

    given: Path
    root: Path
    cases: tuple[ReleaseCase, ...]
    problems: tuple[Problem, ...]


def read_release(root: Path, edition: Edition, allow_missing: Collection[str] = ()) -> Release:
    """Read all folders and tables of the release; no image is opened.

    The tables may lack the outcomes of the answers `allow_missing`.
    """
    given, layout = root.absolute(), read_layout(root, edition)
    tables = {task: read_table(path, layout.name(path), edition) for task, path in layout.tables.items()}
    readable = {task: table for task, table in tables.items() if table.is_readable}
    values = {task: read_values(table, edition) for task, table in readable.items()}
    centres = _centres(layout, values, edition)
    problems = [*layout.problems, *unmatched(layout, readable, centres), *without_mask(layout)]
    problems += find_missing_outcomes(layout, readable, edition, allow_missing)
    cases = []
    for patient, folders in sorted(layout.patients.items()):
        rows = {task: of_task.get(patient, {}) for task, of_task in values.items()}
        merged, differing = _merged(patient, rows, tables)
        problems += differing
        case = _case(folders, merged, edition, centres.get(patient, ""))
        if case is not None:
            cases.append(replace(case, release=given))
    for case in cases:
        if not case.centre and any(variable.name == CENTRE for variable in edition.clinical):
            file = layout.name(case.ct.parent)
            problems.append(Problem(ERROR, "no-centre", case.patient_id, file, "no centre", "<centre>-<number>"))
    for table in tables.values():
        problems += table.problems
    return Release(given, layout.root, tuple(cases), tuple(problems))


def _merged(
    patient: str, rows: Mapping[str, Values], tables: Mapping[str, ReleaseTable]
) -> tuple[Values, list[Problem]]:
    """Values of all tasks; of two that disagree the first is used and the case gets an error."""
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


def _centres(layout: ReleaseFiles, values: Mapping[str, Mapping[str, Values]], edition: Edition) -> dict[str, str]:
    """The centres of all patients of folders and tables, as far as known; of two tables the first counts."""
    key = next((variable.key for variable in edition.clinical if variable.name == CENTRE), "")
    known: dict[str, str] = {}
    for rows in values.values():
        for patient, row in rows.items():
            if row.get(key) is not None:
                known.setdefault(patient, str(row[key]))
    return find_centres({*layout.patients, *(patient for rows in values.values() for patient in rows)}, known)


def _case(folders: PatientFolders, values: Values, edition: Edition, centre: str) -> ReleaseCase | None:
    algorithm = edition.algorithms[0]
    is_mr = algorithm.modality == MR
    scans = (algorithm.input_names[0], *algorithm.registered_inputs) if is_mr else ("CT", "PET")
    found = {role: path for role in scans if (path := folders.first(role)) is not None}
    if len(found) < len(scans):
        return None
    scan, *others = found.values()
    patient = Patient.from_json({variable.name: values.get(variable.key) for variable in edition.clinical})
    columns = [column for answer in head_answers(edition) for column in answer.columns.values()]
    return ReleaseCase(
        patient_id=folders.patient_id,
        centre=centre,
        ct=scan,
        pet=found.get("PET"),
        mask=folders.first(MASK_ROLE),
        patient=patient,
        outcomes={column: values[column] for column in columns if column in values},
        planning_ct=folders.first("planning CT"),
        dose=folders.first("dose"),
        channels=algorithm.channels,
        registered=dict(zip(algorithm.registered_inputs, others, strict=True)) if is_mr else {},
    )
