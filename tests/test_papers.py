"""Every row of docs/papers.md: its place in a paper, its commands, and the tests that check it.

A command is parsed by the parser of its subcommand, which then stops before it does anything. Tests are looked up in
the source, so that none is imported that needs another environment.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from evaluation.editions.profile import load_profile, with_options, with_ranking
from hecktor.cli import COMMANDS, load_command

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
HEADER = ["section", "table, figure or method", "command", "test"]
# A row may mean the commands of the row above, or say that there is nothing yet.
SAME, OPEN = "the same", "open"


class Row(NamedTuple):
    """One row of the papers' tables."""

    year: str
    places: str
    subject: str
    commands: str
    tests: str


class _ParsedError(Exception):
    """Ends a command once its options are parsed."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options


def tables(page: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of each table of a page, as cells without their escapes."""
    for block in re.findall(r"^\|.*\n(?:^\|.*\n)+", page, flags=re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in block.splitlines()]
        header, _, *rows = [[cell.strip().replace("\\|", "|") for cell in line] for line in lines]
        yield header, rows


def code(cell: str) -> list[str]:
    """The parts of a cell between backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def sections(places: str) -> list[str]:
    """The sections of a list; a comma before a point belongs to its section."""
    return re.split(r", (?!point)", places)


def rows_of(page: str) -> Iterator[Row]:
    """The rows of the papers' tables, each below the heading of its year."""
    for chapter in re.split(r"^## ", page, flags=re.MULTILINE):
        year = chapter.partition("\n")[0][-4:]
        yield from (Row(year, *cells) for header, rows in tables(chapter) if header == HEADER for cells in rows)


