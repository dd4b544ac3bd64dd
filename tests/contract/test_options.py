"""Options shared by several commands: numbers, NAME=PATH pairs, the edition with its task."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.options import (
    Parser,
    add_edition_and_task_options,
    number_within,
    positive_number,
    select_algorithm,
    whole_number,
)

FOUR_ANSWERS = Path(__file__).parents[1] / "editions" / "four_answers.json"
Reader = Callable[[str], float]


@pytest.mark.parametrize(
    ("read", "text", "number"),
    [
        (whole_number(-2, 5), "5", 5),
        (positive_number(), "24", 24.0),
        (number_within(0, 1000), "0", 0.0),
        (number_within(0, 1000), "1e3", 1000.0),
    ],
)
def test_valid_numbers(read: Reader, text: str, number: float) -> None:
    assert (read(text), type(read(text))) == (number, type(number))


@pytest.mark.parametrize(
    ("read", "texts", "expected"),
    [
        (whole_number(1), ("abc", "", "1.0", "0", "nan", "1e2", "\n\0"), "a whole number of at least 1"),
        (whole_number(0, 65535), ("-1", "65536"), "a whole number from 0 to 65535"),
        # Above the largest double, and below the smallest one.
        (positive_number(), ("", "0", "-0.0", "nan", "inf", "1e400", "1e-400", "1,5"), "a finite number above 0"),
        (number_within(0, 1), ("-0.001", "1.001", "nan"), "a number from 0 to 1"),
    ],
)
def test_invalid_numbers(read: Reader, texts: tuple[str, ...], expected: str) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError) as error:
            read(text)
        assert str(error.value) == f"found {text!r}, expected {expected}"


def choose(*argv: str) -> tuple[str, str]:
    parser = argparse.ArgumentParser()
    add_edition_and_task_options(parser)
    options = parser.parse_args(argv)
    edition = load_edition(options.edition)
    return edition.name, select_algorithm(parser, edition.find_algorithm, options.task).name


def test_a_task_is_chosen_by_name_or_number_and_an_only_task_need_not_be_named() -> None:
    assert choose("--task", "rfs") == choose("--task", "2") == ("hecktor2025", "rfs")
    assert choose("--edition", str(FOUR_ANSWERS)) == ("four-answers", "everything")


@pytest.mark.parametrize("argv", [(), ("--task", "staging")])
def test_an_absent_or_unknown_task_ends_with_status_2(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        choose(*argv)
    assert ended.value.code == 2
    assert "segmentation, 1, rfs, 2, hpv, 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (["--output", ""], "argument --output: "),
        (["--output="], "argument --output: "),
        (["sub", "--masks", "a", ""], "argument --masks: "),
        (["sub", "", "--masks", "a"], ""),
    ],
)
def test_an_empty_value_is_refused(words: list[str], argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--output "$UNSET"` would otherwise write into the current folder, because an empty path is that folder."""
    parser = Parser(prog="p")
    parser.add_argument("--output", type=Path)
    subcommand = parser.add_subparsers().add_parser("sub")
    subcommand.add_argument("folder", nargs="?", type=Path)
    subcommand.add_argument("--masks", nargs="+")
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(words)
    assert capsys.readouterr().err.endswith(
        f"p: error: {argument}found an empty value (is a shell variable unset?), expected a path, a name or a number\n"
    )
