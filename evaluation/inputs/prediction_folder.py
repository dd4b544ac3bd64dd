"""Predictions of several answers in one folder: a mask for each case, and one CSV file with all other answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contract.editions import Answer
from contract.editions.clinical import normalised_key
from contract.errors import Finding, PredictionError
from evaluation.inputs.plain_files import PROBABILITY_COLUMN, value_columns
from evaluation.inputs.tables import ID_COLUMN, read_table


def find_table(folder: Path, answers: Sequence[Answer]) -> tuple[Path, tuple[Finding, ...]]:
    """The CSV file with the risks and classes among `answers`, and a finding if it has further columns.

    Raises:
        PredictionError: no folder, no CSV file or several, or an unreadable one.
    """
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
