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
    """A parser that accepts only whole option names, suggests a name for a misspelt one and refuses empty values."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**(kwargs | {"allow_abbrev": False}))
        self._arguments: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, and keep the arguments for `error`.

        An empty value is refused: it is usually an unset shell variable, and as a path it means the current folder.
        """
        self._arguments = list(sys.argv[1:] if args is None else args)
        self._refuse_empty_arguments()
        return super().parse_known_args(args, namespace)

    def _refuse_empty_arguments(self) -> None:
        """End with exit status 2 if an argument, or the value in `--option=value`, is empty."""
        place = ""
        for argument in self._arguments:
            option, sign, value = argument.partition("=")
            if option.startswith("--"):
                place = f"argument {option}: "
            if not argument or (option.startswith("--") and sign and not value):
                self.error(
                    f"{place}found an empty value (is a shell variable unset?), expected a path, a name or a number"
                )

    def error(self, message: str) -> NoReturn:
        """End with exit status 2; for each option that does not exist the message suggests a similar one."""
        known = set(_list_options(self, self._arguments))
        for argument in self._arguments:
            option = argument.partition("=")[0]
            if option.startswith("--") and len(option) > 2 and option not in known:
                close = difflib.get_close_matches(option, known, 1)
                message += f" (there is no {option}{f', did you mean {close[0]}?' if close else ''})"
        super().error(message)


def _list_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the options of a parser and of the subcommand that the arguments name."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in filter(None, map(action.choices.get, arguments)):
                yield from _list_options(subcommand, arguments)


def require_paths(arguments: argparse.Namespace, *options: str) -> None:
    """Check that the files and folders of options exist, before a command imports libraries, which takes seconds.

    Args:
        arguments: The parsed command line. A value is a path, NAME=PATH, or a list of them.
        options: Options such as `--ground-truth`, or names of positional arguments.

    Raises:
        HecktorError: A path does not exist. The message names the option, the whole path and its deepest folder that
            exists.
    """
    for option, path in _iterate_paths(arguments, options):
        if not path.exists():
            whole = path.absolute()
            existing = next(folder for folder in whole.parents if folder.exists())
            raise HecktorError(option, f"no such file or folder: {whole} ({existing} exists)", "an existing one")


def require_folders(arguments: argparse.Namespace, *options: str) -> None:
    """Check that the paths of options exist and are folders; raise `HecktorError` otherwise."""
    require_paths(arguments, *options)
    for option, path in _iterate_paths(arguments, options):
        if not path.is_dir():
            raise HecktorError(option, f"a file: {path.absolute()}", "a folder")


def require_files(arguments: argparse.Namespace, *options: str) -> None:
    """Check that the paths of options exist and are not folders; raise `HecktorError` otherwise."""
    require_paths(arguments, *options)
    for option, path in _iterate_paths(arguments, options):
        if path.is_dir():
            raise HecktorError(option, f"a folder: {path.absolute()}", "a file")


def _iterate_paths(arguments: argparse.Namespace, options: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield every path among the values of the options, with the option."""
    for option in options:
        for path in _find_paths(getattr(arguments, option.lstrip("-").replace("-", "_"), None)):
            yield option, path


def _find_paths(value: object) -> Iterator[Path]:
    """Yield the paths in a value, which may be a list or a tuple."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_paths(item)


def add_edition_and_task_options(parser: argparse.ArgumentParser, edition_source: str = "") -> None:
    """Add `--edition` and `--task`; `select_algorithm` reads the value of `--task`."""
    add_task_option(parser)
    add_edition_option(parser, edition_source)


def add_code_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--code`, folders of user code; `what` completes "folder of your code" in the help text."""
    text = f"folder of your code{what}; may be repeated"
    parser.add_argument("--code", type=Path, action="append", default=[], metavar="DIR", help=text)


def add_task_option(parser: argparse.ArgumentParser) -> None:
    """Add `--task`."""
    parser.add_argument(
        "--task",
        help="task of the edition by name or number, such as rfs or 2; optional if the edition has only one task",
    )


def add_edition_option(parser: argparse.ArgumentParser, edition_source: str = "") -> None:
    """Add `--edition`; `load_edition` reads its value.

    Args:
        parser: The parser.
        edition_source: The edition that is used without the option, in the words of the help text; the default value
            is then None. Empty for the default edition.
    """
    parser.add_argument(
        "--edition",
        default=None if edition_source else DEFAULT_EDITION,
        metavar="NAME|FILE",
        help=f"edition of the challenge: {', '.join(list_editions())}, or the JSON file of a custom edition "
        f"(default: {edition_source or DEFAULT_EDITION})",
    )


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Add `--serve` and `--port` for the platform's `invoke` mode; `check_port` checks the port."""
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
    """Check that `--port` is not used without `--serve`; raise `HecktorError` otherwise."""
    if arguments.port is not None and not arguments.serve:
        raise HecktorError("--port", "found without --serve", "both")


def select_algorithm(
    parser: argparse.ArgumentParser, find: Callable[[str | None], Algorithm], name: str | None, hint: str = ""
) -> Algorithm:
    """Select the algorithm that `--task` names; an unknown task ends the program with exit status 2.

    Args:
        parser: The parser, whose usage is printed.
        find: Function that finds the algorithm by its name, such as `Edition.find_algorithm`.
        name: Value of `--task`; None without the option.
        hint: Text that follows the message.
    """
    try:
        return find(name)
    except HecktorError as error:
        parser.error(f"argument --task: {error.message}{hint}")


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """Make an argparse type of whole numbers from `at_least` to `at_most`, both included; None means no upper limit."""
    if at_most is None:
        return _make_type(int, lambda number: number >= at_least, f"a whole number of at least {at_least}")
    expected = f"a whole number from {at_least} to {at_most}"
    return _make_type(int, lambda number: at_least <= number <= at_most, expected)


def number_within(low: float, high: float) -> Callable[[str], float]:
    """Make an argparse type of numbers from `low` to `high`, both included."""
    return _make_type(float, lambda number: low <= number <= high, f"a number from {low:g} to {high:g}")


def positive_number() -> Callable[[str], float]:
    """Make an argparse type of finite numbers above 0."""
    return _make_type(float, lambda number: 0 < number < math.inf, "a finite number above 0")


def _make_type(
    convert: Callable[[str], Number], is_allowed: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        try:
            number = convert(text)
        except ValueError:
            number = None
        # NaN fails every comparison.
        if number is None or not is_allowed(number):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}")
        return number

    return read
