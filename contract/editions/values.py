"""Tests of JSON values and their description in messages."""

from __future__ import annotations

import math
from collections.abc import Sequence


def is_text(value: object) -> bool:
    """True for a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_integer(value: object) -> bool:
    """True for a whole number; JSON's true and false are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True for a finite number that fits a double."""
    if type(value) is float:
        return math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_member(value: object, values: Sequence[object]) -> bool:
    """True where `values` holds `value` with the same type: true is not 1."""
    return (type(value), value) in [(type(member), member) for member in values]


def described(value: object) -> str:
    """A JSON value for a message: a short literal, or the type of a list or object."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "nothing" if value is None else repr(value)[:60]
