"""The reference: one mask for each case, or a table of targets. Only the reference decides which cases exist.

A reference that cannot be used is a GroundTruthError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.editions.clinical import is_missing, normalise_centre
from contract.errors import GroundTruthError
from contract.io.files import format_utf8_path, list_folder
from contract.patient import describe_id_difference, format_names
from contract.predictions import parse_case
from contract.release.layout import list_csv_files
from contract.release.tables import normalise_cell
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
    """Targets of the cases.

    Attributes:
        targets: The target of each case that is evaluated.
        without_target: Cases that are not evaluated because they have no target.
        not_counted: Cases that are not evaluated because their class is not counted.
        incomplete: Cases with only a part of a target, such as a time without an event, and a description of this part.
        centres: Known centres of cases.
        boxes: Bounding boxes; masks are compared only inside the box.
        tables: CSV files with targets or centres.
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
        """All cases, whether they are evaluated or not."""
        return frozenset((*self.targets, *self.without_target, *self.not_counted))

    def with_cases(self, cases: Collection[str]) -> Reference[Target]:
        """Return the reference with all of these cases; a new case has no target."""
        return replace(self, without_target=tuple(sorted({*self.without_target, *(set(cases) - self.cases)})))


@dataclass(frozen=True)
class FollowUp:
    """Days to recurrence (`relapse`) or to the end of follow-up."""

    rfs_days: float
    relapse: bool


def read_mask_folder(folder: Path, centre_columns: Sequence[str] = CENTRE_COLUMNS) -> Reference[Path]:
    """Find the reference masks `<case>.mha`, `<case>.nii.gz` or `<case>.nii` in a folder.

    The folder may have tables and notes; any other file is an error, because it could be the reference of a case. A CSV
    file with the column PatientID and one of `centre_columns` gives the centres.

    Raises:
        GroundTruthError: The folder does not exist, has no mask, two masks of a case or another file; or a table of
            centres is unusable, or contradicts itself or another table.
    """
    if not folder.is_dir():
        raise GroundTruthError("ground truth", f"no folder {folder.name!r}", "a folder with the reference data")
    format_utf8_path(folder, GroundTruthError)
    masks: dict[str, Path] = {}
    files = list_masks(folder)
    if files.unsupported:
        names = format_names([path.name for path in files.unsupported], 5)
        expected = "only masks <case>.mha, .nii.gz or .nii, tables and notes"
        raise GroundTruthError(f"ground truth {folder.name}", f"found {names}", expected)
    for path in files.masks:
        case = parse_case(path.name)
        if case in masks:
            raise GroundTruthError("ground truth", f"{masks[case].name} and {path.name}", "one mask per case")
        masks[case] = path
    if not masks:
        problem = f"no image in it{describe_masks_nearby(folder)}"
        raise GroundTruthError(f"ground truth {folder.name}", problem, "masks <case>.mha or .nii.gz")
    centres: dict[str, str] = {}
    tables: list[Path] = []
    for path in _list_tables(folder):
        table = read_table_with(path, {CENTRE_COLUMN: centre_columns}, GroundTruthError)
        if {ID_COLUMN, CENTRE_COLUMN} <= set(table.header):
            centres |= _read_centres_of_masks(masks, table, centres)
            tables.append(path)
    return Reference(dict(sorted(masks.items())), centres=centres, tables=tuple(tables))


def _list_tables(folder: Path) -> tuple[Path, ...]:
    """Return the CSV files of a folder; raise OSError if the folder cannot be read."""
    list_folder(folder)  # `list_csv_files` returns no file for such a folder.
    return list_csv_files(folder)


