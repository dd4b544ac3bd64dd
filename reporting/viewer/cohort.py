"""The cases of a viewer with their files and values, found without reading an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contract.errors import GroundTruthError
from contract.patient import PatientRecord, centre_of
from evaluation.inputs.masks import read_labels
from evaluation.metrics.masks import DISTANCES
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import LOST
from evaluation.results.task import TaskResults
from evaluation.rows.mask import CASE_VALUES, CaseValue
from reporting.analyses.scans import PatientFiles, find_scans
from reporting.analyses.sources import (
    NOT_COMPARED,
    ScoredMasks,
    collect_scored_masks,
    describe_absent_masks,
    find_mask_task,
    find_masks,
    find_results,
    list_entries,
    list_scored,
    load_results_profile,
    require_cases,
    select_case_masks,
)
from reporting.page.html import colours_of
from reporting.viewer.patient import AnswerTables, clinical_texts, read_record, read_tables

# Values of a case itself stand under this name in place of a team's.
OF_CASE: Final = ""
# JSON has no infinity.
INFINITE: Final = "inf"

Row = Mapping[str, Any]


_OF_CASES: Final = (
    CaseValue("gtvp_volume_ml", "GTVp volume (ml)", None, 1),
    CaseValue("gtvn_volume_ml", "GTVn volume (ml)", None, 1),
    CaseValue("gtvn_lesions", "GTVn lesions", None, 0),
)


def list_cases(
    title: str, centres: Mapping[str, str | None], results: TaskResults | None, colours: Mapping[str, str]
) -> dict[str, Any]:
    """The content of cases.json; without `results` (None) the cases have no values.

    `centres` is None for a case whose centre is unknown; `colours` are in the order in which teams are shown.
    """
    rows = {} if results is None else _mask_rows(results)
    keys = {key for by_case in rows.values() for row in by_case.values() for key in row}
    metrics = [one for one in CASE_VALUES if one.key in keys]
    return {
        "title": f"{title}: cases",
        "edition": title,
        "teams": [{"name": team, "colour": colour} for team, colour in colours.items()],
        "metrics": [asdict(metric) for metric in (*metrics, *(_OF_CASES if metrics else ()))],
        "cases": [{"case": case, "centre": centre, **_entry(case, rows, metrics)} for case, centre in centres.items()],
    }


def _mask_rows(results: TaskResults) -> dict[str, dict[str, Row]]:
    """Rows of the mask by team and case."""
    answer = results.task.mask_spec
    name = "" if answer is None else answer.name
    return {team: {row["case"]: row for row in results.rows_of(team, name)} for team in results.teams}


def _entry(case: str, rows: Mapping[str, Mapping[str, Row]], metrics: list[CaseValue]) -> dict[str, Any]:
    values: dict[str, dict[str, float | str | None]] = {
        metric.key: {team: value_of(by_case[case], metric.key) for team, by_case in rows.items() if case in by_case}
        for metric in metrics
    }
    row = next((by_case[case] for by_case in rows.values() if case in by_case), None)
    if row is None:
        return {"values": values, "facts": ""}
    gtvp, gtvn = (row[f"{label}_reference_mm3"] / MM3_PER_ML for label in ("gtvp", "gtvn"))
    lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
    for metric, value in zip(_OF_CASES, (gtvp, gtvn, lesions), strict=True):
        values[metric.key] = {OF_CASE: _rounded(value)}
    return {"values": values, "facts": facts(gtvp, gtvn, lesions)}


def value_of(row: Row, key: str) -> float | str | None:
    """A team's value with four decimals; `inf` for a lost distance, None if nothing is measured, as of empty masks."""
    if key in DISTANCES and row.get(f"{DISTANCES[key]}_surface") in LOST:
        return INFINITE
    return _rounded(row.get(key))


