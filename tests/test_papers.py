"""Rows of docs/papers.md: their place in a paper, their commands, and the tests that check them.

Commands are parsed by the parser of their subcommand, which then stops before it does anything. Tests are looked up in
the source, so that no test of another environment is imported.
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


def read_tables(page: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield header and rows of each table of a page, as cells without their escapes."""
    for block in re.findall(r"^\|.*\n(?:^\|.*\n)+", page, flags=re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in block.splitlines()]
        header, _, *rows = [[cell.strip().replace("\\|", "|") for cell in line] for line in lines]
        yield header, rows


def find_code(cell: str) -> list[str]:
    """Return the parts of a cell between backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def split_sections(places: str) -> list[str]:
    """Split a list of sections; a comma before a point belongs to its section."""
    return re.split(r", (?!point)", places)


def read_rows(page: str) -> Iterator[Row]:
    """Yield the rows of the papers' tables, each below the heading of its year."""
    for chapter in re.split(r"^## ", page, flags=re.MULTILINE):
        year = chapter.partition("\n")[0][-4:]
        yield from (Row(year, *cells) for header, rows in read_tables(chapter) if header == HEADER for cells in rows)


ROWS = [*read_rows(PAGE)]
TEST_FILES = [*(ROOT / "tests").rglob("*.py")]
# Sections of the papers without subsections.
SECTIONS = {
    "2020": "1, 2.1, 2.2, 2.3, 3.1, 3.2, 3.3, 4.1, 4.2, 4.3, 5, Appendix 1, Appendix 2",
    "2021": "1, 2.1, 2.2, 2.3, 2.4, 3.1, 3.2, 3.3, 3.4, 3.5, 4.1, 4.2, 5, 6, Appendix A, Appendix B, Appendix C",
    "rules": "task 1, task 1, point 1, task 1, point 2, task 1, point 2a, task 1, point 2b, task 2, task 3",
    "2025": "1.1, 1.2, 1.3.1, 1.3.2, 1.3.3, 2.1, 2.2.1, 2.2.2, 2.2.3, 2.3.1, 2.3.2, 2.3.3, 2.3.4, 3.1.1, 3.1.2, 3.1.3, "
    "3.2.1, 3.2.2, 3.2.3, 3.2.4, 4.1, 4.2, 4.3, 4.4, 4.5, 5",
    "2024": "1, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 3.1, 3.2, 3.3, 3.4, 4.1, 4.2, 4.3, 5",
}


@cache
def list_test_functions(path: Path) -> frozenset[str]:
    """Return the names of the test functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_")


def parse_command(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of `hecktor WORDS`; raise ValueError with the parser's message if it refuses them."""

    def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> None:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        raise _ParsedError(options)

    if words[0] not in COMMANDS:
        raise ValueError(f"no command {words[0]}")
    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(stderr):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        try:
            load_command(words[0])(list(words[1:]))
        except _ParsedError as stop:
            return stop.options
        except (SystemExit, HecktorError) as refused:
            raise ValueError(f"{stderr.getvalue()}{refused}") from None
    raise AssertionError(f"hecktor {words[0]} ran without parsing its options")


def find_command_problem(line: str) -> str:
    """Return the error in a command's options, or in the edition, task and rules that they name; empty if there is none."""
    words = shlex.split(line)
    if words[0] != "hecktor":
        path = ROOT / words[0]
        return "" if path.is_file() and os.access(path, os.X_OK) else f"{line}: no such command"
    try:
        options = parse_command(words[1:])
        profile = load_profile(getattr(options, "edition", None) or DEFAULT_EDITION)
        if getattr(options, "task", None):
            task = with_options(profile.find_task(options.task), dict(getattr(options, "option", None) or ()))
            with_ranking(task, getattr(options, "official", None), getattr(options, "ties", None), line)
    except (ValueError, HecktorError) as problem:
        return f"{line}: {problem}"
    return ""


def find_test_file(name: str) -> Path:
    """Return `tests/NAME`, or the only file below `tests/` whose path ends with NAME; `tests/NAME` if there is none."""
    path = ROOT / "tests" / name
    files = [] if path.is_file() else [file for file in TEST_FILES if file.as_posix().endswith(f"/{name}")]
    return files[0] if len(files) == 1 else path


def find_test_problems(cell: str) -> Iterator[str]:
    """Yield the tests of a cell that do not exist; `::test_name` without a file belongs to the file before it."""
    path = ROOT
    for name in find_code(cell):
        file, _, function = name.partition("::")
        path = find_test_file(file) if file else path
        if not path.is_file():
            yield f"{name}: no such file"
        elif not list_test_functions(path) or (function and function not in list_test_functions(path)):
            yield f"{name}: no such test"


