"""`hecktor study cohort`: patients, volumes, SUVmax, nodes, stages and outcomes by split and by centre."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import labels
from contract.editions import Answer, Edition
from contract.editions.clinical import CENTRE, ClinicalVariable, is_missing
from contract.errors import HecktorError
from contract.options import add_edition_option, name_path
from contract.patient import centres_of, listed
from evaluation.analyses.sources import PatientFiles, find_scans
from evaluation.editions.profile import load_declaration, profile_of_edition
from evaluation.execution import map_cases
from evaluation.inputs.tables import ID_COLUMN, class_value, flag, number, read_table_with
from evaluation.metrics.lesions import label_components
from evaluation.options import add_workers
from evaluation.studies.outputs import StudyResult, by_name, raise_dead_worker
from evaluation.studies.scans import tumour_of

DESCRIPTION: Final = "The cohort's table: patients, volumes, SUVmax, nodes, stages and outcomes by split and by centre."
ALL: Final = "all"
_MOST_NODES: Final = 3
Values = Mapping[str, float | str]


@dataclass(frozen=True)
class _Scan:
    files: PatientFiles
    connectivity: int


def measure(scan: _Scan) -> dict[str, float | str]:
    """Volume in ml and SUVmax of GTVp and of GTVn where there are any, and the number of GTVn lesions up to 3 or more.

    Raises GroundTruthError if the mask or the PET cannot be used.
    """
    inside, uptake, voxel_ml = tumour_of(scan.files)
    values: dict[str, float | str] = {}
    for label, name in ((labels.GTVP, "gtvp"), (labels.GTVN, "gtvn")):
        part = inside == label
        if part.any():
            values |= {f"{name}_volume_ml": int(part.sum()) * voxel_ml, f"{name}_suv_max": float(uptake[part].max())}
    nodes = label_components(inside == labels.GTVN, scan.connectivity)[1] if inside.size else 0
    return {**values, "nodes": f"{_MOST_NODES} or more" if nodes >= _MOST_NODES else str(nodes)}


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure every case of every split, join the tables, and summarise each split, each centre and both."""
    folders, edition = by_name(options.splits, "split", at_least=1), load_declaration(options.edition)
    connectivity = profile_of_edition(options.edition).mask_rules.connectivity
    splits = {split: find_scans(folder, edition) for split, folder in folders.items()}
    scans = [(split, _Scan(one, connectivity)) for split, of_split in splits.items() for one in of_split]
    cases = [one.files.case for _, one in scans]
    twice = next((case for case in cases if cases.count(case) > 1), None)
    if twice is not None:
        raise HecktorError(twice, "in two splits", "each patient in one")
    rows = map_cases(
        measure, [one for _, one in scans], options.workers, lambda one: raise_dead_worker(one.files.case, "read it")
    )
    in_tables = _read_tables(options.table, edition, cases)
    centre_of = centres_of(cases, {case: str(row[CENTRE]) for case, row in in_tables.items() if CENTRE in row})
    patients = [
        (
            split,
            centre_of.get(case, ""),
            {**row, **{key: of for key, of in in_tables.get(case, {}).items() if key != CENTRE}},
        )
        for (split, _), case, row in zip(scans, cases, rows, strict=True)
    ]
    lines = _lines(patients)
    without_row = sorted(set(cases) - set(in_tables)) if options.table else []
    content = {"splits": {split: len(of) for split, of in splits.items()}, "groups": lines, "without_row": without_row}
    note = f"without a row in the tables: {listed(without_row)}; " if without_row else ""
    return StudyResult(content, lines, f"{len(cases)} patients, {len(set(centre_of.values()))} centres; {note}")


def _lines(patients: Sequence[tuple[str, str, Values]]) -> list[dict[str, Any]]:
    """One line for each split and centre, each split and each centre alone, and all; without repetitions."""
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
    """Every figure with its values in order where they are counted, None where it is a number."""
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
            quartiles = np.percentile(np.array(known, dtype=float), (50, 25, 75)) if known else (None,) * 3
            line |= {f"{name}_{part}": of for part, of in zip(("median", "q1", "q3"), quartiles, strict=True)}
    return line


def _read_tables(paths: Sequence[Path], edition: Edition, cases: Sequence[str]) -> dict[str, dict[str, float | str]]:
    """Centre, clinical variables and outcomes of each patient of the splits, as far as any table has them."""
    columns = {one.key: one.aliases for one in edition.clinical}
    answers = [answer for algorithm in edition.algorithms for answer in algorithm.heads]
    columns |= {column: aliases for answer in answers for column, aliases in answer.column_aliases.items()}
    rows: dict[str, dict[str, float | str]] = {}
    for path in paths:
        table = read_table_with(path, columns, HecktorError)
        if ID_COLUMN not in table.header:
            raise HecktorError(table.name, f"no column {ID_COLUMN}", "it, and the columns of the edition")
        for index, row in enumerate(table.rows):
            case = row[ID_COLUMN].strip()
            if case in set(cases):
                rows.setdefault(case, {}).update(_values(row, edition, table.where(index)))
    if paths and not rows:
        raise HecktorError("--table", "no patient of the splits", f"rows of {listed(sorted(cases))}")
    return rows


def _values(row: Mapping[str, str], edition: Edition, where: str) -> dict[str, float | str]:
    """The cells of a row that are known: numbers as such, codes, stages and classes as texts."""
    known = {key: text.strip() for key, text in row.items() if not is_missing(text)}
    values: dict[str, float | str] = {}
    for variable in (one for one in edition.clinical if one.key in known):
        name = CENTRE if variable.name == CENTRE else variable.key
        values[name] = _clinical(known[variable.key], variable, f"{where}: {variable.key}")
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.heads):
        for role, column in answer.columns.items():
            if column in known:
                values[column] = _outcome(known[column], answer, role, f"{where}: {column}")
    return values


def _clinical(text: str, variable: ClinicalVariable, where: str) -> float | str:
    if variable.type in ("stage", CENTRE) or text.lower() in variable.words:
        return str(variable.words.get(text.lower(), text))
    value = number(text, where, "a number", HecktorError) or 0.0
    return f"{value:g}" if variable.type == "code" else value


def _outcome(text: str, answer: Answer, role: str, where: str) -> float | str:
    if role == "time":
        return number(text, where, "a number of days", HecktorError) or 0.0
    if role == "event":
        return str(int(flag(text, where, HecktorError) or False))
    return text.upper() if text.upper() in answer.not_counted else str(class_value(text, answer, where, HecktorError))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the splits and the tables."""
    add = parser.add_argument
    splits = "a part of the data and its folder with CT, PET and reference, in the platform's or the release's layout"
    add("splits", type=name_path, nargs="+", metavar="SPLIT=DIR", help=splits)
    table = "CSV table with PatientID, clinical variables and outcomes; may be repeated"
    add("--table", type=Path, action="append", default=[], metavar="FILE", help=table)
    add_edition_option(parser)
    add_workers(parser)
