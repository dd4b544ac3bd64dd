"""The reference: one mask for each case, or a table of targets. It alone decides which cases exist.

A reference that cannot be used is a GroundTruthError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.editions.clinical import centre_code, is_missing
from contract.errors import GroundTruthError
from contract.io.files import list_folder, utf8_path
from contract.io.tables import cell_meaning
from contract.patient import difference_of_ids, format_names
from contract.predictions import case_of
from contract.release.layout import csv_files
from evaluation.inputs.mask_files import describe_masks_nearby, list_masks
from evaluation.inputs.masks import BoundingBox
from evaluation.inputs.tables import (
    CENTRE_COLUMN,
    CENTRE_COLUMNS,
    ID_COLUMN,
    Table,
    interpret_class,
    parse_class,
    parse_flag,
    parse_number,
    read_table_with,
    with_decimal_points,
)

Target = TypeVar("Target")


@dataclass(frozen=True)
class Reference(Generic[Target]):
    """Targets by case, known centres, and bounding boxes inside which masks are compared.

    Cases `without_target`, and those whose class is `not_counted`, are not evaluated. `incomplete` says of some cases
    without a target which part of it the table has. `tables` are the CSV files that gave targets or centres.
    """

    targets: Mapping[str, Target]
    without_target: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()
    incomplete: Mapping[str, str] = field(default_factory=dict)
    centres: Mapping[str, str] = field(default_factory=dict)
    boxes: Mapping[str, BoundingBox] = field(default_factory=dict)
    tables: tuple[Path, ...] = ()

    @property
    def cases(self) -> frozenset[str]:
        """All cases, evaluated or not."""
        return frozenset((*self.targets, *self.without_target, *self.not_counted))

    def with_cases(self, cases: Collection[str]) -> Reference[Target]:
        """The reference with those of these cases that it lacks, as cases without a target."""
        return replace(self, without_target=tuple(sorted({*self.without_target, *(set(cases) - self.cases)})))


@dataclass(frozen=True)
class FollowUp:
    """Days to recurrence (`relapse`) or to the end of follow-up."""

    rfs_days: float
    relapse: bool


def read_mask_folder(folder: Path, centre_columns: Sequence[str] = CENTRE_COLUMNS) -> Reference[Path]:
    """The reference masks `<case>.mha`, `<case>.nii.gz` or `<case>.nii` in a folder, by case.

    Any other file but tables and notes is an error: it could be the reference of a case. A CSV file beside them with
    the column PatientID and one of `centre_columns` gives the centres.
    """
    if not folder.is_dir():
        raise GroundTruthError("ground truth", f"no folder {folder.name!r}", "the reference data in it")
    utf8_path(folder, GroundTruthError)
    masks: dict[str, Path] = {}
    files = list_masks(folder)
    if files.unread:
        found = f"found {format_names([path.name for path in files.unread], 5)}"
        expected = "masks <case>.mha, .nii.gz or .nii, beside tables and notes alone"
        raise GroundTruthError(f"ground truth {folder.name}", found, expected)
    for path in files.masks:
        case = case_of(path.name)
        if case in masks:
            raise GroundTruthError("ground truth", f"{masks[case].name} and {path.name}", "one mask a case")
        masks[case] = path
    if not masks:
        found = f"no image in it{describe_masks_nearby(folder)}"
        raise GroundTruthError(f"ground truth {folder.name}", found, "masks <case>.mha or .nii.gz")
    centres: dict[str, str] = {}
    tables: list[Path] = []
    for path in _tables(folder):
        table = read_table_with(path, {CENTRE_COLUMN: centre_columns}, GroundTruthError)
        if {ID_COLUMN, CENTRE_COLUMN} <= set(table.header):
            centres |= _centres_beside(masks, table, centres)
            tables.append(path)
    return Reference(dict(sorted(masks.items())), centres=centres, tables=tuple(tables))


def _tables(folder: Path) -> tuple[Path, ...]:
    """Return the CSV files of a folder. Raises OSError for a folder that cannot be read, in which none is found."""
    list_folder(folder)
    return csv_files(folder)


def _centres_beside(masks: Collection[str], table: Table, known: Mapping[str, str]) -> dict[str, str]:
    """The centres of a table beside the masks; `known` are those of other tables."""
    centres = _centres(table)
    if centres:
        check_common(table.name, centres, masks)
    for patient, centre in centres.items():
        if known.get(patient, centre) != centre:
            raise GroundTruthError(table.name, f"another centre of {patient} than in another table", "one centre")
    return centres


def check_common(what: str, names: Collection[str], cases: Collection[str]) -> None:
    """Raise GroundTruthError if none of the names is that of a case."""
    if not set(names).intersection(cases):
        expected = f"some of {format_names(sorted(cases))}{difference_of_ids(sorted(names), sorted(cases))}"
        found = f"found cases {format_names(sorted(names))}" if names else "found no case"
        raise GroundTruthError(what, found, expected)


def check_shared(cases_of: Mapping[str, Collection[str]]) -> None:
    """Raise GroundTruthError for a team or annotator that shares no case with any other one."""
    for name, cases in cases_of.items():
        others = {case for other, of_other in cases_of.items() if other != name for case in of_other}
        if others:
            check_common(name, cases, others)


def read_follow_up(
    source: Path, answer: AnswerSpec, centre_columns: Sequence[str] = CENTRE_COLUMNS
) -> Reference[FollowUp]:
    """Follow-up time in days and recurrence from the CSV file with PatientID and the answer's `columns`.

    `source` is the file or a folder that holds it; `centre_columns` spell the centre's column, which may be absent.
    """
    time, event = answer.columns["time"], answer.columns["event"]

    def parse(row: Mapping[str, str], where: str) -> FollowUp | None:
        days = parse_number(row[time], f"{where}: {time}", "days, 0 or more", GroundTruthError)
        relapse = parse_flag(row[event], f"{where}: {event}", GroundTruthError)
        if days is None or relapse is None:
            return None
        if days < 0:
            raise GroundTruthError(where, f"{time} is negative", "days, 0 or more")
        return FollowUp(days, relapse)

    return _read_targets(source, answer, parse, centre_columns)


def read_classes(
    source: Path, answer: AnswerSpec, centre_columns: Sequence[str] = CENTRE_COLUMNS
) -> Reference[ClassValue]:
    """The class of each patient from the CSV file with PatientID and the answer's column, as `read_follow_up`."""
    column = answer.columns["class"]

    def parse(row: Mapping[str, str], where: str) -> ClassValue | None:
        return parse_class(row[column], answer, f"{where}: {column}", GroundTruthError)

    def counts(row: Mapping[str, str]) -> bool:
        return row[column].strip().upper() not in answer.not_counted

    return _read_targets(source, answer, parse, centre_columns, counts)


