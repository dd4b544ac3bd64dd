"""Predictions in plain files instead of the platform's layout: a folder of masks, a table of risks or classes, or both.

Several answers lie in one folder: a mask for each case, and one CSV file with all other answers. A folder or table that
cannot be used is a PredictionError; a fault of one mask or row becomes the problem of its case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from contract.editions import Answer
from contract.editions.clinical import normalised_key
from contract.errors import Finding, GroundTruthError, PredictionError
from contract.files import utf8_path
from contract.images.volumes import list_images
from contract.patient import difference_of_ids, listed
from contract.platform import PREDICTIONS_JSON
from contract.predictions import case_of
from evaluation.inputs.masks import BoundingBox
from evaluation.inputs.submission import (
    NothingMatchedError,
    PredictedClass,
    Submission,
    SubmittedAnswer,
    matched,
    unusable,
)
from evaluation.inputs.tables import ID_COLUMN, class_value, number, read_table, read_table_with

RISK_COLUMN: Final = "risk"
PROBABILITY_COLUMN: Final = "probability"
_SHARE: Final = "a number from 0 to 1"
BOX_COLUMNS: Final = ("x1", "x2", "y1", "y2", "z1", "z2")


def read_mask_files(folder: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    """Match the masks `<case>.mha` or `<case>.nii.gz` of a folder to the cases of the ground truth."""
    if not folder.is_dir():
        raise PredictionError(folder.name, "no such folder", "one mask a case, <case>.mha or <case>.nii.gz")
    utf8_path(folder, PredictionError)  # no fault of a case
    paths_of: dict[str, list[Path]] = {}
    for path in list_images(folder):
        paths_of.setdefault(case_of(path.name), []).append(path)
    unknown = set(paths_of) - set(cases) - set(not_evaluated)
    try:
        return matched(paths_of, cases, unknown, SubmittedAnswer, what=folder.resolve().name, plural="masks")
    except NothingMatchedError as problem:
        found = f"{problem.found}{_elsewhere(folder, cases)}"
        raise NothingMatchedError(problem.what, found, problem.expected) from None


def _elsewhere(folder: Path, cases: Collection[str]) -> str:
    """Where the predictions seem to be instead: in a folder of this one, or in the platform's layout."""
    if (folder / PREDICTIONS_JSON).is_file():
        return f", but {PREDICTIONS_JSON} (a submission in the platform's layout)"
    for below in sorted(path for path in folder.iterdir() if path.is_dir()):
        count = 0
        with suppress(OSError):  # a folder without permission
            count = len({case_of(path.name) for path in list_images(below)} & set(cases))
        if count:
            return f", but {count} in {below.name}/"
    return ""


def value_columns(answer: Answer) -> tuple[str, ...]:
    """Spellings of the column that holds a risk or class; a time must not stand under `risk`."""
    title = answer.socket.title
    if answer.kind == "class":
        names = [answer.name, title, answer.columns["class"], *answer.aliases.get("class", ())]
    else:
        names = [*([RISK_COLUMN] if answer.direction == "risk" else []), title, answer.name, answer.columns["time"]]
        names += answer.aliases.get("time", ())
    distinct: dict[str, str] = {}
    for name in names:
        distinct.setdefault(normalised_key(name), name)
    return tuple(distinct.values())


