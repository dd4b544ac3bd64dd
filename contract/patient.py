"""The clinical variables of one patient, in which missing is explicit.

`ehr.json` and the release's CSV files use the same names (`EHR_KEYS`) and reach here in many spellings:
absent, null, "", NaN, a number as a string, `0` against `0.0`. One value means one thing: `None` is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from contract.errors import InputError
from contract.files import read_json


@dataclass(frozen=True)
class Patient:
    """Clinical variables; `None` is missing.

    `gender` is 1 for male, 0 for female; `tobacco`, `alcohol` 1 for consumption; `performance_status` the
    ECOG grade 0 to 4; `treatment` 1 for chemoradiotherapy, 0 for radiotherapy alone; `m_stage` "M0" or "M1";
    `centre` the release's centre code in capitals, or its number, as text.
    """

    age_years: float | None = None
    gender: int | None = None
    tobacco: int | None = None
    alcohol: int | None = None
    performance_status: int | None = None
    treatment: int | None = None
    m_stage: str | None = None
    centre: str | None = None

    def missing(self) -> tuple[str, ...]:
        """Names of the variables that are missing, in declaration order."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is None)


@dataclass(frozen=True)
class PatientRecord:
    """A patient with what was odd about the record: one warning a line, none where all was plain."""

    patient: Patient
    warnings: tuple[str, ...]


EHR_KEYS: Final[dict[str, str]] = {
    "age_years": "Age",
    "gender": "Gender",
    "tobacco": "Tobacco Consumption",
    "alcohol": "Alcohol Consumption",
    "performance_status": "Performance Status",
    "treatment": "Treatment",
    "m_stage": "M-stage",
    "centre": "CenterID",
}

_MISSING_WORDS: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_YES_NO: Final = {"yes": 1, "no": 0, "true": 1, "false": 0}
_GENDERS: Final = {"m": 1, "male": 1, "f": 0, "female": 0}
_CENTRE_KEYS: Final = ("CenterID", "Center")
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_IGNORED_KEYS: Final = frozenset({"PatientID"})


class _ImpossibleValueError(ValueError):
    """A value that is present but cannot be true."""


def read_ehr(path: Path) -> PatientRecord:
    """Read `ehr.json`.

    Raises:
        InputError: the file is absent, no JSON, or no JSON object. A missing or impossible value is no error
            but a warning in the record.
    """
    content = read_json(path, accept_nan=True)
    if not isinstance(content, dict):
        raise InputError(f"{path.name}: found a JSON {type(content).__name__}, expected an object")
    return parse_ehr(content, path.name)


def parse_ehr(content: Mapping[str, Any], source: str) -> PatientRecord:
    """Read clinical variables from a mapping with the release's column names.

    Keys are matched without regard to case, blanks, `-` and `_`. An unknown key or an impossible value gives
    a warning that names `source`; the value then counts as missing.
    """
    known = {_plain(key): field for field, key in EHR_KEYS.items()} | {_plain(k): "centre" for k in _CENTRE_KEYS}
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for key, raw in content.items():
        field = known.get(_plain(key))
        if field is None:
            if key not in _IGNORED_KEYS:
                warnings.append(f"{source}: unknown key {str(key)[:60]!r} is ignored")
            continue
        try:
            values[field] = None if _is_missing(raw) else _READERS[field](raw)
        except _ImpossibleValueError as problem:
            warnings.append(f"{source}: {EHR_KEYS[field]} {_shown(raw)}, expected {problem}; counts as missing")
    patient = Patient(**values)
    absent = [EHR_KEYS[name] for name in patient.missing() if name != "centre"]
    if absent:
        warnings.append(f"{source}: missing {', '.join(absent)}")
    return PatientRecord(patient, tuple(warnings))


def _shown(raw: Any) -> str:
    # Text of an integer with thousands of digits is refused by Python itself.
    if isinstance(raw, int) and abs(raw) > 10**40:
        return "a huge integer"
    return repr(str(raw)[:40])


def _plain(key: object) -> str:
    return "".join(letter for letter in str(key).lower() if letter.isalnum())


def _is_missing(raw: Any) -> bool:
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return True
    return isinstance(raw, str) and raw.strip().lower() in _MISSING_WORDS


def _number(raw: Any, expected: str) -> float:
    if not isinstance(raw, int | float | str):
        raise _ImpossibleValueError(expected)
    try:
        return float(raw.strip().replace(",", ".") if isinstance(raw, str) else raw)
    except (ValueError, OverflowError):
        raise _ImpossibleValueError(expected) from None


def _whole(raw: Any, low: int, high: int, words: Mapping[str, int]) -> int:
    expected = f"a whole number from {low} to {high}"
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word is not None and word in words:
        return words[word]
    number = _number(raw, expected)
    if not math.isfinite(number) or number != round(number) or not low <= number <= high:
        raise _ImpossibleValueError(expected)
    return int(number)


def _age(raw: Any) -> float:
    expected = "an age from 0 to 120 years"
    number = _number(raw, expected)
    if isinstance(raw, bool) or not math.isfinite(number) or not 0 < number <= 120:
        raise _ImpossibleValueError(expected)
    return number


def _m_stage(raw: Any) -> str:
    text = str(raw).strip().upper().removeprefix("C").removeprefix("P")
    stage = {"M0": "M0", "0": "M0", "0.0": "M0", "M1": "M1", "1": "M1", "1.0": "M1"}.get(text)
    if stage is None:
        raise _ImpossibleValueError("M0 or M1")
    return stage


def centre_code(text: str) -> str:
    """One spelling of a centre's code or number, however a table writes it."""
    text = text.strip().upper()
    whole = _WHOLE_NUMBER.fullmatch(text)  # a table with gaps writes 3 as 3.0
    return whole[1] if whole else text


def _centre(raw: Any) -> str:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise _ImpossibleValueError("a centre's code or number")
    return centre_code(str(raw))


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "age_years": _age,
    "gender": lambda raw: _whole(raw, 0, 1, _GENDERS),
    "tobacco": lambda raw: _whole(raw, 0, 1, _YES_NO),
    "alcohol": lambda raw: _whole(raw, 0, 1, _YES_NO),
    "performance_status": lambda raw: _whole(raw, 0, 4, {}),
    "treatment": lambda raw: _whole(raw, 0, 1, {}),
    "m_stage": _m_stage,
    "centre": _centre,
}