def _read_targets(
    source: Path,
    answer: AnswerSpec,
    parse: Callable[[Mapping[str, str], str], Target | None],
    centre_columns: Sequence[str],
    counts: Callable[[Mapping[str, str]], bool] = lambda _: True,
) -> Reference[Target]:
    columns = [answer.columns[role] for role in ("event", "time", "class") if role in answer.columns]
    table = _table_with(answer, columns, centre_columns, source)
    table = with_decimal_points(table, columns, GroundTruthError)
    targets: dict[str, Target] = {}
    without: set[str] = set()
    not_counted: set[str] = set()
    incomplete: dict[str, str] = {}
    for index, row in enumerate(table.rows):
        case, where = row[ID_COLUMN].strip(), table.where(index)
        if not case:
            raise GroundTruthError(where, f"no {ID_COLUMN}", "the patient's identifier")
        if case in targets or case in without | not_counted:
            raise GroundTruthError(where, f"{case} appears twice", "each patient once")
        target = parse(row, where) if counts(row) else None
        if target is not None:
            targets[case] = target
        elif counts(row):
            without.add(case)
            present = [column for column in columns if not is_missing(row[column])]
            absent = [column for column in columns if is_missing(row[column])]
            incomplete |= {case: f"{' and '.join(present)} without {' and '.join(absent)}"} if present else {}
        else:
            not_counted.add(case)
    if not targets:
        raise GroundTruthError(table.name, f"no patient with {' and '.join(columns)}", "at least one")
    return Reference(
        dict(sorted(targets.items())),
        tuple(sorted(without)),
        tuple(sorted(not_counted)),
        incomplete,
        _centres(table),
        tables=(source / table.name if source.is_dir() else source,),
    )


def _table_with(answer: AnswerSpec, columns: Sequence[str], centre_columns: Sequence[str], source: Path) -> Table:
    """Find and read the table with the answer's `columns`, in a spelling of the edition."""

    def read(path: Path) -> Table:
        return read_reference_table(path, [answer], centre_columns)

    columns = [ID_COLUMN, *columns]
    wanted = f"expected one CSV file with the columns {', '.join(columns)}"
    if not source.is_dir():
        table = read(source)
        if not set(columns) <= set(table.header):
            raise GroundTruthError(table.name, f"columns {', '.join(table.header)[:200]}; {wanted}")
        return table
    tables = map(read, _tables(source))
    matching = [table for table in tables if set(columns) <= set(table.header)]
    if len(matching) != 1:
        names = ", ".join(table.name for table in matching) or "none"
        raise GroundTruthError("ground truth", f"found {names}, {wanted}")
    return matching[0]


def read_reference_table(path: Path, answers: Sequence[AnswerSpec], centre_columns: Sequence[str]) -> Table:
    """Read patients, centres and the answers' columns of a reference under the names of the edition.

    All spellings of a class mean the same. Those of a time are other outcomes, such as PFS beside RFS, and count where
    the table has no column of the name itself.
    """
    spellings: dict[str, Sequence[str]] = {CENTRE_COLUMN: centre_columns}
    aliases: dict[str, Sequence[str]] = {}
    for answer in answers:
        of_class = answer.kind == "class"
        spellings |= answer.column_aliases if of_class else dict.fromkeys(answer.column_aliases, ())
        aliases |= {} if of_class else answer.column_aliases
    classes = [answer for answer in answers if answer.kind == "class"]

    def meaning(text: str) -> object:
        return interpret_class(text, classes[0]) if len(classes) == 1 else cell_meaning(text)

    return read_table_with(path, spellings, GroundTruthError, aliases=aliases, meaning=meaning)


def _centres(table: Table) -> dict[str, str]:
    """The centre of each patient for whom the table gives one."""
    if CENTRE_COLUMN not in table.header:
        return {}
    known = [row for row in table.rows if row[CENTRE_COLUMN].strip()]
    return {row[ID_COLUMN].strip(): centre_code(row[CENTRE_COLUMN]) for row in known}
