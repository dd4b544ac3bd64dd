"""Read the clinical variables of a patient from `ehr.json` or from a row of a table, and compare patients' IDs.

Files use the keys of the edition and spell values in many ways: absent, null, "", NaN, numbers as strings, `0` and
`0.0`. Here `None` means missing, and every value has only one spelling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
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
# CHUV-001, or CHUV001 in upper case: a name such as case001 contains no centre.
_ID_WITH_CENTRE: Final = re.compile(r"([A-Za-z]+)-\d.*|([A-Z]{2,})_?\d.*")
# Maximum number of IDs that are compared for a hint; a table may contain a million.
_MAX_COMPARED_IDS: Final = 50
# Python refuses to print an integer of thousands of digits.
_MAX_PRINTED_INTEGER: Final = 10**40


@dataclass(frozen=True)
class Patient:
    """Clinical variables of one patient.

    Attributes:
        values: Values by the declared name of a variable. A variable that is None or absent is missing.
        centre: The centre's code in upper case, or its number as a string; None if it is not known.
    """

    values: Mapping[str, ClinicalValue] = field(default_factory=dict)
    centre: str | None = None

    def as_json(self) -> dict[str, ClinicalValue]:
        """Return variables and centre as one flat object."""
        return {**self.values, CENTRE: self.centre}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Patient:
        """Restore a patient from the object that `as_json` returned."""
        return cls({name: value for name, value in content.items() if name != CENTRE}, content.get(CENTRE))


@dataclass(frozen=True)
class PatientRecord:
    """A patient as a file describes it.

    Attributes:
        patient: The clinical variables.
        warnings: Everything about the file that the user should know, `missing` included.
        suv_factor: Factor from Bq/ml to SUV; None if the file gives no factor.
        missing: Names the variables without a value; None if every variable has a value.
    """

    patient: Patient
    warnings: tuple[Finding, ...]
    suv_factor: float | None = None
    missing: Finding | None = None


def read_ehr(path: Path, clinical: Sequence[ClinicalVariable], suv_factor: Sequence[str] = ()) -> PatientRecord:
    """Read `ehr.json`. A comma before a closing bracket is ignored with a warning.

    Args:
        path: The file.
        clinical: Clinical variables of the edition.
        suv_factor: Spellings of the key that contains the factor from Bq/ml to SUV.

    Returns:
        The record. A missing or impossible value is not an error but a warning in the record.

    Raises:
        InputError: The file does not exist or is not a JSON object.
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
    """Read the clinical variables of one patient from a mapping, such as a row of a table.

    Keys match regardless of case, blanks, `-` and `_`. An unknown key is ignored with a warning. An impossible value
    counts as missing with a warning. If several spellings of a key have values, the first value counts, and a warning
    names a value that differs from it.

    Args:
        content: Values by key.
        source: Name of the file in warnings.
        clinical: Clinical variables of the edition.
        suv_factor: Spellings of the key that contains the factor from Bq/ml to SUV.
    """
    variable_of = {normalise_key(spelling): variable for variable in clinical for spelling in variable.spellings}
    factor_keys = {normalise_key(spelling) for spelling in suv_factor}
    values: dict[str, ClinicalValue] = dict.fromkeys(variable.name for variable in clinical)
    factor: float | None = None
    warnings: list[Finding] = []
    impossible: set[str] = set()
    for key, raw in content.items():
        variable = variable_of.get(normalise_key(key))
        if variable is None and normalise_key(key) not in factor_keys:
            if key not in _IGNORED_KEYS:
                warnings.append(Finding(source, f"unknown key {str(key)[:60]!r}", action="ignored"))
            continue
        try:
            if variable is not None:
                value, earlier = variable.read(raw), values[variable.name]
                values[variable.name] = value if earlier is None else earlier
            else:
                value, earlier = None if is_missing(raw) else parse_positive_number(raw), factor
                factor = value if earlier is None else earlier
            if earlier is not None and value not in (None, earlier):
                actual = f"{key} {_format_value(raw)} in addition to {_format_value(earlier)}"
                warnings.append(Finding(source, actual, "one value", "the first one is used"))
        except ImpossibleValueError as problem:
            if variable is not None:
                impossible.add(variable.name)
            name = key if variable is None else variable.key
            actual = f"{name} {_format_value(raw)}{problem.suffix}"
            warnings.append(Finding(source, actual, str(problem), "counts as missing"))
    missing_variables = [variable for variable in clinical if values[variable.name] is None]
    missing_keys = [variable.key for variable in missing_variables if variable.name not in {CENTRE, *impossible}]
    missing = Finding(source, f"missing {', '.join(missing_keys)}") if missing_keys else None
    if missing is not None:
        warnings.append(missing)
    centre = values.pop(CENTRE, None)
    return PatientRecord(Patient(values, None if centre is None else str(centre)), tuple(warnings), factor, missing)


