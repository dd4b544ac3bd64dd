"""`hecktor study cohort`: patients, volumes, SUVmax, nodes, stages and outcomes by split and by centre."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from contract import labels
from contract.editions import Edition, load_edition
from contract.editions.clinical import CENTRE, ImpossibleValueError
from contract.errors import HecktorError
from contract.options import add_edition_option
from contract.patient import centres_of, format_names
from contract.release.tables import ID, read_columns, read_table
from evaluation.editions.profile import load_profile
from evaluation.inputs.tables import parse_class, parse_flag, parse_number
from evaluation.metrics.lesions import label_components
from evaluation.options import add_workers_option, parse_name_path
from evaluation.statistics.intervals import quartiles
from reporting.analyses.scans import PatientFiles, find_scans, tables_of
from reporting.studies.outputs import StudyResult, by_name, measure_cases
from reporting.studies.scans import tumour_of

ALL: Final = "all"
_MOST_NODES: Final = 3
Values = Mapping[str, float | str]


def measure(scans: PatientFiles, connectivity: int) -> dict[str, float | str]:
    """Volume in ml and SUVmax of GTVp and GTVn if present, and the number of GTVn lesions, 3 or more as one value.

    Raises GroundTruthError if the mask or the PET cannot be used.
    """
    inside, uptake, voxel_ml = tumour_of(scans)
    values: dict[str, float | str] = {}
    for label, name in ((labels.GTVP, "gtvp"), (labels.GTVN, "gtvn")):
        part = inside == label
        if part.any():
            values |= {f"{name}_volume_ml": int(part.sum()) * voxel_ml, f"{name}_suv_max": float(uptake[part].max())}
    nodes = label_components(inside == labels.GTVN, connectivity)[1] if inside.size else 0
    return {**values, "nodes": f"{_MOST_NODES} or more" if nodes >= _MOST_NODES else str(nodes)}


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure every case of every split, join the tables, and summarise each split, each centre and both."""
    folders, edition = by_name(options.splits, "split", at_least=1), load_edition(options.edition)
    if ALL in folders:
        raise HecktorError("splits", f"a split named {ALL!r}", "another name: all splits stand under it")
    splits = {split: find_scans(folder, edition) for split, folder in folders.items()}
    scans = [one for of_split in splits.values() for one in of_split]
    cases = [one.case for one in scans]
    twice = next((case for case in cases if cases.count(case) > 1), None)
    if twice is not None:
        raise HecktorError(twice, "in two splits", "each patient in one")
    work = partial(measure, connectivity=load_profile(options.edition).mask_rules.connectivity)
    measured = measure_cases(work, scans, options.workers, "read it")
    tables = options.table or _tables_beside(folders.values(), edition)
    in_tables = _read_tables(tables, edition, cases)
    if options.table and not in_tables:
        raise HecktorError("--table", "no patient of the splits", f"rows of {format_names(sorted(cases))}")
    centre_of = centres_of(cases, {case: str(row.pop(CENTRE)) for case, row in in_tables.items() if CENTRE in row})
    values = {case: {**row, **in_tables.get(case, {})} for case, row in zip(cases, measured, strict=True)}
    lines = _lines(
        [(split, centre_of.get(one.case, ""), values[one.case]) for split, of in splits.items() for one in of]
    )
    without_row = sorted(set(cases) - set(in_tables)) if tables else []
    content = {"splits": {split: len(of) for split, of in splits.items()}, "groups": lines, "without_row": without_row}
    note = f"without a row in the tables: {format_names(without_row)}; " if without_row else ""
    return StudyResult(content, lines, f"{len(cases)} patients, {len(set(centre_of.values()))} centres; {note}")


def _lines(patients: Sequence[tuple[str, str, Values]]) -> list[dict[str, Any]]:
    """One line per split, per centre, per centre within a split, and for the whole cohort, without duplicates."""
    splits, centres = dict.fromkeys(split for split, *_ in patients), {centre for _, centre, _ in patients if centre}
    columns = _columns([values for *_, values in patients])
    lines = []
    for split in [*splits, *([ALL] if len(splits) > 1 else [])]:
        for centre in [*sorted(centres), ALL]:
            group = [values for in_split, at, values in patients if split in (in_split, ALL) and centre in (at, ALL)]
            if group:
                lines.append({"split": split, "centre": centre, "patients": len(group), **_summary(group, columns)})
    return lines