def find_place_problems(cell: str, year: str) -> Iterator[str]:
    """Yield sections that their paper does not have; sections without a year belong to `year`, as in `2.1; rules: task 2`."""
    for part in cell.split("; "):
        named, _, places = part.rpartition(": ")
        for place in split_sections(places):
            if place not in split_sections(SECTIONS.get(named or year, "")):
                yield f"{named or year}: {place}: no such section"


def find_problems(row: Row, above: str = "") -> list[str]:
    """Return the errors of a row; `above` are the commands of the row above."""
    problems = [*find_place_problems(row.places, row.year), *find_test_problems(row.tests)]
    if row.commands == OPEN:
        return problems
    commands = above if row.commands.startswith(SAME) else row.commands
    lines = [line for line in find_code(commands) if re.match(r"hecktor |scripts/", line)]
    problems += filter(None, map(find_command_problem, lines))
    return [*problems, *(["no command"] if not lines else []), *(["no test"] if not find_code(row.tests) else [])]


def test_there_are_rows_of_every_paper() -> None:
    named = {year for row in ROWS for year in re.findall(r"(\w+): ", row.places)}
    assert {row.year for row in ROWS} | named == set(SECTIONS) == {cells[0] for cells in next(read_tables(PAGE))[1]}
    assert len(ROWS) > 70


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[f"{row.year}: {row.places}" for row in ROWS])
def test_commands_parse_and_tests_exist(number: int) -> None:
    above = next((row.commands for row in ROWS[number - 1 :: -1] if not row.commands.startswith(SAME)), "")
    assert find_problems(ROWS[number], above if number else "") == []


ALTERNATIVES = [
    part
    for header, rows in read_tables(PAGE)
    if header[-1] == "alternative"
    for row in rows
    for part in find_code(row[-1])
]


@pytest.mark.parametrize("option", [part for part in ALTERNATIVES if part.startswith("--option ")])
def test_a_rule_is_one_of_masks_or_risks(option: str) -> None:
    files = f"--predictions MASKS --ground-truth DIR --output OUT {option}"
    messages = [find_command_problem(f"hecktor evaluate --task {task} {files}") for task in ("segmentation", "rfs")]
    assert "" in messages


@pytest.mark.parametrize(
    "option", [part for part in ALTERNATIVES if part.startswith(("rank --official", "rank --ties"))]
)
def test_a_ranking_is_one_of_the_edition(option: str) -> None:
    assert find_command_problem(f"hecktor {option} --task 1 M --output DIR") == ""


RANK, TESTS = "`hecktor rank --task 1 M --output DIR`", "`test_papers.py::test_there_are_rows_of_every_paper`"


@pytest.mark.parametrize(
    ("row", "expected_messages"),
    [
        (Row("2021", "9.9", "", RANK, TESTS), ["2021: 9.9: no such section"]),
        (Row("2021", "3.5", "", "`hecktor fly`", TESTS), ["no command fly"]),
        (Row("2021", "3.5", "", "`hecktor rank --task 1 M`", TESTS), ["required: --output"]),
        (Row("2021", "3.5", "", RANK.replace("--task", "--tasks"), TESTS), ["unrecognized arguments: --tasks"]),
        (Row("2021", "3.5", "", RANK.replace("1", "1 --edition hecktor1999"), TESTS), ["hecktor1999"]),
        (Row("2021", "3.5", "", "`scripts/absent`", TESTS), ["scripts/absent: no such command"]),
        (Row("2021", "3.5", "", SAME, TESTS), ["no command"]),
        (Row("2021", "3.5", "", RANK, ""), ["no test"]),
        (Row("2021", "3.5", "", RANK, "`absent.py`"), ["absent.py: no such file"]),
        (Row("2021", "3.5", "", RANK, "`shared_data.py`"), ["shared_data.py: no such test"]),
        (Row("2021", "3.5", "", RANK, "`test_papers.py`, `::test_absent`"), ["::test_absent: no such test"]),
        (Row("2021", "3.5", "", OPEN, ""), []),
        (Row("2021", "3.5; rules: task 1, point 2a, task 2; 2025: 2.3.1", "", RANK, TESTS), []),
        (Row("2021", "rules: task 1, point 3", "", RANK, TESTS), ["rules: task 1, point 3: no such section"]),
    ],
)
def test_a_wrong_row_is_found(row: Row, expected_messages: list[str]) -> None:
    messages = find_problems(row)
    assert len(messages) == len(expected_messages), messages
    assert all(text in message for message, text in zip(messages, expected_messages, strict=True)), messages
