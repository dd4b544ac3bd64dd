"""Command-line options shared by several commands: numbers, NAME=PATH pairs, and the edition with its task."""

from __future__ import annotations

import argparse
import difflib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from contract.editions import DEFAULT_EDITION, Algorithm, list_editions
from contract.errors import HecktorError
from contract.platform import INVOKE_PORT

Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """A parser that accepts only whole option names, suggests one for a misspelt option and refuses empty values."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**(kwargs | {"allow_abbrev": False}))
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, and keep the words for `error`.

        An empty value is refused: it is usually an unset shell variable, and as a path it would mean this folder.
        """
        self._words = list(sys.argv[1:] if args is None else args)
        self._refuse_empty_words()
        return super().parse_known_args(args, namespace)

    def _refuse_empty_words(self) -> None:
        """End with exit status 2 if a word, or the value in `--option=value`, is empty."""
        argument = ""
        for word in self._words:
            option, sign, value = word.partition("=")
            if option.startswith("--"):
                argument = f"argument {option}: "
            if not word or (option.startswith("--") and sign and not value):
                self.error(
                    f"{argument}found an empty value (is a shell variable unset?), expected a path, a name or a number"
                )

    def error(self, message: str) -> NoReturn:
        """End with exit status 2 and the message, which names options close to those that do not exist."""
        known = set(_options_of(self, self._words))
        for word in self._words:
            option = word.partition("=")[0]
            if option.startswith("--") and len(option) > 2 and option not in known:
                close = difflib.get_close_matches(option, known, 1)
                message += f" (there is no {option}{f', did you mean {close[0]}?' if close else ''})"
        super().error(message)


def _options_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    """The options of a parser and of the subcommand among the words."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in filter(None, map(action.choices.get, words)):
                yield from _options_of(subcommand, words)


def require_paths(arguments: argparse.Namespace, *options: str) -> None:
    """Refuse files and folders that do not exist, before a command imports what takes seconds.

    `options` are such as `--ground-truth`, or the name of a positional argument. A value is a path, NAME=PATH, or a
    list of them.

    Raises:
        HecktorError: names the option and the whole path, with its deepest folder that exists.
    """
    for option, path in _given(arguments, options):
        if not path.exists():
            whole = path.absolute()
            there = next(folder for folder in whole.parents if folder.exists())
            raise HecktorError(option, f"no such file or folder: {whole} ({there} exists)", "an existing one")


def require_folders(arguments: argparse.Namespace, *options: str) -> None:
    """Refuse what `require_paths` refuses, and files. Raises `HecktorError`."""
    require_paths(arguments, *options)
    for option, path in _given(arguments, options):
        if not path.is_dir():
            raise HecktorError(option, f"a file: {path.absolute()}", "a folder")


def require_files(arguments: argparse.Namespace, *options: str) -> None:
    """Refuse what `require_paths` refuses, and folders. Raises `HecktorError`."""
    require_paths(arguments, *options)
    for option, path in _given(arguments, options):
        if path.is_dir():
            raise HecktorError(option, f"a folder: {path.absolute()}", "a file")


def _given(arguments: argparse.Namespace, options: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Each path that is given for one of the options, with the option."""
    for option in options:
        for path in _paths_in(getattr(arguments, option.lstrip("-").replace("-", "_"), None)):
            yield option, path


def _paths_in(value: object) -> Iterator[Path]:
    """The paths among the values of an option."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _paths_in(one)


def add_edition_and_task_options(parser: argparse.ArgumentParser, known_from: str = "") -> None:
    """Add `--edition` and `--task`; read the latter with `select_algorithm`."""
    add_task_option(parser)
    add_edition_option(parser, known_from)


def add_code_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--code`, folders of the user's own code; `what` completes "folder of your own code"."""
    what_it_is = f"folder of your own code{what}; may be repeated"
    parser.add_argument("--code", type=Path, action="append", default=[], metavar="DIR", help=what_it_is)


def add_task_option(parser: argparse.ArgumentParser) -> None:
    """Add `--task` alone."""
    parser.add_argument(
        "--task",
        help="task of the edition by name or number, such as rfs or 2; optional if the edition has only one task",
    )


def add_edition_option(parser: argparse.ArgumentParser, known_from: str = "") -> None:
    """Add `--edition` alone; `load_edition` reads its value.

    `known_from` names the file that knows the edition; then the default is None, and the command reads that file.
    """
    parser.add_argument(
        "--edition",
        default=None if known_from else DEFAULT_EDITION,
        metavar="NAME|FILE",
        help=f"edition of the challenge: {', '.join(list_editions())}, or the JSON file of your own "
        f"(default: {known_from or DEFAULT_EDITION})",
    )


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Add `--serve` and `--port`, the platform's `invoke` mode; check the port with `check_port`."""
    parser.add_argument(
        "--serve",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run as an HTTP server that processes one case after another",
    )
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535),
        help=f"port for --serve, 0 for any free port (default: {INVOKE_PORT})",
    )


def check_port(arguments: argparse.Namespace) -> None:
    """Raise HecktorError for `--port` without `--serve`."""
    if arguments.port is not None and not arguments.serve:
        raise HecktorError("--port", "found without --serve", "both")


def select_algorithm(
    parser: argparse.ArgumentParser, find: Callable[[str | None], Algorithm], name: str | None, hint: str = ""
) -> Algorithm:
    """The algorithm that `find` gives for the value of `--task`; an unknown task ends with exit status 2."""
    try:
        return find(name)
    except HecktorError as error:
        parser.error(f"argument --task: {error.message}{hint}")


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers from `at_least` to `at_most`, both included; None is no upper limit.

    The reader raises argparse.ArgumentTypeError for any other text.
    """
    if at_most is None:
        return _reader(int, lambda number: number >= at_least, f"a whole number of at least {at_least}")
    return _reader(int, lambda number: at_least <= number <= at_most, f"a whole number from {at_least} to {at_most}")


def number_within(low: float, high: float) -> Callable[[str], float]:
    """A reader of numbers from `low` to `high`, both included.

    The reader raises argparse.ArgumentTypeError for any other text.
    """
    return _reader(float, lambda number: low <= number <= high, f"a number from {low:g} to {high:g}")


def positive_number() -> Callable[[str], float]:
    """A reader of finite numbers above 0; it raises argparse.ArgumentTypeError for any other text."""
    return _reader(float, lambda number: 0 < number < math.inf, "a finite number above 0")


def _reader(
    convert: Callable[[str], Number], accepts: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    def read(text: str) -> Number:  # NaN fails every comparison
        try:
            number = convert(text)
        except ValueError:
            number = None
        if number is None or not accepts(number):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}")
        return number

    return read
