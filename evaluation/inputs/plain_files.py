"""Predictions in plain files instead of the platform's layout: a folder of masks, a table of risks or classes, or both.

Several answers are in one folder: a mask for each case, and one CSV file with all other answers. A folder or table that
cannot be used is a PredictionError; an error in one mask or row affects only its case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from contract.editions import AnswerSpec
from contract.editions.clinical import normalise_key
from contract.errors import Finding, GroundTruthError, PredictionError
from contract.images.volumes import find_image_suffix
from contract.io.files import format_utf8_path
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, PREDICTIONS_JSON, is_system_name
from contract.predictions import parse_case
from contract.release.tables import normalise_cell
from evaluation.inputs.mask_files import describe_masks_nearby, list_masks, match_unsupported_file
from evaluation.inputs.masks import BoundingBox
from evaluation.inputs.submission import (
    Entries,
    NothingMatchedError,
    PredictedClass,
    Submission,
    SubmittedAnswer,
    make_unusable_answer,
    match_entries,
)
from evaluation.inputs.tables import (
    ID_COLUMN,
    TABLE_SUFFIXES,
    interpret_class,
    parse_class,
    parse_number,
    read_table,
    read_table_with,
    with_decimal_points,
)

RISK_COLUMN: Final = "risk"
PREDICTION_COLUMN: Final = "Prediction"
PROBABILITY_COLUMN: Final = "probability"
_FRACTION: Final = "a number from 0 to 1"
BOX_COLUMNS: Final = ("x1", "x2", "y1", "y2", "z1", "z2")


def read_mask_files(folder: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    """Match the masks `<case>.mha`, `.nii.gz` or `.nii` of a folder to the cases of the ground truth.

    A file of another format, such as `<case>.nrrd`, is an unusable answer to its case.
    """
    if not folder.is_dir():
        raise PredictionError(folder.name, "no such folder", "one mask per case, <case>.mha or <case>.nii.gz")
    format_utf8_path(folder, PredictionError)  # A wrong path is not a problem of a case.
    paths_of: dict[str, list[Path]] = {}
    files = list_masks(folder)
    for path in files.masks:
        paths_of.setdefault(parse_case(path.name), []).append(path)
    for path in files.unsupported:
        case = match_unsupported_file(path, {*cases, *not_evaluated})
        if case:
            paths_of.setdefault(case, []).append(path)
    entries = Entries(paths_of, set(paths_of) - set(cases) - set(not_evaluated), folder.resolve().name, "masks")
    try:
        return match_entries(entries, cases, _make_mask_answer)
    except NothingMatchedError as problem:
        message = f"{problem.found}{_describe_place(folder, cases)}"
        raise NothingMatchedError(problem.what, message, problem.expected) from None


def _make_mask_answer(case: str, path: Path) -> SubmittedAnswer:
    if find_image_suffix(path, ONE_FILE_SUFFIXES) is None:
        return make_unusable_answer(
            case, f"{path.name} is in an unsupported format, expected {', '.join(ONE_FILE_SUFFIXES)}"
        )
    return SubmittedAnswer(case, path)


def _describe_place(folder: Path, cases: Collection[str]) -> str:
    """Return where the predictions seem to be: in a subfolder, or in the platform's layout."""
    if (folder / PREDICTIONS_JSON).is_file():
        return f", but {PREDICTIONS_JSON} (a submission in the platform's layout)"
    return describe_masks_nearby(folder, cases)


def list_value_columns(answer: AnswerSpec, direction: str | None = None) -> tuple[str, ...]:
    """Return the spellings of the column with an answer's risk or class.

    A column of risks must not have the name of a time, such as `RFS`, and a column of times not the name `risk`. The
    organisers of 2021, 2022 and 2025 ask for the last spelling. A table may have several of these columns if their
    values are equal.

    Args:
        answer: Declaration of the answer.
        direction: "risk" or "time"; None takes the answer's direction.
    """
    if answer.kind == "class":
        names = [answer.name, answer.socket.title, answer.columns["class"], *answer.aliases.get("class", ())]
    elif (direction or answer.direction) == "risk":
        names = [RISK_COLUMN]
    else:
        names = [*list_time_columns(answer)]
    names.append(PREDICTION_COLUMN)
    distinct: dict[str, str] = {}
    for name in names:
        distinct.setdefault(normalise_key(name), name)
    return tuple(distinct.values())