def _rounded(value: float | None) -> float | None:
    """Four decimals, enough for each metric's digits; None for what JSON cannot hold."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def facts(gtvp_ml: float, gtvn_ml: float, gtvn_lesions: int) -> str:
    """The reference in one line."""
    return f"GTVp {gtvp_ml:.1f} ml · GTVn {gtvn_ml:.1f} ml in {gtvn_lesions} lesion{'' if gtvn_lesions == 1 else 's'}"


def worst_cases(listing: Mapping[str, Any]) -> list[str]:
    """Names of the cases by their mean over the teams of the first metric, the lowest first; cases without it last.

    The first metric is a DSC, without a value for a team that rightly marks nothing, which counts as 1.
    """
    key = listing["metrics"][0]["key"] if listing["metrics"] else None

    def mean(entry: Mapping[str, Any]) -> float:
        values = [1.0 if value is None else value for value in entry["values"].get(key, {}).values()]
        return sum(values) / len(values) if values else math.inf

    return [entry["case"] for entry in sorted(listing["cases"], key=mean)]


@dataclass(frozen=True)
class ViewerRequest:
    """Folders of a cohort, of results (None without), and of each team's masks.

    Without an `edition` it is that of the results.
    """

    cohort: Path
    results: Path | None = None
    masks: Mapping[str, Path] = field(default_factory=dict)
    edition: str | None = None


@dataclass(frozen=True)
class CaseSources:
    """The files of a case, and what is needed to show them.

    `without_mask` are the teams that have masks, but none of this case. `suv_factor` is the factor from Bq/ml to SUV in
    the patient's record, None without one; `scored` what the masks must agree with, None without results. `clinical`
    and `answers` are the patient's tables as they are shown (`reporting.viewer.patient`).
    """

    files: PatientFiles
    without_mask: tuple[str, ...]
    suv_factor: float | None
    rules: MaskRules
    colours: Mapping[str, str]
    scored: ScoredMasks | None = None
    clinical: Sequence[tuple[str, str]] = ()
    answers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewerCohort:
    """The cases by name, the content of cases.json, and lines on what is missing."""

    cases: Mapping[str, CaseSources]
    listing: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def worst(self, count: int) -> ViewerCohort:
        """The cases with the lowest mean of the first metric over the teams; the first cases without results."""
        chosen = worst_cases(self.listing)[:count]
        listed = [entry for entry in self.listing["cases"] if entry["case"] in chosen]
        cases = {entry["case"]: self.cases[entry["case"]] for entry in listed}
        return replace(self, cases=cases, listing={**self.listing, "cases": listed})


def find_cohort(request: ViewerRequest) -> ViewerCohort:
    """Find every case with its masks and values."""
    profile = load_results_profile(request.results, request.edition)
    edition, rules = profile.edition, profile.mask_rules
    same_rules = request.edition is not None
    results = [] if request.results is None else find_results(request.results, profile, same_rules=same_rules)
    task = find_mask_task(results)
    teams = list(dict.fromkeys([*list_entries(results), *request.masks]))
    masks = find_masks(task, teams, request.masks)
    scans = list_scored(find_scans(request.cohort, edition), results)
    scored = collect_scored_masks(task)
    # The first reference alone: another cohort usually differs in every case, and all are compared when they are shown.
    first = next((files for files in scans if files.case in scored), None)
    if first is not None:
        reference = read_labels(first.reference, GroundTruthError)
        scored[first.case].check_reference(reference, first.reference.name)
    names = [one.case for one in scans]
    for team in request.masks:
        require_cases(f"--masks {team}", masks[team], names)
    shown_teams = [*masks, *(team for team in (task.teams if task is not None else ()) if team not in masks)]
    colours = colours_of(teams)
    rows, unreadable = read_tables(request.cohort, edition)
    records = {one.case: read_record(request.cohort, one.case, edition, unreadable) for one in scans}
    centres = {case: _centre(case, record) for case, record in records.items()}
    listing = list_cases(edition.title, centres, task, colours)
    answers = AnswerTables(edition, results, rows)
    cases = {}
    for files, entry in zip(scans, listing["cases"], strict=True):
        case, record = files.case, records[files.case]
        predictions = select_case_masks(masks, case)
        cases[case] = CaseSources(
            files=replace(files, predictions=predictions),
            without_mask=tuple(team for team in shown_teams if team not in predictions),
            suv_factor=None if record is None else record.suv_factor,
            rules=rules,
            colours=colours,
            scored=scored.get(case),
            clinical=clinical_texts(edition, record, rows.get(case, {})),
            answers=answers.of(case, _dsc(listing, entry), list(colours)),
        )
    notes = [
        *unreadable,
        describe_absent_masks(task, masks, names),
        NOT_COMPARED if task is not None and not scored else "",
    ]
    return ViewerCohort(cases, listing, tuple(note for note in notes if note))


def _centre(case: str, record: PatientRecord | None) -> str | None:
    """The centre of a case's record or its name; None if it is unknown."""
    return (None if record is None else record.patient.centre) or centre_of(case) or None


def _dsc(listing: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The DSC of each structure by title and team."""
    metrics = {one["title"]: one["key"] for one in listing["metrics"] if one["key"].endswith("_dsc")}
    return {title: entry["values"][key] for title, key in metrics.items()}
