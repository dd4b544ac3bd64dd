"""Clinical variables: keys in `ehr.json` and in the release's tables, types, and how values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contract.documents import Document, Name, Text, UniqueTexts, Word, expect_keys

ClinicalType = Literal["years", "number", "code", "stage", "centre"]
ClinicalValue = float | int | str | None
CENTRE: Final = "centre"

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_MAX_AGE_YEARS: Final = 120
# Keys of each type beside name, key, type and aliases.
_KEYS_OF_TYPE: Final[Mapping[ClinicalType, tuple[str, ...]]] = {
    "years": ("feature",),
    "number": ("feature", "unit", "range"),
    "code": ("feature", "codes", "words"),
    "stage": ("feature", "stages"),
    "centre": (),
}


class ImpossibleValueError(ValueError):
    """A value that cannot be true; the message is the expectation, `fault` follows the value in a message."""

    fault = ""


class TextForNumberError(ImpossibleValueError):
    """A text in place of a number."""

    fault = " is not a number"


class ClinicalVariable(Document):
    """One clinical variable.

    Attributes:
        name: key in `Patient.values`.
        key: the challenge's key in `ehr.json` and in the tables.
        type: "years" (a number above 0, at most 120), "number" (of any unit), "code" (a whole number), "stage" (such as
            M0) or "centre".
        aliases: further spellings of the key.
        unit: unit of a number, such as kg.
        range: lowest and highest value of a number, both possible.
        codes: lowest and highest value of a code.
        words: lower-case texts that stand for a code.
        stages: values of a stage in ascending order.
        feature: name of the head feature, `name` by default.
    """

    name: Name
    key: Text
    type: ClinicalType
    aliases: UniqueTexts = ()
    unit: Text = "1"
    range: tuple[float, float] = (0.0, 1.0)
    codes: tuple[int, int] = (0, 1)
    words: dict[Word, int] = Field(default_factory=dict)
    stages: UniqueTexts = ()
    feature: Name = Field(default_factory=lambda fields: fields.get("name", ""))

    @model_validator(mode="after")
    def _check_type(self) -> ClinicalVariable:
        expect_keys(self, ("name", "key", "type"), ("aliases", *_KEYS_OF_TYPE[self.type]))
        if (self.type == "centre") != (self.name == CENTRE):
            raise ValueError(f"the name {CENTRE!r} for the centre alone, not {self.name!r} of type {self.type!r}")
        if self.type == "number" and not {"unit", "range"} <= self.model_fields_set:
            raise ValueError("the unit of a number as `unit`, and its lowest and highest value as `range`")
        if self.type == "stage" and not self.stages:
            raise ValueError("the values of a stage in ascending order as `stages`")
        return self

    @field_validator("range")
    @classmethod
    def _check_range(cls, limits: tuple[float, float]) -> tuple[float, float]:
        if limits[0] >= limits[1]:
            raise ValueError("two numbers, the lowest and the highest")
        return limits

    @field_validator("codes")
    @classmethod
    def _check_codes(cls, codes: tuple[int, int]) -> tuple[int, int]:
        if codes[0] >= codes[1]:
            raise ValueError("two whole numbers, the lowest and the highest")
        return codes

    @field_validator("words")
    @classmethod
    def _check_words(cls, words: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        low, high = info.data.get("codes", (0, 1))
        if not all(low <= code <= high for code in words.values()):
            raise ValueError(f"a whole number from {low} to {high} for each word")
        refuse_missing(words)
        return words

    @field_validator("stages")
    @classmethod
    def _check_stages(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        refuse_missing(stages)
        return stages

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


def refuse_missing(texts: Iterable[object]) -> None:
    """Raise ValueError, as pydantic's validators do, for a text that tables use for a missing value."""
    if missing := [str(text) for text in texts if is_missing(text)]:
        raise ValueError(f"texts other than {', '.join(missing)}, which means a missing value in tables")


def positive_number(raw: object) -> float:
    """A finite number above 0, also as text. Raises `ImpossibleValueError`."""
    return _number(raw, "a number above 0", lambda number: number > 0)


def _number(raw: object, expected: str, accepts: Callable[[float], bool]) -> float:
    """A finite number, also as text, that `accepts` allows; no truth value. Raises `ImpossibleValueError`."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ImpossibleValueError(expected)
    try:
        number = float(_with_point(raw.strip()) if isinstance(raw, str) else raw)
    except ValueError:
        raise TextForNumberError(expected) from None
    except OverflowError:
        raise ImpossibleValueError(expected) from None
    if not math.isfinite(number) or not accepts(number):
        raise ImpossibleValueError(expected)
    return number


def _with_point(text: str) -> str:
    """The text with a point for a decimal comma; ValueError if the comma could separate thousands, as in `1,095`."""
    if _PERHAPS_THOUSANDS.fullmatch(text):
        raise ValueError(text)
    return text.replace(",", ".")


def _code(variable: ClinicalVariable, raw: object) -> int:
    low, high = variable.codes
    expected = f"a whole number from {low} to {high}"
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word is not None and word in variable.words:
        return variable.words[word]
    raw = int(raw) if isinstance(raw, bool) else raw
    return int(_number(raw, expected, lambda number: number == round(number) and low <= number <= high))


def _years(_: ClinicalVariable, raw: object) -> float:
    expected = f"an age from 0 to {_MAX_AGE_YEARS} years"
    return _number(raw, expected, lambda number: 0 < number <= _MAX_AGE_YEARS)


def _free_number(variable: ClinicalVariable, raw: object) -> float:
    low, high = variable.range
    expected = f"a number from {low:g} to {high:g} {variable.unit}"
    return _number(raw, expected, lambda number: low <= number <= high)


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
    "number": _free_number,
    "code": _code,
    "stage": _stage,
    "centre": _centre,
}
