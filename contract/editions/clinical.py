"""Clinical variables: keys in `ehr.json` and in the release's tables, types, and how values are read."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from contract.documents import Document, Name, Text, UniqueTexts, Word, make_tag_reader
from contract.platform import compose

ClinicalValue = float | int | str | None
CENTRE: Final = "centre"

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_MAX_AGE_YEARS: Final = 120


class ImpossibleValueError(ValueError):
    """A value that cannot be true; the message is the expectation, `fault` follows the value in a message."""

    fault = ""


class TextForNumberError(ImpossibleValueError):
    """A text in place of a number."""

    fault = " is not a number"


class _Variable(Document):
    """Shared by clinical variables of all types.

    Attributes:
        name: key in `Patient.values`.
        key: the challenge's key in `ehr.json` and in the tables.
        type: chooses the model.
        aliases: further spellings of the key.
    """

    name: Name
    key: Text
    type: str
    aliases: UniqueTexts = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """The key and its aliases."""
        return (self.key, *self.aliases)

    def read(self, raw: object) -> ClinicalValue:
        """Read a value; None if it is missing (null, NaN, an empty text or a word such as "unknown").

        Raises:
            ImpossibleValueError: the value cannot be true.
        """
        return None if is_missing(raw) else self._read(raw)

    @abstractmethod
    def _read(self, raw: object) -> ClinicalValue:
        """The value of a `raw` one that is not missing. Raises `ImpossibleValueError`."""

    def as_feature(self, value: ClinicalValue) -> float | None:
        """The value as a number for a head; None if missing."""
        return None if value is None else float(value)


class _Measured(_Variable):
    """A variable with a value for heads; `feature` is its name there, `name` by default."""

    feature: Name = Field(default_factory=lambda fields: fields.get("name", ""))

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == CENTRE:
            raise ValueError(f"another name than {CENTRE!r}, which is that of the centre")
        return name


class Years(_Measured):
    """Years above 0, at most 120."""

    type: Literal["years"]

    def _read(self, raw: object) -> float:
        expected = f"an age from 0 to {_MAX_AGE_YEARS} years"
        return _number(raw, expected, lambda number: 0 < number <= _MAX_AGE_YEARS)


class FreeNumber(_Measured):
    """A number in `unit`, such as kg; `range` holds the lowest and the highest possible value."""

    type: Literal["number"]
    unit: Text
    range: tuple[float, float]

    @field_validator("range")
    @classmethod
    def _check_range(cls, limits: tuple[float, float]) -> tuple[float, float]:
        if limits[0] >= limits[1]:
            raise ValueError("two numbers, the lowest and the highest")
        return limits

    def _read(self, raw: object) -> float:
        low, high = self.range
        expected = f"a number from {low:g} to {high:g} {self.unit}"
        return _number(raw, expected, lambda number: low <= number <= high)


class CodedNumber(_Measured):
    """A whole number in `codes`, the lowest and the highest; `words` are lower-case texts that stand for a code."""

    type: Literal["code"]
    codes: tuple[int, int] = (0, 1)
    words: dict[Word, int] = Field(default_factory=dict)

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
        check_not_missing(words)
        return words

    def _read(self, raw: object) -> int:
        low, high = self.codes
        expected = f"a whole number from {low} to {high}"
        word = raw.strip().lower() if isinstance(raw, str) else None
        if word is not None and word in self.words:
            return self.words[word]
        raw = int(raw) if isinstance(raw, bool) else raw
        return int(_number(raw, expected, lambda number: number == round(number) and low <= number <= high))


class Stage(_Measured):
    """A stage such as M0; `stages` are its values in ascending order."""

    type: Literal["stage"]
    stages: Annotated[UniqueTexts, Field(min_length=1)]

    @field_validator("stages")
    @classmethod
    def _check_stages(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        check_not_missing(stages)
        return stages

    def _read(self, raw: object) -> str:
        text = str(raw).strip().upper().removeprefix("C").removeprefix("P").removesuffix(".0")
        for stage in self.stages:
            if text in (stage.upper(), stage[1:].upper()):
                return stage
        raise ImpossibleValueError(" or ".join(self.stages))

    def as_feature(self, value: ClinicalValue) -> float | None:
        """The index of the stage; None if missing."""
        return None if value is None else float(self.stages.index(str(value)))


class CentreCode(_Variable):
    """The patient's centre, which is no feature of a head."""

    name: Literal["centre"]
    type: Literal["centre"]

    @property
    def feature(self) -> str:
        """Its name."""
        return self.name

    def _read(self, raw: object) -> str:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ImpossibleValueError("a centre's code or number")
        return normalise_centre(str(raw))


ClinicalVariable: TypeAlias = Annotated[
    Annotated[Years, Tag("(years)")]
    | Annotated[FreeNumber, Tag("(number)")]
    | Annotated[CodedNumber, Tag("(code)")]
    | Annotated[Stage, Tag("(stage)")]
    | Annotated[CentreCode, Tag("(centre)")],
    Discriminator(
        make_tag_reader("type"),
        custom_error_type="clinical_type",
        custom_error_message="a clinical variable of type years, number, code, stage or centre",
    ),
]


def normalise_centre(text: str) -> str:
    """The centre's code in capitals, or its number without decimals, as text."""
    text = text.strip().upper()
    number = _WHOLE_NUMBER.fullmatch(text)  # pandas writes 3 as 3.0 in a column with gaps
    return number[1] if number else text


def normalise_key(key: object) -> str:
    """The key in lower case without blanks, `-`, `_` and other signs, for comparison."""
    return "".join(letter for letter in compose(str(key)).lower() if letter.isalnum())


def is_missing(raw: object) -> bool:
    """True if a value is missing: null, NaN, an empty text or a word such as "unknown"."""
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return True
    return isinstance(raw, str) and raw.strip().lower() in _MISSING_WORDS


def check_not_missing(texts: Iterable[object]) -> None:
    """Raise ValueError, as pydantic's validators do, for a text that tables use for a missing value."""
    if missing := [str(text) for text in texts if is_missing(text)]:
        raise ValueError(f"texts other than {', '.join(missing)}, which means a missing value in tables")


def parse_positive_number(raw: object) -> float:
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