def _format_value(raw: Any) -> str:
    if isinstance(raw, int) and abs(raw) > _MAX_PRINTED_INTEGER:
        return "a huge integer"
    return repr(str(raw)[:40])


def parse_centre(patient_id: str) -> str:
    """Extract the centre from an ID such as `CHUV-001` or `CHUV001`, in upper case; empty if the ID names no centre."""
    match = _ID_WITH_CENTRE.fullmatch(patient_id)
    return (match[1] or match[2]).upper() if match else ""


def find_centres(patient_ids: Iterable[str], code_of: Mapping[str, str]) -> dict[str, str]:
    """Find the centre of each patient from a table or from the ID.

    A code in the table takes precedence. If all patients whose IDs name the same centre have the same code in the
    table, a patient of this centre without a code gets this code, too.

    Args:
        patient_ids: The patients.
        code_of: Code of the centre by patient ID, from a table.

    Returns:
        The centre by patient ID, without patients whose centre is not known.
    """
    codes: dict[str, set[str]] = {}
    for patient_id, code in code_of.items():
        codes.setdefault(parse_centre(patient_id), set()).add(code)
    only_code = {centre: min(in_table) for centre, in_table in codes.items() if centre and len(in_table) == 1}
    centre_of = {}
    for patient_id in patient_ids:
        centre_by_id = parse_centre(patient_id)
        centre = code_of.get(patient_id) or only_code.get(centre_by_id, centre_by_id)
        if centre:
            centre_of[patient_id] = centre
    return centre_of


def format_names(names: Collection[str], max_names: int = 3) -> str:
    """List the first names and the number of the remaining names, for messages."""
    rest = len(names) - max_names
    return ", ".join(list(names)[:max_names]) + (f" and {rest} more" if rest > 0 else "")


def describe_id_difference(ids: Iterable[str], expected_ids: Iterable[str]) -> str:
    """Describe how an ID differs from an expected ID that seems to mean the same patient.

    Returns:
        The end of a message; empty if no two IDs seem to mean the same patient.
    """
    candidates = list(expected_ids)
    for patient_id in islice(ids, _MAX_COMPARED_IDS):
        for candidate in candidates:
            difference = _describe_spelling(patient_id, candidate)
            if difference:
                return f"; {patient_id} differs from {candidate} {difference}"
    return ""


def _describe_spelling(first: str, second: str) -> str:
    """Describe the difference of two spellings of one ID; empty if they do not seem to mean the same patient."""
    if normalise_key(first) == normalise_key(second):
        return "in upper and lower case" if first.lower() == second.lower() else "in characters such as - and _"
    long, short = (first, second) if len(first) > len(second) else (second, first)
    if not short:
        return ""
    ending, prefix = long[len(short) :], long[: len(long) - len(short)]
    if long.lower().startswith(short.lower()) and not ending[0].isalnum():
        return f"by the ending {ending!r}"
    if long.lower().endswith(short.lower()) and not prefix[-1].isalnum():
        return f"by the prefix {prefix!r}"
    return ""