def _columns(patients: Sequence[Values]) -> dict[str, list[str] | None]:
    """The possible values of every counted figure in order; None for a numeric figure."""
    names = dict.fromkeys(name for values in patients for name in values)
    texts = {name: sorted({str(of[name]) for of in patients if isinstance(of.get(name), str)}) for name in names}
    return {name: found or None for name, found in texts.items()}


def _summary(group: Sequence[Values], columns: Mapping[str, list[str] | None]) -> dict[str, Any]:
    """Median and quartiles of numbers, counts of values; `..._patients` is the number of patients with the figure."""
    line: dict[str, Any] = {}
    for name, texts in columns.items():
        known = [values[name] for values in group if name in values]
        line[f"{name}_patients"] = len(known)
        if texts is not None:
            line |= {f"{name} {text}": known.count(text) for text in texts}
        else:
            q1, median, q3 = quartiles([float(value) for value in known]) if known else (None,) * 3
            line |= {f"{name}_median": median, f"{name}_q1": q1, f"{name}_q3": q3}
    return line


def _tables_beside(folders: Iterable[Path], edition: Edition) -> list[Path]:
    """The tables of patients beside the masks of each split, each once."""
    paths = dict.fromkeys(path for folder in folders for path in tables_of(folder, edition))
    return [path for path in paths if ID in read_columns(path, edition)]


def _read_tables(paths: Sequence[Path], edition: Edition, cases: Sequence[str]) -> dict[str, dict[str, float | str]]:
    """Centre, clinical variables and outcomes of each patient of the splits, if any table has them."""
    rows: dict[str, dict[str, float | str]] = {}
    for path in paths:
        table = read_table(path, path.name, edition)
        for problem in (one for one in table.problems if one.is_error):
            raise HecktorError(f"{path.name}, {problem.patient_id}".rstrip(", "), problem.found, problem.expected)
        for case in (case for case in cases if case in table.rows):
            values, known = _values(table.rows[case], edition, f"{path.name}, {case}"), rows.setdefault(case, {})
            for name in (name for name, value in values.items() if known.setdefault(name, value) != value):
                raise HecktorError(
                    f"{path.name}, {case}", f"{name} {values[name]}", f"{known[name]}, as in another table"
                )
    return rows


def _values(row: Mapping[str, str], edition: Edition, where: str) -> dict[str, float | str]:
    """The cells of a row: numbers as such, codes, stages, classes and events as texts."""
    values: dict[str, float | str] = {}
    for variable in (one for one in edition.clinical if one.key in row):
        try:
            value = variable.read(row[variable.key])
        except ImpossibleValueError as problem:
            raise HecktorError(f"{where}: {variable.key}", f"found {row[variable.key]!r:.40}", str(problem)) from None
        if value is not None:
            name = CENTRE if variable.name == CENTRE else variable.key
            values[name] = float(value) if variable.type in ("years", "number") else str(value)
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.head_specs):
        for role, column in ((role, column) for role, column in answer.columns.items() if column in row):
            text, place = row[column], f"{where}: {column}"
            if role == "time":
                days = parse_number(text, place, "a number of days", HecktorError)
                values |= {} if days is None else {column: days}
            elif role == "event":
                event = parse_flag(text, place, HecktorError)
                values |= {} if event is None else {column: str(int(event))}
            else:
                is_counted = text.upper() not in answer.not_counted
                values[column] = str(parse_class(text, answer, place, HecktorError)) if is_counted else text.upper()
    return values


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the splits and the tables."""
    add = parser.add_argument
    splits = "name of a split, and its folder with CT, PET and reference in the platform's or the release's layout"
    add("splits", type=parse_name_path, nargs="+", metavar="SPLIT=DIR", help=splits)
    table = (
        "CSV table with PatientID, clinical variables and outcomes; may be repeated (default: the tables beside the "
        "masks, or those of the release)"
    )
    add("--table", type=Path, action="append", default=[], metavar="FILE", help=table)
    add_edition_option(parser)
    add_workers_option(parser)