def list_time_columns(answer: AnswerSpec) -> tuple[str, ...]:
    """Return the spellings of a column of times to recurrence."""
    return (answer.socket.title, answer.name, answer.columns["time"], *answer.aliases.get("time", ()))


def read_risk_table(
    path: Path, answer: AnswerSpec, direction: str, cases: Collection[str], not_evaluated: Collection[str]
) -> Submission:
    """Read risks, or times if `direction` is "time", from a table with `PatientID` and one of `list_value_columns`."""
    spellings = list_value_columns(answer, direction)
    column = spellings[0]
    if direction == "risk":
        _refuse_times(path, answer, spellings)

    def parse(row: Mapping[str, str]) -> float | None:
        return parse_number(row[column], column, "a finite number", PredictionError)

    return _read_values(_ValueColumn(path, spellings, parse), cases, not_evaluated)


def _refuse_times(path: Path, answer: AnswerSpec, spellings: Sequence[str]) -> None:
    """Raise PredictionError for a table with times and without risks; its C-index would have the wrong direction."""
    keys = {normalise_key(name): name for name in read_table(path, PredictionError, ()).header}
    times = [keys[key] for key in map(normalise_key, list_time_columns(answer)) if key in keys]
    if times and not keys.keys() & set(map(normalise_key, spellings)):
        raise PredictionError(
            path.name,
            f"column {times[0]}, a time, where a risk is scored",
            f"a column {' or '.join(spellings)}, higher for earlier recurrence, or evaluate --option direction=time",
        )


def read_class_table(
    path: Path, answer: AnswerSpec, cases: Collection[str], not_evaluated: Collection[str]
) -> Submission:
    """Read classes from a CSV file with the columns `PatientID`, one of `list_value_columns`, and `probability`.

    The probability of the second of two classes is optional, as a column and in each row. If a probability is unusable,
    the whole column is ignored with a finding, and the classes are still used.
    """
    spellings = list_value_columns(answer)
    column = spellings[0]

    def parse(row: Mapping[str, str]) -> PredictedClass | None:
        value = parse_class(row[column], answer, column, PredictionError)
        return None if value is None else PredictedClass(value)

    def meaning(text: str) -> object:
        return interpret_class(text, answer)

    submission = _read_values(_ValueColumn(path, spellings, parse, meaning), cases, not_evaluated)
    return _add_probabilities(submission, path) if answer.is_binary else submission


def _add_probabilities(submission: Submission, path: Path) -> Submission:
    """Add the probabilities of a table to its classes; if a probability is unusable, add a finding instead."""
    try:
        probability_of = _read_probabilities(path)
    except PredictionError as problem:
        finding = Finding(problem.message, "", action=f"the column {PROBABILITY_COLUMN} is not used")
        return replace(submission, findings=(*submission.findings, finding))
    answers = [
        replace(answer, value=replace(answer.value, probability=probability_of.get(answer.case)))
        if isinstance(answer.value, PredictedClass)
        else answer
        for answer in submission.answers
    ]
    return replace(submission, answers=tuple(answers))


def _read_probabilities(path: Path) -> dict[str, float | None]:
    """Read the optional column of probabilities by patient; raise PredictionError for an unusable probability."""
    table = read_table_with(path, {PROBABILITY_COLUMN: ()}, PredictionError)
    if PROBABILITY_COLUMN not in table.header:
        return {}
    table = with_decimal_points(table, {PROBABILITY_COLUMN}, PredictionError)
    return {
        row[ID_COLUMN].strip(): _parse_fraction(row[PROBABILITY_COLUMN], f"{table.locate(index)}: {PROBABILITY_COLUMN}")
        for index, row in enumerate(table.rows)
        if index not in table.faults
    }


