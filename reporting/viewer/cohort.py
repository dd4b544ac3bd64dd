"""The cases of a viewer with their files and values, found without reading an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contract.errors import GroundTruthError
from contract.patient import PatientRecord, parse_centre
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
from reporting.page.html import assign_colours
from reporting.viewer.patient import AnswerTables, format_clinical_values, read_record, read_tables

# Key of a value that belongs to the case and not to a team.
OF_CASE: Final = ""
# JSON has no infinity.
INFINITE: Final = "inf"

Row = Mapping[str, Any]

_CASE_METRICS: Final = (
    CaseValue("gtvp_volume_ml", "GTVp volume (ml)", None, 1),
    CaseValue("gtvn_volume_ml", "GTVn volume (ml)", None, 1),
    CaseValue("gtvn_lesions", "GTVn lesions", None, 0),
)


def list_cases(
    title: str, centres: Mapping[str, str | None], results: TaskResults | None, colours: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of cases.json.

    Args:
        title: Title of the edition.
        centres: Centre of each case; None if it is unknown.
        results: Source of the values; without results (None) the cases have no values.
        colours: Colour of each team; the teams are shown in this order.
    """
    rows = {} if results is None else _group_mask_rows(results)
    keys = {key for case_rows in rows.values() for row in case_rows.values() for key in row}
    metrics = [metric for metric in CASE_VALUES if metric.key in keys]
    return {
        "title": f"{title}: cases",
        "edition": title,
        "teams": [{"name": team, "colour": colour} for team, colour in colours.items()],
        "metrics": [asdict(metric) for metric in (*metrics, *(_CASE_METRICS if metrics else ()))],
        "cases": [
            {"case": case, "centre": centre, **_build_entry(case, rows, metrics)} for case, centre in centres.items()
        ],
    }


def _group_mask_rows(results: TaskResults) -> dict[str, dict[str, Row]]:
    """Return the rows of the mask by team and case."""
    mask = results.task.mask_spec
    name = "" if mask is None else mask.name
    return {team: {row["case"]: row for row in results.get_rows(team, name)} for team in results.teams}


def _build_entry(case: str, rows: Mapping[str, Mapping[str, Row]], metrics: list[CaseValue]) -> dict[str, Any]:
    """Return the values of a case by metric and team, and its reference in one line."""
    row_by_team = {team: case_rows[case] for team, case_rows in rows.items() if case in case_rows}
    values: dict[str, dict[str, float | str | None]] = {
        metric.key: {team: to_json_value(row, metric.key) for team, row in row_by_team.items()} for metric in metrics
    }
    # Every row of a case has the volumes of its reference.
    row = next(iter(row_by_team.values()), None)
    if row is None:
        return {"values": values, "facts": ""}
    gtvp_ml, gtvn_ml = (row[f"{label}_reference_mm3"] / MM3_PER_ML for label in ("gtvp", "gtvn"))
    lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
    for metric, value in zip(_CASE_METRICS, (gtvp_ml, gtvn_ml, lesions), strict=True):
        values[metric.key] = {OF_CASE: _round_value(value)}
    return {"values": values, "facts": describe_reference(gtvp_ml, gtvn_ml, lesions)}


def to_json_value(row: Row, key: str) -> float | str | None:
    """Return a team's value with four decimals, `inf` for an infinite distance, or None if there is no value.

    A metric has no value, for example, if both masks are empty.
    """
    if key in DISTANCES and row.get(f"{DISTANCES[key]}_surface") in LOST:
        return INFINITE
    return _round_value(row.get(key))


