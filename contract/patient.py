"""Clinical variables of one patient, read from `ehr.json` or a row of the release's tables; and patients' IDs.

Both use the keys of the edition and spell values in many ways: absent, null, "", NaN, numbers as text, `0` and `0.0`.
Here `None` means missing, and each other value has one spelling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contract.editions.clinical import (
    CENTRE,
    ClinicalValue,
    ClinicalVariable,
    ImpossibleValueError,
    is_missing,
    normalise_key,
    parse_positive_number,
)
from contract.errors import Finding, InputError
from contract.io.files import MAX_JSON_BYTES, parse_json, read_text, remove_trailing_commas

_IGNORED_KEYS: Final = frozenset({"PatientID"})
# CHUV-001, or CHUV001 in capitals: names such as case001 hold no centre.
_ID_WITH_CENTRE: Final = re.compile(r"([A-Za-z]+)-\d.*|([A-Z]{2,})_?\d.*")
# IDs that are compared for a hint; a table may hold a million.
_MOST_COMPARED: Final = 50


@dataclass(frozen=True)
class Patient:
    """Clinical variables by their declared names; a variable that is None or absent is missing.

    `centre` is the centre's code in capitals, or its number as text.
    """

    values: Mapping[str, ClinicalValue] = field(default_factory=dict)
    centre: str | None = None

    def as_json(self) -> dict[str, ClinicalValue]:
        """Variables and centre in one flat object."""
        return {**self.values, CENTRE: self.centre}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Patient:
        """The patient that `as_json` wrote."""
        return cls({name: value for name, value in content.items() if name != CENTRE}, content.get(CENTRE))


@dataclass(frozen=True)
class PatientRecord:
    """A patient, the warnings from reading the record, and the factor from Bq/ml to SUV if the record gives one.

    `missing` is the one of the warnings that names the variables without a value, None if there are none.
    """

    patient: Patient
    warnings: tuple[Finding, ...]
    suv_factor: float | None = None
    missing: Finding | None = None


def read_ehr(path: Path, clinical: Sequence[ClinicalVariable], suv_factor: Sequence[str] = ()) -> PatientRecord:
    """Read `ehr.json` with an edition's `clinical` variables and the key of its `suv_factor`.

    A comma before a closing bracket is ignored with a warning.

    Raises:
        InputError: the file is absent or not a JSON object. A missing or impossible value is not an error but a
            warning in the record.
    """
    text = read_text(path, "a JSON file", error=InputError, max_bytes=MAX_JSON_BYTES)
    warnings: tuple[Finding, ...] = ()
    try:
        content = parse_json(text, path.name, accept_nan=True)
    except InputError as problem:
        try:
            content = parse_json(remove_trailing_commas(text), path.name, accept_nan=True)
        except InputError:
            raise problem from None
        warnings = (Finding(path.name, "a comma before a closing bracket", "standard JSON", "the comma is ignored"),)
    if not isinstance(content, dict):
        raise InputError(path.name, f"found a JSON {type(content).__name__}", "an object")
    record = parse_ehr(content, path.name, clinical, suv_factor)
    return replace(record, warnings=warnings + record.warnings)


def parse_ehr(
    content: Mapping[str, Any], source: str, clinical: Sequence[ClinicalVariable], suv_factor: Sequence[str] = ()
) -> PatientRecord:
    """Read clinical variables, and the factor whose key has the spellings `suv_factor`, from a mapping.

    Keys match regardless of case, blanks, `-` and `_`. An unknown key is ignored with a warning, an impossible value
    counts as missing with a warning; warnings name `source`.
    """
    known = {normalise_key(spelling): variable for variable in clinical for spelling in variable.spellings}
    factor_keys = {normalise_key(spelling) for spelling in suv_factor}
    values: dict[str, ClinicalValue] = dict.fromkeys(variable.name for variable in clinical)
    warnings: list[Finding] = []
    unreadable: set[str] = set()
    factor = None
    for key, raw in content.items():
        if normalise_key(key) in factor_keys:
            value, fault = _factor(raw, source, key)
            factor = value if factor is None else factor
            warnings += fault
            continue
        variable = known.get(normalise_key(key))
        if variable is None:
            if key not in _IGNORED_KEYS:
                warnings.append(Finding(source, f"unknown key {str(key)[:60]!r}", action="ignored"))
            continue
        try:
            values[variable.name] = variable.read(raw)
        except ImpossibleValueError as problem:
            found = f"{variable.key} {_shown(raw)}{problem.fault}"
            unreadable.add(variable.name)
            warnings.append(Finding(source, found, str(problem), "counts as missing"))
    absent = [one.key for one in clinical if values[one.name] is None and one.name not in {CENTRE, *unreadable}]
    missing = Finding(source, f"missing {', '.join(absent)}") if absent else None
    warnings += [missing] if missing else []
    centre = values.pop(CENTRE, None)
    return PatientRecord(Patient(values, None if centre is None else str(centre)), tuple(warnings), factor, missing)


def _factor(raw: Any, source: str, key: str) -> tuple[float | None, list[Finding]]:
    """The factor from Bq/ml to SUV, None if it is missing; a warning if it is impossible."""
    if is_missing(raw):
        return None, []
    try:
        return parse_positive_number(raw), []
    except ImpossibleValueError as problem:
        return None, [Finding(source, f"{key} {_shown(raw)}{problem.fault}", str(problem), "counts as missing")]


def _shown(raw: Any) -> str:
    # Python refuses to print an integer of thousands of digits.
    if isinstance(raw, int) and abs(raw) > 10**40:
        return "a huge integer"
    return repr(str(raw)[:40])


def parse_centre(patient_id: str) -> str:
    """The centre in an ID such as `CHUV-001` or `CHUV001`, in capitals; empty if the ID has none."""
    match = _ID_WITH_CENTRE.fullmatch(patient_id)
    return (match[1] or match[2]).upper() if match else ""


def find_centres(patients: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The centre of each patient for whom it is known: that of a table, `given`, before the one in the ID.

    If all patients of one centre by ID have one code in the table, a patient without a code gets it, too.
    """
    codes: dict[str, set[str]] = {}
    for patient, code in given.items():
        codes.setdefault(parse_centre(patient), set()).add(code)
    only_code = {by_id: min(of_centre) for by_id, of_centre in codes.items() if by_id and len(of_centre) == 1}
    by_ids = {patient: parse_centre(patient) for patient in patients}
    centres = {patient: given.get(patient) or only_code.get(by_id, by_id) for patient, by_id in by_ids.items()}
    return {patient: centre for patient, centre in centres.items() if centre}


def format_names(names: Collection[str], most: int = 3) -> str:
    """The first names and the number of the others, for messages."""
    others = len(names) - most
    return ", ".join(list(names)[:most]) + (f" and {others} more" if others > 0 else "")


def describe_id_difference(found: Iterable[str], expected: Iterable[str]) -> str:
    """The end of a message: how an ID of `found` differs from one of `expected` that seems to mean the same patient.

    Empty without such a pair.
    """
    names = [*expected]
    for one in [*found][:_MOST_COMPARED]:
        for other in names:
            if how := _difference(one, other):
                return f"; {one} differs from {other} {how}"
    return ""


def _difference(one: str, other: str) -> str:
    if normalise_key(one) == normalise_key(other):
        return "in upper and lower case" if one.lower() == other.lower() else "in signs such as - and _"
    long, short = (one, other) if len(one) > len(other) else (other, one)
    ending, prefix = long[len(short) :], long[: len(long) - len(short)]
    if short and long.lower().startswith(short.lower()) and not ending[0].isalnum():
        return f"by the ending {ending!r}"
    if short and long.lower().endswith(short.lower()) and not prefix[-1].isalnum():
        return f"by the prefix {prefix!r}"
    return ""