def read_fraction_table(path: Path, column: str, cases: Collection[str]) -> Submission:
    """Read numbers from 0 to 1 from a CSV file with the columns `PatientID` and `column`; an empty cell is missing."""

    def parse(row: Mapping[str, str]) -> float | None:
        return _parse_fraction(row[column], column)

    return _read_values(_ValueColumn(path, (column,), parse, may_be_empty=True), cases, ())


def _parse_fraction(text: str, column: str) -> float | None:
    value = parse_number(text, column, _FRACTION, PredictionError)
    if value is not None and not 0 <= value <= 1:
        raise PredictionError(f"{column} {value:g}, expected {_FRACTION}")
    return value


@dataclass(frozen=True)
class _ValueColumn:
    """Column of a table with a value for each case.

    Attributes:
        path: Table.
        spellings: Names that the column may have; `parse` finds the cell under the first name.
        parse: Returns the value of a row; None if it is missing.
        meaning: Function that interprets a cell; two columns agree if the interpretations of their cells are equal.
        may_be_empty: Whether all values may be missing.
    """

    path: Path
    spellings: Sequence[str]
    parse: Callable[[Mapping[str, str]], float | PredictedClass | None]
    meaning: Callable[[str], object] = normalise_cell
    may_be_empty: bool = False


def _read_values(source: _ValueColumn, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    """Read one value for each case.

    Raises:
        PredictionError: The table cannot be used.
        NothingMatchedError: No row belongs to a case, or no row of a case has a usable value.
    """
    column = source.spellings[0]
    table = read_table_with(source.path, {column: source.spellings}, PredictionError, meaning=source.meaning)
    table = with_decimal_points(table, {column}, PredictionError)
    if not {ID_COLUMN, column} <= set(table.header):
        expected = f"{ID_COLUMN}, {' or '.join(source.spellings)}"
        raise PredictionError(table.name, f"columns {', '.join(table.header)[:200]}; expected {expected}")
    rows_of: dict[str, list[int]] = {}
    for index, row in enumerate(table.rows):
        rows_of.setdefault(row[ID_COLUMN].strip(), []).append(index)

    def make_answer(case: str, row: int) -> SubmittedAnswer:
        if row in table.faults:
            return make_unusable_answer(case, f"{table.locate(row)}: {table.faults[row]}")
        try:
            value = source.parse(table.rows[row])
        except PredictionError as problem:
            return make_unusable_answer(case, f"{table.locate(row)}: {problem.message}")
        return SubmittedAnswer(case, None, None if value is not None else f"no {column}", value=value)

    entries = Entries(rows_of, set(rows_of) - set(cases) - set(not_evaluated), table.name, "rows")
    submission = match_entries(entries, cases, make_answer)
    if cases and not source.may_be_empty:
        # Rows of cases without a target count, too.
        more_answers = [make_answer(case, row) for case in not_evaluated for row in rows_of.get(case, ())]
        _require_values(table.name, column, [*submission.answers, *more_answers])
    return submission


def _require_values(name: str, column: str, answers: Sequence[SubmittedAnswer]) -> None:
    """Raise NothingMatchedError if no row has a usable value: the table is wrong, and a low score would mislead."""
    submitted = [answer for answer in answers if answer.is_submitted]
    if not submitted:
        raise NothingMatchedError(name, f"found no {column} in the rows of the cases", f"{column} for each case")
    if all(answer.failed for answer in submitted):
        message = f"no usable {column} in {len(submitted)} rows, such as {submitted[0].problem}"
        raise NothingMatchedError(name, message, f"a usable {column} for at least one case")


def read_bounding_boxes(path: Path, cases: Collection[str]) -> dict[str, BoundingBox]:
    """Read a box for every case from a CSV file with the columns `PatientID` and x1, x2, y1, y2, z1, z2 in LPS mm."""
    table = read_table(path, GroundTruthError, (ID_COLUMN, *BOX_COLUMNS))
    table = with_decimal_points(table, BOX_COLUMNS, GroundTruthError)
    if not {ID_COLUMN, *BOX_COLUMNS} <= set(table.header):
        problem = f"columns {', '.join(table.header)[:200]}"
        raise GroundTruthError(table.name, problem, f"the columns {ID_COLUMN}, {', '.join(BOX_COLUMNS)}")
    boxes: dict[str, BoundingBox] = {}
    for index, row in enumerate(table.rows):
        case = row[ID_COLUMN].strip()
        if case in boxes:
            raise GroundTruthError(table.locate(index), f"{case} appears twice", "each patient once")
        boxes[case] = _parse_box(row, table.locate(index))
    absent = sorted(set(cases) - set(boxes))
    if absent:
        difference = describe_id_difference(sorted(set(boxes) - set(cases)), absent)
        raise GroundTruthError(table.name, f"no bounding box of {format_names(absent, 5)}", f"one per case{difference}")
    return boxes


def _parse_box(row: Mapping[str, str], where: str) -> BoundingBox:
    values = {}
    for column in BOX_COLUMNS:
        value = parse_number(row[column], f"{where}: {column}", "a position in mm", GroundTruthError)
        if value is None:
            raise GroundTruthError(where, f"no {column}", "a position in mm")
        values[column] = value
    low = (values["x1"], values["y1"], values["z1"])
    high = (values["x2"], values["y2"], values["z2"])
    if not all(first < second for first, second in zip(low, high, strict=True)):
        raise GroundTruthError(where, f"a box from {low} to {high}", "each first corner below the second")
    return BoundingBox(low, high)


def find_table(folder: Path, answers: Sequence[AnswerSpec]) -> Path:
    """Find the table with the risks and classes of `answers`.

    Raises:
        PredictionError: The folder does not contain exactly one table.
    """
    expected = f"one CSV file with the columns {', '.join(_list_table_columns(answers))}"
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise PredictionError(folder.name, f"found {what}", f"a folder with the masks and {expected}")
    files = sorted(path for path in folder.iterdir() if not is_system_name(path.name))
    paths = [path for path in files if path.suffix.lower() in TABLE_SUFFIXES and path.name != PREDICTIONS_JSON]
    if len(paths) != 1:
        names = " and ".join(path.name for path in paths[:5]) or "no table"
        raise PredictionError("predictions", f"found {names}", expected)
    return paths[0]


def _list_table_columns(answers: Sequence[AnswerSpec]) -> list[str]:
    """List the usual columns of a table with these answers."""
    return [ID_COLUMN, *(answer.columns["class" if answer.kind == "class" else "time"] for answer in answers)]


def check_table_columns(path: Path, answers: Sequence[AnswerSpec]) -> tuple[Finding, ...]:
    """Return a finding if the table of several answers has further columns.

    Raises:
        PredictionError: A column may contain any of the answers.
    """
    header = read_table(path, PredictionError, ()).header
    columns = ", ".join(_list_table_columns(answers))
    for name in header:
        if normalise_key(name) == normalise_key(PREDICTION_COLUMN):
            expected = f"one CSV file with the columns {columns}"
            raise PredictionError(path.name, f"column {name} in a table of several answers", expected)
    further = _find_further_columns(header, answers)
    if not further:
        return ()
    return (Finding(path.name, f"columns {', '.join(further)[:200]}", f"only {columns}", "they are ignored"),)


def _find_further_columns(header: Sequence[str], answers: Sequence[AnswerSpec]) -> list[str]:
    optional = [PROBABILITY_COLUMN] if any(answer.is_binary for answer in answers) else []
    spellings = [ID_COLUMN, *optional, *(name for answer in answers for name in list_value_columns(answer))]
    known = {*map(normalise_key, spellings)}
    return [name for name in dict.fromkeys(header) if name.strip() and normalise_key(name) not in known]
