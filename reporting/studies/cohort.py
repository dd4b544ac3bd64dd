"""`hecktor study cohort`: patients, volumes, SUVmax, nodes, stages and outcomes by split and by centre."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from contract import labels
from contract.editions import AnswerSpec, Edition, load_edition
from contract.editions.clinical import CENTRE, ImpossibleValueError
from contract.errors import HecktorError
from contract.options import add_edition_option
from contract.patient import find_centres, format_names
from contract.release.tables import ID_COLUMN, read_columns, read_table
from evaluation.editions.profile import load_profile
from evaluation.inputs.tables import parse_class, parse_flag, parse_number
from evaluation.metrics.lesions import label_components
from evaluation.options import add_workers_option, parse_name_path
from evaluation.statistics.intervals import quartiles
from reporting.analyses.scans import PatientFiles, find_scans, list_tables
from reporting.studies.outputs import StudyResult, collect_named_inputs, measure_cases
from reporting.studies.scans import read_tumour

ALL: Final = "all"
# Larger numbers of nodes are counted as one value, "3 or more".
_MAX_COUNTED_NODES: Final = 3
# Figures of one patient by column: numbers are summarised by quartiles, strings are counted.
Values = Mapping[str, float | str]


@dataclass(frozen=True)
class CohortPatient:
    """Figures of one patient; `centre` is empty if it is unknown."""

    split: str
    centre: str
    values: Values


def measure_patient(scans: PatientFiles, connectivity: int) -> dict[str, float | str]:
    """Measure volume in ml and SUVmax of GTVp and GTVn if present, and the number of GTVn lesions as a string.

    Raises:
        GroundTruthError: The mask or the PET cannot be used.
    """
    tumour = read_tumour(scans)
    values: dict[str, float | str] = {}
    for label, name in ((labels.GTVP, "gtvp"), (labels.GTVN, "gtvn")):
        part = tumour.labels == label
        if part.any():
            values[f"{name}_volume_ml"] = int(part.sum()) * tumour.voxel_ml
            values[f"{name}_suv_max"] = float(tumour.uptake[part].max())
    nodes = label_components(tumour.labels == labels.GTVN, connectivity)[1] if tumour.labels.size else 0
    values["nodes"] = f"{_MAX_COUNTED_NODES} or more" if nodes >= _MAX_COUNTED_NODES else str(nodes)
    return values


def run_cohort(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure every case of every split, add the tables, and summarise each split, each centre and both together."""
    folders = collect_named_inputs(options.splits, "split", min_count=1)
    edition = load_edition(options.edition)
    if ALL in folders:
        raise HecktorError("splits", f"a split named {ALL!r}", f"another name: {ALL!r} is the row of all splits")
    scans_of_split = {split: find_scans(folder, edition) for split, folder in folders.items()}
    scans = [files for split_scans in scans_of_split.values() for files in split_scans]
    cases = [files.case for files in scans]
    repeated = next((case for case in cases if cases.count(case) > 1), None)
    if repeated is not None:
        raise HecktorError(repeated, "in two splits", "each patient in one split")
    work = partial(measure_patient, connectivity=load_profile(options.edition).mask_rules.connectivity)
    measured = dict(zip(cases, measure_cases(work, scans, options.workers, action="read it"), strict=True))
    tables = options.table or _find_tables(folders.values(), edition)
    table_rows = _read_tables(tables, edition, cases)
    if options.table and not table_rows:
        raise HecktorError("--table", "no patient of the splits", f"rows of {format_names(sorted(cases))}")
    stated_centres = {case: str(row.pop(CENTRE)) for case, row in table_rows.items() if CENTRE in row}
    centre_by_case = find_centres(cases, stated_centres)
    patients = [
        CohortPatient(
            split, centre_by_case.get(files.case, ""), {**measured[files.case], **table_rows.get(files.case, {})}
        )
        for split, split_scans in scans_of_split.items()
        for files in split_scans
    ]
    lines = summarise_groups(patients)
    without_row = sorted(set(cases) - set(table_rows)) if tables else []
    content = {
        "splits": {split: len(split_scans) for split, split_scans in scans_of_split.items()},
        "groups": lines,
        "without_row": without_row,
    }
    note = f"without a row in the tables: {format_names(without_row)}; " if without_row else ""
    return StudyResult(content, lines, f"{len(cases)} patients, {len(set(centre_by_case.values()))} centres; {note}")


def summarise_groups(patients: Sequence[CohortPatient]) -> list[dict[str, Any]]:
    """Return one line for each split, each centre, each centre within a split, and the whole cohort."""
    splits = list(dict.fromkeys(patient.split for patient in patients))
    if len(splits) > 1:
        splits.append(ALL)
    centres = sorted({patient.centre for patient in patients if patient.centre})
    columns = _list_columns([patient.values for patient in patients])
    lines = []
    for split in splits:
        for centre in [*centres, ALL]:
            group = [
                patient.values
                for patient in patients
                if split in (patient.split, ALL) and centre in (patient.centre, ALL)
            ]
            if group:
                figures = _summarise_group(group, columns)
                lines.append({"split": split, "centre": centre, "patients": len(group), **figures})
    return lines