def _read_centres_of_masks(masks: Collection[str], table: Table, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the centres in a table of the masks' folder; `earlier` has the centres in the tables read before."""
    centres = _get_centres(table)
    if centres:
        check_case_names(table.name, centres, masks)
    for patient, centre in centres.items():
        if earlier.get(patient, centre) != centre:
            raise GroundTruthError(table.name, f"another centre of {patient} than in another table", "one centre")
    return centres


def check_case_names(what: str, names: Collection[str], cases: Collection[str]) -> None:
    """Raise GroundTruthError if no name belongs to a case."""
    if not set(names).intersection(cases):
        expected = f"some of {format_names(sorted(cases))}{describe_id_difference(sorted(names), sorted(cases))}"
        actual = f"found cases {format_names(sorted(names))}" if names else "found no case"
        raise GroundTruthError(what, actual, expected)


def check_cases_overlap(cases_of: Mapping[str, Collection[str]]) -> None:
    """Raise GroundTruthError for a team or annotator that shares no case with any other team or annotator."""
    for name, cases in cases_of.items():
        cases_of_others = set[str]().union(*(cases_of[other] for other in cases_of if other != name))
        if cases_of_others:
            check_case_names(name, cases, cases_of_others)


def read_follow_up(
    source: Path, answer: AnswerSpec, centre_columns: Sequence[str] = CENTRE_COLUMNS
) -> Reference[FollowUp]:
    """Read follow-up time in days and recurrence from the CSV file with PatientID and the answer's `columns`.

    Args:
        source: The file, or a folder that contains it.
        answer: Declaration of the answer.
        centre_columns: Spellings of the centre's column, which is optional.
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
    """Read the class of each patient from a CSV file with PatientID and the answer's column; see `read_follow_up`."""
    column = answer.columns["class"]

    def parse(row: Mapping[str, str], where: str) -> ClassValue | None:
        return parse_class(row[column], answer, f"{where}: {column}", GroundTruthError)

    def is_counted(row: Mapping[str, str]) -> bool:
        return row[column].strip().upper() not in answer.not_counted

    return _read_targets(source, answer, parse, centre_columns, is_counted)


def _read_targets(
    source: Path,
    answer: AnswerSpec,
    parse: Callable[[Mapping[str, str], str], Target | None],
    centre_columns: Sequence[str],
    is_counted: Callable[[Mapping[str, str]], bool] = lambda _: True,
) -> Reference[Target]:
    """Read the target of each patient.

    Args:
        source: Table, or a folder that contains it.
        answer: Declaration of the answer.
        parse: Function of a row and its location for messages; returns the target, None if it is missing.
        centre_columns: Spellings of the centre's column.
        is_counted: Returns whether the class of a row is counted.
    """
    columns = [answer.columns[role] for role in ("event", "time", "class") if role in answer.columns]
    table = _find_table(answer, columns, centre_columns, source)
    table = with_decimal_points(table, columns, GroundTruthError)
    targets: dict[str, Target] = {}
    without: set[str] = set()
    not_counted: set[str] = set()
    incomplete: dict[str, str] = {}
    for index, row in enumerate(table.rows):
        case = row[ID_COLUMN].strip()
        where = table.locate(index)
        if not case:
            raise GroundTruthError(where, f"no {ID_COLUMN}", "the patient's identifier")
        if case in targets or case in without | not_counted:
            raise GroundTruthError(where, f"{case} appears twice", "each patient once")
        if not is_counted(row):
            not_counted.add(case)
            continue
        target = parse(row, where)
        if target is not None:
            targets[case] = target
            continue
        without.add(case)
        present = [column for column in columns if not is_missing(row[column])]
        absent = [column for column in columns if is_missing(row[column])]
        if present:
            incomplete[case] = f"{' and '.join(present)} without {' and '.join(absent)}"
    if not targets:
        raise GroundTruthError(table.name, f"no patient with {' and '.join(columns)}", "at least one")
    return Reference(
        dict(sorted(targets.items())),
        tuple(sorted(without)),
        tuple(sorted(not_counted)),
        incomplete,
        _get_centres(table),
        tables=(source / table.name if source.is_dir() else source,),
    )


def _find_table(answer: AnswerSpec, columns: Sequence[str], centre_columns: Sequence[str], source: Path) -> Table:
    """Find and read the table with the answer's `columns`, in a spelling of the edition."""

    def read(path: Path) -> Table:
        return read_reference_table(path, [answer], centre_columns)

    columns = [ID_COLUMN, *columns]
    expected = f"expected one CSV file with the columns {', '.join(columns)}"
    if not source.is_dir():
        table = read(source)
        if not set(columns) <= set(table.header):
            raise GroundTruthError(table.name, f"columns {', '.join(table.header)[:200]}; {expected}")
        return table
    tables = map(read, _list_tables(source))
    matching = [table for table in tables if set(columns) <= set(table.header)]
    if len(matching) != 1:
        names = ", ".join(table.name for table in matching) or "none"
        raise GroundTruthError("ground truth", f"found {names}, {expected}")
    return matching[0]


def read_reference_table(path: Path, answers: Sequence[AnswerSpec], centre_columns: Sequence[str]) -> Table:
    """Read patients, centres and the answers' columns of a reference under the names of the edition.

    All spellings of a class mean the same. The spellings of a time are other outcomes, such as PFS for RFS; they count
    only if the table has no column with the name itself.
    """
    spellings: dict[str, Sequence[str]] = {CENTRE_COLUMN: centre_columns}
    aliases: dict[str, Sequence[str]] = {}
    for answer in answers:
        if answer.kind == "class":
            spellings |= answer.column_aliases
        else:
            spellings |= dict.fromkeys(answer.column_aliases, ())
            aliases |= answer.column_aliases
    classes = [answer for answer in answers if answer.kind == "class"]

    def meaning(text: str) -> object:
        return interpret_class(text, classes[0]) if len(classes) == 1 else normalise_cell(text)

    return read_table_with(path, spellings, GroundTruthError, aliases=aliases, meaning=meaning)


def _get_centres(table: Table) -> dict[str, str]:
    """Return the centre of each patient whose row has a centre; raise GroundTruthError for a patient with two."""
    if CENTRE_COLUMN not in table.header:
        return {}
    centre_of: dict[str, str] = {}
    for row in table.rows:
        if not is_missing(row[CENTRE_COLUMN]):
            patient, centre = row[ID_COLUMN].strip(), normalise_centre(row[CENTRE_COLUMN])
            if centre_of.setdefault(patient, centre) != centre:
                raise GroundTruthError(table.name, f"two centres of {patient}", "one centre")
    return centre_of
