"""Clinical variables: their keys in `ehr.json` and in the release's tables, their types and codes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

ClinicalType = Literal["years", "code", "stage", "centre"]
ClinicalValue = float | int | str | None
CENTRE: Final = "centre"
MOST_YEARS: Final = 120

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")


class ImpossibleValueError(ValueError):
    """A value that is present but cannot be true; the message says what was expected."""


@dataclass(frozen=True)
class ClinicalVariable:
    """One clinical variable.

    Attributes:
        name: name of the variable in `Patient.values`.
        key: the challenge's spelling, in `ehr.json` and in the tables.
        type: "years" (a number up to 120), "code" (a whole number), "stage" (such as M0) or "centre".
        aliases: further spellings of the key.
        codes: for a code, lowest and highest.
        words: for a code, texts and what they stand for, in small letters.
        stages: for a stage, its values in ascending order.
        feature: name of the feature that heads read, `name` unless given.
    """

    name: str
    key: str
    type: ClinicalType
    aliases: tuple[str, ...] = ()
    codes: tuple[int, int] = (0, 1)
    words: Mapping[str, int] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    feature: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every key under which the variable may stand."""
        return (self.key, *self.aliases)

    def read(self, raw: object) -> ClinicalValue:
        """The value, None where it is missing (null, NaN, an empty text or a word such as "unknown").

        Raises:
            ImpossibleValueError: a value that cannot be true.
        """
        return None if is_missing(raw) else _READERS[self.type](self, raw)

    def as_feature(self, value: ClinicalValue) -> float | None:
        """The value as a number for a head: a stage is its index; None is missing."""
        if value is None:
            return None
        return float(self.stages.index(str(value)) if self.type == "stage" else value)


def centre_code(text: str) -> str:
    """One spelling of a centre's code or number, however a table writes it."""
    text = text.strip().upper()
    whole = _WHOLE_NUMBER.fullmatch(text)  # a table with gaps writes 3 as 3.0
    return whole[1] if whole else text


def is_missing(raw: object) -> bool:
    """Whether a value is missing: null, NaN, an empty text or a word such as "unknown"."""
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return True
    return isinstance(raw, str) and raw.strip().lower() in _MISSING_WORDS


def _number(raw: object, expected: str) -> float:
    if not isinstance(raw, int | float | str):
        raise ImpossibleValueError(expected)
    try:
        return float(raw.strip().replace(",", ".") if isinstance(raw, str) else raw)
    except (ValueError, OverflowError):
        raise ImpossibleValueError(expected) from None


def _code(variable: ClinicalVariable, raw: object) -> int:
    low, high = variable.codes
    expected = f"a whole number from {low} to {high}"
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word is not None and word in variable.words:
        return variable.words[word]
    number = _number(raw, expected)
    if not math.isfinite(number) or number != round(number) or not low <= number <= high:
        raise ImpossibleValueError(expected)
    return int(number)


def _years(_: ClinicalVariable, raw: object) -> float:
    expected = f"an age from 0 to {MOST_YEARS} years"
    number = _number(raw, expected)
    if isinstance(raw, bool) or not math.isfinite(number) or not 0 < number <= MOST_YEARS:
        raise ImpossibleValueError(expected)
    return number


def _stage(variable: ClinicalVariable, raw: object) -> str:
    text = str(raw).strip().upper().removeprefix("C").removeprefix("P").removesuffix(".0")
    for stage in variable.stages:
        if text in (stage, stage[1:]):
            return stage
    raise ImpossibleValueError(" or ".join(variable.stages))


def _centre(_: ClinicalVariable, raw: object) -> str:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ImpossibleValueError("a centre's code or number")
    return centre_code(str(raw))


_READERS: Final[dict[ClinicalType, Callable[[ClinicalVariable, Any], ClinicalValue]]] = {
    "years": _years,
    "code": _code,
    "stage": _stage,
    "centre": _centre,
}
