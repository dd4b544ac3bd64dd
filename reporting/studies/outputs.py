"""Shared by studies: named inputs on the command line, and results as JSON and CSV."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contract.documents import find_version
from contract.editions import Algorithm, AnswerSpec, load_edition
from contract.errors import GroundTruthError, HecktorError
from contract.io.files import csv_text, json_text, write_files, write_text
from contract.options import add_edition_options, find_algorithm
from evaluation.execution import DEATH, map_cases
from evaluation.results.documents import MetricFigures
from evaluation.results.metrics_json import aggregates
from evaluation.statistics.bootstrap import Estimate


class HasCase(Protocol):
    """An item of work on one case."""

    @property
    def case(self) -> str: ...


Value = TypeVar("Value")
Item = TypeVar("Item", bound=HasCase)
Row = TypeVar("Row")
Table = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StudyResult:
    """Results of a study as plain data, the lines of its table, and its summary for the screen.

    A number that is not finite becomes null in the JSON file; the table has infinity as `inf` and an absent value as
    an empty field. `files` are the names of files that the study has written itself.
    """

    content: Mapping[str, Any]
    table: Table
    summary: str
    files: tuple[str, ...] = ()

    def write(self, folder: Path, name: str) -> list[str]:
        """Write `<name>.csv` and `<name>.json`; return the names of all files."""
        contents: dict[str, str] = {}
        if self.table:
            contents[f"{name}.csv"] = _csv(self.table, for_people=True)
        about = {"study": name, "version": find_version("hecktor")}
        contents[f"{name}.json"] = json_text(_plain({**about, **self.content}))
        write_files({folder / name: text.encode() for name, text in contents.items()})
        return [*self.files, *contents]


def by_name(pairs: Sequence[tuple[str, Value]], what: str, at_least: int) -> dict[str, Value]:
    """The named values, in the order given; raises HecktorError for a repeated name or fewer than `at_least`."""
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"{what} {twice[0]!r} appears twice, expected each {what} once")
    if len(names) < at_least:
        raise HecktorError(f"{len(names)} {what}s, expected at least {at_least}")
    return dict(pairs)


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    """Add `--edition`, `--task` and `--answer`; read them with `find_answer`."""
    add_edition_options(parser)
    parser.add_argument("--answer", help="answer of a task with several, such as rfs or t_stage")


def find_answer(
    parser: argparse.ArgumentParser, options: argparse.Namespace, kinds: Sequence[str] = ("mask", "risk", "class")
) -> tuple[Algorithm, AnswerSpec]:
    """The task, and its answer of the given name or the only one of these kinds. An error names the possible ones."""
    task = find_algorithm(parser, load_edition(options.edition).algorithm, options.task)
    name = options.answer
    possible = {answer.name: answer for answer in task.answer_specs if answer.kind in kinds}
    if not possible:
        raise HecktorError(f"task {task.name}", f"no answer of kind {' or '.join(kinds)}", "a task with one")
    if name is None and len(possible) == 1:
        return task, next(iter(possible.values()))
    if name not in possible:
        found = f"found {name}" if name else f"task {task.name} has {len(possible)} answers"
        raise HecktorError("--answer", found, f"one of {', '.join(possible)}")
    return task, possible[name]


def measure_cases(work: Callable[[Item], Row], items: Sequence[Item], workers: int, doing: str) -> list[Row]:
    """Apply `work` to every case in order, see `map_cases`; `doing` completes "the process that".

    Raises GroundTruthError for a case that kills its process: no row can replace that of a reference.
    """

    def died(item: Item) -> Row:
        raise GroundTruthError(item.case, f"the process that {doing} ended ({DEATH})")

    return map_cases(work, items, workers, died)


def plain_figures(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """The figures of every metric as metrics.json has them."""
    return {name: figures.model_dump(exclude_unset=True) for name, figures in aggregates(estimates).items()}


def interval_text(figures: Mapping[str, Any]) -> str:
    """A value of `plain_figures` with its interval, for a line on the screen."""
    parts = MetricFigures(**figures).figures
    value, low, high = ("null" if figure is None else f"{figure:z.4f}" for figure in parts)
    return f"{value}  [{low}, {high}]"


def write_table(target: Path, table: Table) -> None:
    """Write lines as CSV, for `hecktor evaluate` to read: columns in the order of their first appearance."""
    write_text(target, _csv(table, for_people=False))


def _csv(table: Table, *, for_people: bool) -> str:
    return csv_text(list(dict.fromkeys(column for line in table for column in line)), table, for_people=for_people)


def _plain(value: Any) -> Any:
    """The value with null for NaN and infinities, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
