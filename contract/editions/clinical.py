"""Clinical variables as an edition declares them: keys in `ehr.json` and in tables, types, and reading of values."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from contract.documents import Document, Name, Text, UniqueTexts, Word, make_tag_reader
from contract.platform import normalise_unicode

ClinicalValue = float | int | str | None
CENTRE: Final = "centre"

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_MAX_AGE_YEARS: Final = 120
_ROMAN_DIGITS: Final = frozenset("IVX")


class ImpossibleValueError(ValueError):
    """A value that is impossible for its variable.

    The exception's text states the expectation. `suffix` follows the value in a message.
    """

    suffix = ""


class TextForNumberError(ImpossibleValueError):
    """A text in place of a number."""

    suffix = " is not a number"


class _Variable(Document):
    """Base of the clinical variables of all types.

    Attributes:
        name: Key in `Patient.values`.
        key: The challenge's key in `ehr.json` and in the tables.
        type: Type of the variable, which selects the class.
        aliases: Further spellings of the key.
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
        """Read a value; return None if it is missing (null, NaN, an empty string or a word such as "unknown").

        Raises:
            ImpossibleValueError: The value is impossible for this variable.
        """
        return None if is_missing(raw) else self._read(raw)

    @abstractmethod
    def _read(self, raw: object) -> ClinicalValue:
        """Read a value that is not missing; raise `ImpossibleValueError` if it is impossible."""

    def as_feature(self, value: ClinicalValue) -> float | None:
        """Return the value as a number for a head; None if it is missing."""
        return None if value is None else float(value)


class _FeatureVariable(_Variable):
    """A variable that heads use; `feature` is its name as a feature, by default `name`."""

    feature: Name = Field(default_factory=lambda fields: fields.get("name", ""))

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == CENTRE:
            raise ValueError(f"another name than {CENTRE!r}, which is the name of the centre")
        return name


class Years(_FeatureVariable):
    """An age above 0 and up to 120 years."""

    type: Literal["years"]

    def _read(self, raw: object) -> float:
        expected = f"an age above 0 and up to {_MAX_AGE_YEARS} years"
        return _parse_number(raw, expected, lambda number: 0 < number <= _MAX_AGE_YEARS)


class FreeNumber(_FeatureVariable):
    """A number in a unit such as kg; `range` contains the lowest and the highest possible value."""

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
        return _parse_number(raw, expected, lambda number: low <= number <= high)


class CodedNumber(_FeatureVariable):
    """A whole number that is a code.

    Attributes:
        codes: The lowest and the highest code.
        words: Codes by the lower-case words that stand for them.
    """

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
        check_no_missing_words(words)
        return words

    def _read(self, raw: object) -> int:
        low, high = self.codes
        expected = f"a whole number from {low} to {high}"
        if isinstance(raw, str) and raw.strip().lower() in self.words:
            return self.words[raw.strip().lower()]
        raw = int(raw) if isinstance(raw, bool) else raw
        return int(_parse_number(raw, expected, lambda number: number == round(number) and low <= number <= high))


class Stage(_FeatureVariable):
    """A stage such as M0; `stages` are its values in ascending order.

    cM0, pM0 and 0 are read as M0.
    """

    type: Literal["stage"]
    stages: Annotated[UniqueTexts, Field(min_length=1)]

    @field_validator("stages")
    @classmethod
    def _check_stages(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        check_no_missing_words(stages)
        return stages

    def _read(self, raw: object) -> str:
        text = str(raw).strip().upper().removesuffix(".0")
        without_prefix = text.removeprefix("C").removeprefix("P")
        for spelling in (text, without_prefix, self._shared_letter + without_prefix):
            for stage in self.stages:
                if spelling == stage.upper():
                    return stage
        raise ImpossibleValueError(" or ".join(self.stages))

    @property
    def _shared_letter(self) -> str:
        """The first letter of all stages, which tables may leave out; empty if it is part of a Roman numeral."""
        letters = {stage[0].upper() for stage in self.stages}
        return letters.pop() if len(letters) == 1 and letters.isdisjoint(_ROMAN_DIGITS) else ""

    def as_feature(self, value: ClinicalValue) -> float | None:
        """Return the position of the stage in `stages`; None if it is missing."""
        return None if value is None else float(self.stages.index(str(value)))


class CentreCode(_Variable):
    """The patient's centre, which heads do not use."""

    name: Literal["centre"]
    type: Literal["centre"]

    @property
    def feature(self) -> str:
        """The name of the variable."""
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
    """Return the centre's code in upper case, or its number as a string without decimals."""
    text = text.strip().upper()
    number = _WHOLE_NUMBER.fullmatch(text)  # pandas writes 3 as 3.0 in a column with gaps
    return number[1] if number else text


def normalise_key(key: object) -> str:
    """Return only the letters and digits of a key, in lower case, so that spellings can be compared."""
    return "".join(character for character in normalise_unicode(str(key)).lower() if character.isalnum())


def is_missing(raw: object) -> bool:
    """Return whether a value is missing: null, NaN, an empty string or a word such as "unknown"."""
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return True
    return isinstance(raw, str) and raw.strip().lower() in _MISSING_WORDS


def check_no_missing_words(texts: Iterable[object]) -> None:
    """Check that no word stands for a missing value in tables; raise ValueError, as pydantic's validators do."""
    missing = [str(text) for text in texts if is_missing(text)]
    if missing:
        raise ValueError(f"texts other than {', '.join(missing)}, which means a missing value in tables")


def parse_positive_number(raw: object) -> float:
    """Read a finite number above 0, or a string that contains one; raise `ImpossibleValueError` for any other value."""
    return _parse_number(raw, "a number above 0", lambda number: number > 0)


def _parse_number(raw: object, expected: str, is_possible: Callable[[float], bool]) -> float:
    """Read a finite number, or a string that contains one, but not a boolean.

    Raises:
        ImpossibleValueError: The value is no such number, or `is_possible` is false for it. The text is `expected`.
    """
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ImpossibleValueError(expected)
    try:
        number = float(_replace_decimal_comma(raw.strip()) if isinstance(raw, str) else raw)
    except ValueError:
        raise TextForNumberError(expected) from None
    except OverflowError:
        raise ImpossibleValueError(expected) from None
    if not math.isfinite(number) or not is_possible(number):
        raise ImpossibleValueError(expected)
    return number


def _replace_decimal_comma(text: str) -> str:
    """Replace a decimal comma by a point; raise ValueError if the comma may separate thousands, as in `1,095`."""
    if _PERHAPS_THOUSANDS.fullmatch(text):
        raise ValueError(text)
    return text.replace(",", ".")
