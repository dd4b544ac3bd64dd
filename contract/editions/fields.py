"""Typed access to a declaration's JSON. Every fault is a HecktorError that names its place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from contract.errors import HecktorError

# Names become parts of file names, metric names and command lines.
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True)
class DeclaredObject:
    """A JSON object of a declaration; `where` is its place, for messages.

    Methods with a `default` return it where the key is absent; the others expect the key. All raise HecktorError
    for a value of another form.
    """

    content: Mapping[str, Any]
    where: str

    @classmethod
    def of(
        cls, raw: object, where: str, required: Sequence[str], optional: Sequence[str] | None = ()
    ) -> DeclaredObject:
        """The object `raw` after a check of its keys; `optional=None` allows any further key."""
        if not isinstance(raw, dict):
            raise HecktorError(where, f"found {described(raw)}", "an object")
        absent = [key for key in required if key not in raw]
        unknown = [] if optional is None else [key for key in raw if key not in required and key not in optional]
        if absent or unknown:
            parts = [f"{word} {', '.join(keys)}" for word, keys in (("without", absent), ("with", unknown)) if keys]
            raise HecktorError(
                where, f"found an object {' and '.join(parts)}", ", ".join([*required, *(optional or ())])
            )
        return cls(raw, where)

    def fault(self, key: str, expected: str) -> HecktorError:
        """The error for the value of `key`."""
        return HecktorError(f"{self.where}.{key}", f"found {described(self.content.get(key))}", expected)

    def text(self, key: str) -> str:
        """A text that is not blank."""
        value = self.content[key]
        if not is_text(value):
            raise self.fault(key, "a text")
        return str(value)

    def name(self, key: str, default: str | None = None) -> str:
        """A name: lower-case letters, digits, `-` and `_`, beginning with a letter."""
        value = self.content.get(key, default)
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise self.fault(key, "a name of lower-case letters, digits, - and _")
        return value

    def relative_path(self, key: str) -> str:
        """A path that stays below the folder it is relative to."""
        path = PurePosixPath(self.text(key))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise self.fault(key, "a relative path without ..")
        return str(self.content[key])

    def choice(self, key: str, choices: tuple[_Word, ...], default: _Word | None = None) -> _Word:
        """One of `choices`."""
        value = self.content.get(key, default)
        for choice in choices:
            if value == choice:
                return choice
        raise self.fault(key, f"one of {', '.join(choices)}")

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.content[key]
        if not is_number(value):
            raise self.fault(key, "a finite number")
        return float(value)

    def items(self, key: str) -> list[tuple[Any, str]]:
        """The entries of a list with at least one, each with its place."""
        value = self.content[key]
        if not isinstance(value, list) or not value:
            raise self.fault(key, "a list with at least one entry")
        return [(entry, f"{self.where}.{key}[{index}]") for index, entry in enumerate(value)]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of different texts that are not blank; empty where the key is absent."""
        values = self.content.get(key, [])
        if not isinstance(values, list) or not all(map(is_text, values)) or len(set(values)) < len(values):
            raise self.fault(key, "a list of different texts")
        return tuple(values)

    def mapping(self, key: str) -> dict[str, Any]:
        """An object with texts as keys and any values; empty where the key is absent."""
        value = self.content.get(key, {})
        if not isinstance(value, dict) or not all(map(is_text, value)):
            raise self.fault(key, "an object with texts as keys")
        return dict(value)

    def words(self, key: str) -> dict[str, Any]:
        """A mapping whose keys are in lower case, as tables are compared with them."""
        value = self.mapping(key)
        capitals = [word for word in value if word != word.strip().lower()]
        if capitals:
            raise HecktorError(f"{self.where}.{key}", f"found {described(capitals[0])}", "words in lower case")
        return value


def is_text(value: object) -> bool:
    """True for a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_integer(value: object) -> bool:
    """True for a whole number; JSON's true and false are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True for a finite number that fits a double."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_member(value: object, values: Sequence[object]) -> bool:
    """True where `values` holds `value` with the same type: true is not 1."""
    return (type(value), value) in [(type(member), member) for member in values]


def check_unique(names: Sequence[str], where: str) -> None:
    """Refuse names that occur more than once.

    Raises:
        HecktorError: naming `where` and the names.
    """
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise HecktorError(where, f"found {', '.join(duplicates)} twice", "each once")


def described(value: object) -> str:
    """A JSON value for a message: a short literal, or the type of a list or object."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "nothing" if value is None else repr(value)[:60]