def read_risk_table(path: Path, answer: Answer, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    """Risks from a CSV file with the column `PatientID` and one of `value_columns`."""
    spellings = value_columns(answer)
    column = spellings[0]

    def parse(row: Mapping[str, str]) -> float | None:
        return number(row[column], column, "a finite number", PredictionError)

    return _read_values(path, spellings, parse, cases, not_evaluated)


def read_class_table(path: Path, answer: Answer, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    """Classes from a CSV file with the columns `PatientID`, one of `value_columns`, and `probability`.

    The probability, of the second of two classes, is optional as a column and in each row.
    """
    spellings = value_columns(answer)
    column, optional = spellings[0], (PROBABILITY_COLUMN,) if answer.is_binary else ()

    def parse(row: Mapping[str, str]) -> PredictedClass | None:
        value = class_value(row[column], answer, column, PredictionError)
        probability = _share(row.get(PROBABILITY_COLUMN, ""), PROBABILITY_COLUMN) if answer.is_binary else None
        return None if value is None else PredictedClass(value, probability)

    return _read_values(path, spellings, parse, cases, not_evaluated, optional)


def read_share_table(path: Path, column: str, cases: Collection[str]) -> Submission:
    """Numbers from 0 to 1 from a CSV file with the columns `PatientID` and `column`; an empty field is missing."""
    return _read_values(path, (column,), lambda row: _share(row[column], column), cases, (), may_be_empty=True)


def _share(text: str, column: str) -> float | None:
    value = number(text, column, _SHARE, PredictionError)
    if value is not None and not 0 <= value <= 1:
        raise PredictionError(f"{column} {value:g}, expected {_SHARE}")
    return value


def _read_values(
    path: Path,
    spellings: Sequence[str],
    parse: Callable[[Mapping[str, str]], float | PredictedClass | None],
    cases: Collection[str],
    not_evaluated: Collection[str],
    optional: Collection[str] = (),
    *,
    may_be_empty: bool = False,
) -> Submission:
    """One value for each case; unless the column may be empty, any row of a case, with or without a target, has one."""
    column = spellings[0]
    table = read_table_with(path, {column: spellings, **dict.fromkeys(optional, ())}, PredictionError)
    if not {ID_COLUMN, column} <= set(table.header):
        wanted = " or ".join(spellings)
        raise PredictionError(table.name, f"columns {', '.join(table.header)[:200]}; expected {ID_COLUMN}, {wanted}")
    rows_of: dict[str, list[int]] = {}
    for index, row in enumerate(table.rows):
        rows_of.setdefault(row[ID_COLUMN].strip(), []).append(index)

    def answer(case: str, row: int) -> SubmittedAnswer:
        if row in table.faults:
            return unusable(case, f"{table.where(row)}: {table.faults[row]}")
        try:
            value = parse(table.rows[row])
        except PredictionError as problem:
            return unusable(case, f"{table.where(row)}: {problem.message}")
        return SubmittedAnswer(case, None, None if value is not None else f"no {column}", value=value)

    unknown = set(rows_of) - set(cases) - set(not_evaluated)
    submission = matched(rows_of, cases, unknown, answer, what=table.name, plural="rows")
    others = (answer(case, row) for case in not_evaluated for row in rows_of.get(case, ()))
    if cases and not may_be_empty and not any(one.tried for one in chain(submission.answers, others)):
        raise NothingMatchedError(table.name, f"found no {column} in their rows", f"{column} of the {len(cases)} cases")
    return submission


def read_bounding_boxes(path: Path, cases: Collection[str]) -> dict[str, BoundingBox]:
    """A box for every case, from a CSV file with the columns `PatientID` and x1, x2, y1, y2, z1, z2 in LPS mm."""
    table = read_table(path, GroundTruthError)
    if not {ID_COLUMN, *BOX_COLUMNS} <= set(table.header):
        raise GroundTruthError(table.name, f"expected the columns {ID_COLUMN}, {', '.join(BOX_COLUMNS)}")
    boxes: dict[str, BoundingBox] = {}
    for index, row in enumerate(table.rows):
        case = row[ID_COLUMN].strip()
        if case in boxes:
            raise GroundTruthError(f"{table.where(index)}", f"{case} stands twice", "each patient once")
        boxes[case] = _box(row, table.where(index))
    absent = sorted(set(cases) - set(boxes))
    if absent:
        difference = difference_of_ids(sorted(set(boxes) - set(cases)), absent)
        raise GroundTruthError(table.name, f"no bounding box of {listed(absent, 5)}", f"one a case{difference}")
    return boxes


def _box(row: Mapping[str, str], where: str) -> BoundingBox:
    values = {}
    for column in BOX_COLUMNS:
        value = number(row[column], f"{where}: {column}", "a position in mm", GroundTruthError)
        if value is None:
            raise GroundTruthError(where, f"no {column}", "a position in mm")
        values[column] = value
    low = (values["x1"], values["y1"], values["z1"])
    high = (values["x2"], values["y2"], values["z2"])
    if not all(first < second for first, second in zip(low, high, strict=True)):
        raise GroundTruthError(where, f"a box from {low} to {high}", "each first corner below the second")
    return BoundingBox(low, high)


def find_table(folder: Path, answers: Sequence[Answer]) -> tuple[Path, tuple[Finding, ...]]:
    """The CSV file with the risks and classes among `answers`, and a finding if it has further columns."""
    columns = [ID_COLUMN, *(answer.columns["class" if answer.kind == "class" else "time"] for answer in answers)]
    wanted = f"one CSV file with the columns {', '.join(columns)}"
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise PredictionError(folder.name, f"found {what}", f"a folder with the masks and {wanted}")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".csv" and path.name[0] != ".")
    if len(paths) != 1:
        names = " and ".join(path.name for path in paths[:5]) or "no CSV file"
        raise PredictionError("predictions", f"found {names}", wanted)
    return paths[0], _further_columns(paths[0], answers, columns)


def _further_columns(path: Path, answers: Sequence[Answer], columns: Sequence[str]) -> tuple[Finding, ...]:
    optional = [PROBABILITY_COLUMN] if any(answer.is_binary for answer in answers) else []
    spellings = [ID_COLUMN, *optional, *(name for answer in answers for name in value_columns(answer))]
    known = {*map(normalised_key, spellings)}
    further = [name for name in read_table(path, PredictionError).header if normalised_key(name) not in known]
    if not further:
        return ()
    found = f"columns {', '.join(further)[:200]}"
    return (Finding(path.name, found, f"only {', '.join(columns)}", "they are ignored"),)
