"""Inputs and outputs that studies share: named inputs on the command line, results as JSON and CSV."""

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
from contract.io.files import format_json, read_json, write_files, write_text
from contract.io.tables import format_csv
from contract.options import add_edition_and_task_options, select_algorithm
from evaluation.execution import DEATH, map_cases
from evaluation.results.documents import MetricFigures
from evaluation.results.metrics_json import make_aggregates
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
        """Write `<name>.csv` and `<name>.json`; return the names of all files of the study."""
        texts: dict[str, str] = {}
        if self.table:
            texts[f"{name}.csv"] = _format_table(self.table, for_people=True)
        content = {"study": name, "version": find_version("hecktor"), **self.content}
        texts[f"{name}.json"] = format_json(_replace_infinite(content))
        write_files({folder / file_name: text.encode() for file_name, text in texts.items()})
        return [*self.files, *texts]


def remove_earlier_result(folder: Path, name: str) -> None:
    """Remove `<name>.csv` and `<name>.json` of an earlier run of the study, so that a run that fails leaves neither."""
    path = folder / f"{name}.json"
    try:
        content = read_json(path)
    except HecktorError:
        return
    if isinstance(content, dict) and content.get("study") == name:
        path.with_suffix(".csv").unlink(missing_ok=True)
        path.unlink()


def collect_named_inputs(pairs: Sequence[tuple[str, Value]], noun: str, min_count: int) -> dict[str, Value]:
    """Return the inputs by name, in the order of the command line.

    Raises:
        HecktorError: A name is repeated, or there are fewer than `min_count` inputs. `noun` says what they are.
    """
    names = [name for name, _ in pairs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise HecktorError(f"{noun} {repeated[0]!r} appears twice, expected each {noun} once")
    if len(names) < min_count:
        raise HecktorError(f"{len(names)} {noun}s, expected at least {min_count}")
    return dict(pairs)


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    """Add `--edition`, `--task` and `--answer`; `find_answer` reads them."""
    add_edition_and_task_options(parser)
    parser.add_argument("--answer", help="answer of a task with several, such as rfs or t_stage")


def find_answer(
    parser: argparse.ArgumentParser, options: argparse.Namespace, kinds: Sequence[str] = ("mask", "risk", "class")
) -> tuple[Algorithm, AnswerSpec]:
    """Return the task of the options, and its answer that `--answer` names or its only answer of these kinds.

    Raises:
        HecktorError: There is no such answer, or several are possible; the message names them.
    """
    task = select_algorithm(parser, load_edition(options.edition).find_algorithm, options.task)
    name = options.answer
    answer_by_name = {answer.name: answer for answer in task.answers if answer.kind in kinds}
    if not answer_by_name:
        raise HecktorError(f"task {task.name}", f"no answer of kind {' or '.join(kinds)}", "a task with one")
    if name is None and len(answer_by_name) == 1:
        return task, next(iter(answer_by_name.values()))
    if name not in answer_by_name:
        actual = f"found {name}" if name else f"task {task.name} has {len(answer_by_name)} answers"
        raise HecktorError("--answer", actual, f"one of {', '.join(answer_by_name)}")
    return task, answer_by_name[name]


def measure_cases(work: Callable[[Item], Row], items: Sequence[Item], workers: int, action: str) -> list[Row]:
    """Apply `work` to every case, in order, with `map_cases`.

    Args:
        work: Measures one case.
        items: The cases.
        workers: Number of processes.
        action: What the work does to a case, for the message "the process that ACTION ended", such as "measured it".

    Raises:
        GroundTruthError: The process of a case died. No other row can replace the row of a reference.
    """

    def report_death(item: Item) -> Row:
        raise GroundTruthError(item.case, f"the process that {action} ended ({DEATH})")

    return map_cases(work, items, workers, report_death)


def make_json_figures(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """Return the figures of every metric as data for a JSON file, with the keys of metrics.json."""
    return {name: figures.model_dump(exclude_unset=True) for name, figures in make_aggregates(estimates).items()}


def format_interval(figures: Mapping[str, Any]) -> str:
    """Format the value and the interval of one metric of `make_json_figures` for a line on the screen."""
    value, low, high = ("null" if figure is None else f"{figure:z.4f}" for figure in MetricFigures(**figures).figures)
    return f"{value}  [{low}, {high}]"


def write_table(target: Path, table: Table) -> None:
    """Write lines as a CSV file that `hecktor evaluate` reads; columns are in the order of their first appearance."""
    write_text(target, _format_table(table, for_people=False))


def _format_table(table: Table, *, for_people: bool) -> str:
    columns = list(dict.fromkeys(column for line in table for column in line))
    return format_csv(columns, table, for_people=for_people)


def _replace_infinite(value: Any) -> Any:
    """Return the value with None for NaN and infinities, which do not exist in JSON."""
    if isinstance(value, Mapping):
        return {key: _replace_infinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinite(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