ROWS = [*rows_of(PAGE)]
# The sections of each paper that have no subsections.
SECTIONS = {
    "2020": "1, 2.1, 2.2, 2.3, 3.1, 3.2, 3.3, 4.1, 4.2, 4.3, 5, Appendix 1, Appendix 2",
    "2021": "1, 2.1, 2.2, 2.3, 2.4, 3.1, 3.2, 3.3, 3.4, 3.5, 4.1, 4.2, 5, 6, Appendix A, Appendix B, Appendix C",
    "rules": "task 1, task 1, point 1, task 1, point 2, task 1, point 2a, task 1, point 2b, task 2, task 3",
    "2025": "1.1, 1.2, 1.3.1, 1.3.2, 1.3.3, 2.1, 2.2.1, 2.2.2, 2.2.3, 2.3.1, 2.3.2, 2.3.3, 2.3.4, 3.1.1, 3.1.2, 3.1.3, "
    "3.2.1, 3.2.2, 3.2.3, 3.2.4, 4.1, 4.2, 4.3, 4.4, 4.5, 5",
    "2024": "1, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 3.1, 3.2, 3.3, 3.4, 4.1, 4.2, 4.3, 5",
}


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of the test functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options of `hecktor WORDS`. ValueError: its parser refuses them, with its message."""

    def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> None:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        raise _ParsedError(options)

    if words[0] not in COMMANDS:
        raise ValueError(f"no command {words[0]}")
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        try:
            load_command(words[0])(list(words[1:]))
        except _ParsedError as found:
            return found.options
        except (SystemExit, HecktorError) as refused:
            raise ValueError(f"{said.getvalue()}{refused}") from None
    raise AssertionError(f"hecktor {words[0]} ran without parsing its options")


def problem_of_command(line: str) -> str:
    """What is wrong with a command: its options, or the edition, task and rules that they name; empty if nothing."""
    words = shlex.split(line)
    if words[0] != "hecktor":
        path = ROOT / words[0]
        return "" if path.is_file() and os.access(path, os.X_OK) else f"{line}: no such command"
    try:
        options = parsed(words[1:])
        profile = load_profile(getattr(options, "edition", None) or DEFAULT_EDITION)
        if getattr(options, "task", None):
            task = with_options(profile.task(options.task), dict(getattr(options, "option", None) or ()))
            with_ranking(task, getattr(options, "official", None), getattr(options, "ties", None), line)
    except (ValueError, HecktorError) as problem:
        return f"{line}: {problem}"
    return ""


def problems_of_tests(cell: str) -> Iterator[str]:
    """Tests of a cell that do not exist; `::test_name` alone is of the file before it."""
    path = ROOT
    for name in code(cell):
        file, _, function = name.partition("::")
        path = ROOT / "tests" / file if file else path
        if not path.is_file():
            yield f"{name}: no such file"
        elif not functions(path) or (function and function not in functions(path)):
            yield f"{name}: no such test"


def problems_of_places(cell: str, year: str) -> Iterator[str]:
    """Sections that their paper does not have; `year` is that of sections without one, as in `2.1; rules: task 2`."""
    for part in cell.split("; "):
        named, _, places = part.rpartition(": ")
        for place in sections(places):
            if place not in sections(SECTIONS.get(named or year, "")):
                yield f"{named or year}: {place}: no such section"


def problems(row: Row, above: str = "") -> list[str]:
    """What is wrong with a row; `above` are the commands of the row above."""
    found = [*problems_of_places(row.places, row.year), *problems_of_tests(row.tests)]
    if row.commands == OPEN:
        return found
    commands = above if row.commands.startswith(SAME) else row.commands
    lines = [line for line in code(commands) if re.match(r"hecktor |scripts/", line)]
    found += filter(None, map(problem_of_command, lines))
    return [*found, *(["no command"] if not lines else []), *(["no test"] if not code(row.tests) else [])]


def test_there_are_rows_of_every_paper() -> None:
    named = {year for row in ROWS for year in re.findall(r"(\w+): ", row.places)}
    assert {row.year for row in ROWS} | named == set(SECTIONS) == {cells[0] for cells in next(tables(PAGE))[1]}
    assert len(ROWS) > 70


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[f"{row.year}: {row.places}" for row in ROWS])
def test_commands_parse_and_tests_exist(number: int) -> None:
    above = next((row.commands for row in ROWS[number - 1 :: -1] if not row.commands.startswith(SAME)), "")
    assert problems(ROWS[number], above if number else "") == []


ALTERNATIVES = [
    part for header, rows in tables(PAGE) if header[-1] == "alternative" for row in rows for part in code(row[-1])
]


@pytest.mark.parametrize("option", [part for part in ALTERNATIVES if part.startswith("--option ")])
def test_a_rule_is_one_of_masks_or_risks(option: str) -> None:
    files = f"--predictions MASKS --ground-truth DIR --output OUT {option}"
    found = [problem_of_command(f"hecktor evaluate --task {task} {files}") for task in ("segmentation", "rfs")]
    assert "" in found


@pytest.mark.parametrize(
    "option", [part for part in ALTERNATIVES if part.startswith(("rank --official", "rank --ties"))]
)
def test_a_ranking_is_one_of_the_edition(option: str) -> None:
    assert problem_of_command(f"hecktor {option} --task 1 M --output DIR") == ""


RANK, TESTS = "`hecktor rank --task 1 M --output DIR`", "`test_papers.py::test_there_are_rows_of_every_paper`"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (Row("2021", "9.9", "", RANK, TESTS), ["2021: 9.9: no such section"]),
        (Row("2021", "3.5", "", "`hecktor fly`", TESTS), ["no command fly"]),
        (Row("2021", "3.5", "", "`hecktor rank --task 1 M`", TESTS), ["required: --output"]),
        (Row("2021", "3.5", "", RANK.replace("--task", "--tasks"), TESTS), ["unrecognized arguments: --tasks"]),
        (Row("2021", "3.5", "", RANK.replace("1", "1 --edition hecktor1999"), TESTS), ["hecktor1999"]),
        (Row("2021", "3.5", "", RANK.replace("1", "larynx"), TESTS), ["larynx"]),
        (Row("2021", "3.5", "", "`hecktor study dice --output DIR`", TESTS), ["dice"]),
        (Row("2021", "3.5", "", "`scripts/absent`", TESTS), ["scripts/absent: no such command"]),
        (Row("2021", "3.5", "", "", TESTS), ["no command"]),
        (Row("2021", "3.5", "", SAME, TESTS), ["no command"]),
        (Row("2021", "3.5", "", RANK, ""), ["no test"]),
        (Row("2021", "3.5", "", RANK, "`absent.py`"), ["absent.py: no such file"]),
        (Row("2021", "3.5", "", RANK, "`shared_data.py`"), ["shared_data.py: no such test"]),
        (Row("2021", "3.5", "", RANK, "`test_papers.py`, `::test_absent`"), ["::test_absent: no such test"]),
        (Row("2021", "3.5", "", OPEN, ""), []),
        (Row("2021", "3.5; rules: task 1, point 2a, task 2; 2025: 2.3.1", "", RANK, TESTS), []),
        (Row("2021", "rules: task 1, point 3", "", RANK, TESTS), ["rules: task 1, point 3: no such section"]),
        (Row("2021", "2019: 1", "", RANK, TESTS), ["2019: 1: no such section"]),
    ],
)
def test_a_wrong_row_is_found(row: Row, found: list[str]) -> None:
    said = problems(row)
    assert len(said) == len(found), said
    assert all(expected in one for one, expected in zip(said, found, strict=True)), said
