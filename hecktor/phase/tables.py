"""The tables of a reference, reduced to the columns by which a task is scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from contract.editions.clinical import CENTRE
from contract.errors import GroundTruthError
from contract.files import write_csv
from evaluation.editions.profile import EvaluationProfile, TaskProfile
from evaluation.inputs.tables import (
    CENTRE_COLUMN,
    ID_COLUMN,
    read_table,
    read_table_with,
    with_aliases,
    with_decimal_points,
)
from hecktor.phase.predictions import References
from rehearsal.jobs.cases import place


def pack_tables(
    profile: EvaluationProfile, task: TaskProfile, references: References, folder: Path
) -> dict[str, list[str]]:
    """Put each table into `folder` with the patients, their centres and the scored answers.

    Returns the columns that were left out, by the table's name.
    """
    spellings: dict[str, Iterable[str]] = {
        CENTRE_COLUMN: [name for one in profile.edition.clinical if one.name == CENTRE for name in one.spellings]
    }
    columns: dict[Path, dict[str, Iterable[str]]] = {}
    for name, reference in references.items():
        for path in reference.tables:
            columns.setdefault(path, {}).update(task.answers[name].answer.column_aliases)
    return {path.name: _packed(path, spellings, scored, folder) for path, scored in columns.items()}


def _packed(
    path: Path, centres: Mapping[str, Iterable[str]], scored: Mapping[str, Iterable[str]], folder: Path
) -> list[str]:
    aliases = {name: tuple(others) for name, others in {**centres, **scored}.items()}
    table = with_aliases(read_table_with(path, aliases, GroundTruthError), aliases, GroundTruthError)
    kept = [column for column in table.header if column in {ID_COLUMN, *aliases}]
    left_out = [
        column
        for column, name in zip(read_table(path, GroundTruthError).header, table.header, strict=True)
        if name not in kept
    ]
    if not left_out and path.suffix.lower() == ".csv":
        place(path, folder / path.name)
    else:
        rows = with_decimal_points(table, list(scored), GroundTruthError).rows
        write_csv(folder / f"{path.stem}.csv", kept, [{name: row[name] for name in kept} for row in rows])
    return left_out