def _round_value(value: float | None) -> float | None:
    """Round to four decimals, enough for each metric's digits. The result is None for a value that JSON cannot hold."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def describe_reference(gtvp_ml: float, gtvn_ml: float, gtvn_lesions: int) -> str:
    """Return the volumes and the number of lesions of the reference in one line."""
    return f"GTVp {gtvp_ml:.1f} ml · GTVn {gtvn_ml:.1f} ml in {gtvn_lesions} lesion{'' if gtvn_lesions == 1 else 's'}"


def sort_cases(listing: Mapping[str, Any]) -> list[str]:
    """Return the names of the cases by the teams' mean of the first metric, the lowest first.

    Cases without the metric come last. The first metric is a DSC; it has no value for a team that correctly marks
    nothing, which counts as 1.
    """
    key = listing["metrics"][0]["key"] if listing["metrics"] else None

    def compute_mean(entry: Mapping[str, Any]) -> float:
        values = [1.0 if value is None else value for value in entry["values"].get(key, {}).values()]
        return sum(values) / len(values) if values else math.inf

    return [entry["case"] for entry in sorted(listing["cases"], key=compute_mean)]


@dataclass(frozen=True)
class ViewerRequest:
    """Folders of the cohort, of its results and of each team's masks; `results` is None without results.

    If `edition` is None, the results' edition is used.
    """

    cohort: Path
    results: Path | None = None
    masks: Mapping[str, Path] = field(default_factory=dict)
    edition: str | None = None


@dataclass(frozen=True)
class CaseSources:
    """The files of a case, and what is needed to show them.

    Attributes:
        files: CT, PET, reference and predictions.
        without_mask: Teams that have masks, but no mask of this case.
        suv_factor: Factor from Bq/ml to SUV in the patient's record; None if it has no factor.
        rules: Rules by which lesions are found and matched.
        colours: Colour of each team.
        scored: The results that the masks must agree with; None without results.
        clinical: Key and text of each clinical variable.
        answers: Table of answers, see `reporting.viewer.patient.AnswerTables`.
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
    """The cases by name, the content of cases.json, and notes on missing data."""

    cases: Mapping[str, CaseSources]
    listing: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def select_worst(self, count: int) -> ViewerCohort:
        """Return the cases with the lowest mean of the first metric or, without results, the first cases."""
        worst = sort_cases(self.listing)[:count]
        entries = [entry for entry in self.listing["cases"] if entry["case"] in worst]
        cases = {entry["case"]: self.cases[entry["case"]] for entry in entries}
        return replace(self, cases=cases, listing={**self.listing, "cases": entries})


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
    # Only the first reference is compared here, because another cohort usually differs in every case. The others are
    # compared when they are shown.
    first = next((files for files in scans if files.case in scored), None)
    if first is not None:
        reference = read_labels(first.reference, GroundTruthError)
        scored[first.case].check_reference(reference, first.reference.name)
    cases = [files.case for files in scans]
    for team in request.masks:
        require_cases(f"--masks {team}", masks[team], cases)
    ranked_teams = task.teams if task is not None else ()
    shown_teams = [*masks, *(team for team in ranked_teams if team not in masks)]
    colours = assign_colours(teams)
    rows, unreadable = read_tables(request.cohort, edition)
    records = {case: read_record(request.cohort, case, edition, unreadable) for case in cases}
    centres = {case: _find_centre(case, record) for case, record in records.items()}
    listing = list_cases(edition.title, centres, task, colours)
    answers = AnswerTables(edition, results, rows)
    sources = {}
    for files, entry in zip(scans, listing["cases"], strict=True):
        case = files.case
        record = records[case]
        predictions = select_case_masks(masks, case)
        sources[case] = CaseSources(
            files=replace(files, predictions=predictions),
            without_mask=tuple(team for team in shown_teams if team not in predictions),
            suv_factor=None if record is None else record.suv_factor,
            rules=rules,
            colours=colours,
            scored=scored.get(case),
            clinical=format_clinical_values(edition, record, rows.get(case, {})),
            answers=answers.build_table(case, _select_dsc(listing, entry), list(colours)),
        )
    notes = [
        *unreadable,
        describe_absent_masks(task, masks, cases),
        NOT_COMPARED if task is not None and not scored else "",
    ]
    return ViewerCohort(sources, listing, tuple(note for note in notes if note))


def _find_centre(case: str, record: PatientRecord | None) -> str | None:
    """Return the centre in a case's record or else in its name, or None if it is unknown."""
    return (None if record is None else record.patient.centre) or parse_centre(case) or None


def _select_dsc(listing: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a case's DSC of each structure, by title and team."""
    metrics = {metric["title"]: metric["key"] for metric in listing["metrics"] if metric["key"].endswith("_dsc")}
    return {title: entry["values"][key] for title, key in metrics.items()}