def _list_columns(patients: Sequence[Values]) -> dict[str, list[str] | None]:
    """Return each column with its distinct strings in order, or None for a column of numbers."""
    columns: dict[str, list[str] | None] = {}
    for name in dict.fromkeys(name for values in patients for name in values):
        texts = {str(values[name]) for values in patients if isinstance(values.get(name), str)}
        columns[name] = sorted(texts) or None
    return columns


def _summarise_group(group: Sequence[Values], columns: Mapping[str, list[str] | None]) -> dict[str, Any]:
    """Return quartiles of numbers and counts of strings; `..._patients` is the number of patients with a value."""
    line: dict[str, Any] = {}
    for name, texts in columns.items():
        known = [values[name] for values in group if name in values]
        line[f"{name}_patients"] = len(known)
        if texts is not None:
            line |= {f"{name} {text}": known.count(text) for text in texts}
        else:
            q1, median, q3 = quartiles([float(value) for value in known]) if known else (None, None, None)
            line |= {f"{name}_median": median, f"{name}_q1": q1, f"{name}_q3": q3}
    return line


def _find_tables(folders: Iterable[Path], edition: Edition) -> list[Path]:
    """Return the tables of patients next to the masks of all splits, without repetition."""
    paths = dict.fromkeys(path for folder in folders for path in list_tables(folder, edition))
    return [path for path in paths if ID_COLUMN in read_columns(path, edition)]


def _read_tables(paths: Sequence[Path], edition: Edition, cases: Sequence[str]) -> dict[str, dict[str, float | str]]:
    """Read centre, clinical variables and outcomes of the patients that have a row in a table.

    Raises:
        HecktorError: A table or a value cannot be used, or two tables have different values of one patient.
    """
    rows: dict[str, dict[str, float | str]] = {}
    for path in paths:
        table = read_table(path, path.name, edition)
        for problem in table.problems:
            if problem.is_error:
                location = f"{path.name}, {problem.patient_id}".rstrip(", ")
                raise HecktorError(location, problem.found, problem.expected)
        for case in cases:
            if case not in table.rows:
                continue
            location = f"{path.name}, {case}"
            known = rows.setdefault(case, {})
            for name, value in _read_row(table.rows[case], edition, location).items():
                if known.setdefault(name, value) != value:
                    raise HecktorError(location, f"{name} {value}", f"{known[name]}, as in another table")
    return rows


def _read_row(row: Mapping[str, str], edition: Edition, location: str) -> dict[str, float | str]:
    """Return the known values of a row; codes, stages, classes and events are strings. `location` is for messages."""
    values: dict[str, float | str] = {}
    for variable in edition.clinical:
        if variable.key not in row:
            continue
        try:
            value = variable.read(row[variable.key])
        except ImpossibleValueError as problem:
            raise HecktorError(
                f"{location}: {variable.key}", f"found {row[variable.key]!r:.40}", str(problem)
            ) from None
        if value is not None:
            name = CENTRE if variable.name == CENTRE else variable.key
            values[name] = float(value) if variable.type in ("years", "number") else str(value)
    for algorithm in edition.algorithms:
        for answer in algorithm.head_specs:
            values |= _read_outcome(row, answer, location)
    return values


def _read_outcome(row: Mapping[str, str], answer: AnswerSpec, location: str) -> dict[str, float | str]:
    """Return the known values of a target's columns: days as a number, the event and the class as strings."""
    values: dict[str, float | str] = {}
    for role, column in answer.columns.items():
        if column not in row:
            continue
        text = row[column]
        cell = f"{location}: {column}"
        if role == "time":
            days = parse_number(text, cell, "a number of days", HecktorError)
            if days is not None:
                values[column] = days
        elif role == "event":
            event = parse_flag(text, cell, HecktorError)
            if event is not None:
                values[column] = str(int(event))
        elif text.upper() in answer.not_counted:
            values[column] = text.upper()
        else:
            values[column] = str(parse_class(text, answer, cell, HecktorError))
    return values


def add_cohort_options(parser: argparse.ArgumentParser) -> None:
    """Add the splits and the tables."""
    add = parser.add_argument
    splits = "name of a split, and its folder with CT, PET and reference in the platform's or the release's layout"
    add("splits", type=parse_name_path, nargs="+", metavar="SPLIT=DIR", help=splits)
    table = (
        "CSV table with PatientID, clinical variables and outcomes; may be repeated (default: the tables next to "
        "the masks, or the tables of the release)"
    )
    add("--table", type=Path, action="append", default=[], metavar="FILE", help=table)
    add_edition_option(parser)
    add_workers_option(parser)
