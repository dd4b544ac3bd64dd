"""Clinical variables: keys in `ehr.json` and in the release's tables, types, and how values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

ClinicalType = Literal["years", "code", "stage", "centre"]
ClinicalValue = float | int | str | None
CLINICAL_TYPES: Final[tuple[ClinicalType, ...]] = get_args(ClinicalType)
CENTRE: Final = "centre"

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_MAX_AGE_YEARS: Final = 120


class ImpossibleValueError(ValueError):
    """A value that cannot be true; the message is the expectation."""


@dataclass(frozen=True)
class ClinicalVariable:
    """One clinical variable.

    Attributes:
        name: key in `Patient.values`.
        key: the challenge's key in `ehr.json` and in the tables.
        type: "years" (a number above 0, at most 120), "code" (a whole number), "stage" (such as M0) or "centre".
        aliases: further spellings of the key.
        codes: lowest and highest value of a code.
        words: lower-case texts that stand for a code.
        stages: values of a stage in ascending order.
        feature: name of the head feature, `name` by default.
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
        """The key and its aliases."""
        return (self.key, *self.aliases)

    def read(self, raw: object) -> ClinicalValue:
        """Read a value; None if it is missing (null, NaN, an empty text or a word such as "unknown").

        Raises:
            ImpossibleValueError: the value cannot be true.
        """
        return None if is_missing(raw) else _READERS[self.type](self, raw)

    def as_feature(self, value: ClinicalValue) -> float | None:
        """The value as a number for a head: the index of a stage; None if missing."""
        if value is None:
            return None
        return float(self.stages.index(str(value)) if self.type == "stage" else value)


def centre_code(text: str) -> str:
    """The centre's code in capitals, or its number without decimals, as text."""
    text = text.strip().upper()
    number = _WHOLE_NUMBER.fullmatch(text)  # pandas writes 3 as 3.0 in a column with gaps
    return number[1] if number else text


def normalised_key(key: object) -> str:
    """The key in lower case without blanks, `-`, `_` and other signs, for comparison."""
    return "".join(letter for letter in str(key).lower() if letter.isalnum())


def is_missing(raw: object) -> bool:
    """Whether a value is missing: null, NaN, an empty text or a word such as "unknown"."""
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return True
    return isinstance(raw, str) and raw.strip().lower() in _MISSING_WORDS


def positive_number(raw: object) -> float:
    """A finite number above 0, also as text. Raises `ImpossibleValueError`."""
    expected = "a number above 0"
    number = _number(raw, expected)
    if isinstance(raw, bool) or not math.isfinite(number) or number <= 0:
        raise ImpossibleValueError(expected)
    return number


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
    expected = f"an age from 0 to {_MAX_AGE_YEARS} years"
    number = _number(raw, expected)
    if isinstance(raw, bool) or not math.isfinite(number) or not 0 < number <= _MAX_AGE_YEARS:
        raise ImpossibleValueError(expected)
    return number


def _stage(variable: ClinicalVariable, raw: object) -> str:
    text = str(raw).strip().upper().removeprefix("C").removeprefix("P").removesuffix(".0")
    for stage in variable.stages:
        if text in (stage.upper(), stage[1:].upper()):
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
