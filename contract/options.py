"""Numbers on a command line: what argparse calls to read one (`type=`), and what it says where there is none."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number from `at_least` to `at_most`, both included; None is no end.

    What it returns raises argparse.ArgumentTypeError for any other text.
    """
    if at_most is None:
        return _reader(int, lambda number: number >= at_least, f"a whole number of at least {at_least}")
    return _reader(int, lambda number: at_least <= number <= at_most, f"a whole number from {at_least} to {at_most}")


def number_within(low: float, high: float) -> Callable[[str], float]:
    """Reads a number from `low` to `high`, both included.

    What it returns raises argparse.ArgumentTypeError for any other text.
    """
    return _reader(float, lambda number: low <= number <= high, f"a number from {low:g} to {high:g}")


def positive_number() -> Callable[[str], float]:
    """Reads a finite number above 0.

    What it returns raises argparse.ArgumentTypeError for any other text.
    """
    return _reader(float, lambda number: 0 < number < math.inf, "a finite number above 0")


def _reader(
    convert: Callable[[str], Number], accepts: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    """NaN is accepted by no comparison."""

    def read(text: str) -> Number:
        try:
            number = convert(text)
        except ValueError:
            number = None
        if number is None or not accepts(number):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}")
        return number

    return read
