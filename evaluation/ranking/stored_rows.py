"""Reuse the rows of stored results: leave out cases, and write the rows that a participant may receive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.io.tables import format_csv
from contract.patient import format_names
from evaluation.editions.profile import AnswerProfile, TaskProfile
from evaluation.metrics.masks import LABELS
from evaluation.metrics.surface import SURFACE_METRICS
from evaluation.results.documents import MetricsJson
from evaluation.results.metrics_json import compute_case_digest, make_aggregates, read_metrics
from evaluation.results.scored import (
    MeasuredAnswer,
    collect_sum_weights,
    join_metrics,
    list_counted_cases,
    measure_answer,
)
from evaluation.results.task import TaskResults
from evaluation.results.teams import find_profile
from evaluation.rows.mask import flatten_row
from evaluation.statistics.bootstrap import Estimate, estimate

# Values of a mask that reveal no volume of the reference: overlaps and distances, and the prediction's own volume.
_MASK_VALUES: Final = ("dsc", "predicted_voxels", "predicted_mm3", *(metric.key for metric in SURFACE_METRICS))


def leave_out_cases(results: TaskResults, cases: Sequence[str]) -> TaskResults:
    """Return results without some cases; every ranked metric is recomputed from the remaining rows.

    Intervals come from the seed and the number of replicates of each team's own evaluation. Other metrics are removed.

    Raises:
        HecktorError: A case is in no row, no case is left, or a team has no rows.
    """
    if not cases:
        return results
    unknown = [case for case in cases if case not in results.scored_cases]
    if unknown:
        expected = f"cases of the results, such as {format_names(sorted(results.scored_cases))}"
        raise HecktorError("--without-case", f"found {format_names(unknown)}", expected)
    if results.scored_cases <= set(cases):
        raise HecktorError("--without-case", "all cases of the results", "some cases to rank")
    without_rows = [team for team in results.teams if team not in results.answers]
    if without_rows:
        raise HecktorError("--without-case", f"no per-case rows of {format_names(without_rows)}", "results with rows")
    answers = {team: _select_rows(of_team, cases) for team, of_team in results.answers.items()}
    teams = {
        team: _recompute_metrics(metrics, answers[team], results.profile, cases)
        for team, metrics in results.teams.items()
    }
    return replace(results, teams=teams, answers=answers)


def _select_rows(answers: Mapping[str, MeasuredAnswer], cases: Collection[str]) -> dict[str, MeasuredAnswer]:
    return {
        name: measure_answer(answer.profile, answer.table.select([case not in cases for case in answer.table.cases]))
        for name, answer in answers.items()
    }


def _recompute_metrics(
    metrics: MetricsJson, answers: Mapping[str, MeasuredAnswer], profile: TaskProfile, cases: Collection[str]
) -> MetricsJson:
    """Return a team's results with the ranked metrics of the selected rows, and without the rows of `cases`."""
    remaining = list_counted_cases(answers.values())
    measured = join_metrics(remaining, answers.values(), collect_sum_weights(profile.metrics))
    ranked = {name: measured[name] for name in profile.metrics if name in measured}
    stated = metrics.provenance
    estimates = estimate(ranked, len(remaining), stated.bootstraps, stated.seed).by_metric
    figures = make_aggregates({name: estimates.get(name, Estimate(None, None, None)) for name in profile.metrics})
    digest = compute_case_digest(case for answer in answers.values() for case in answer.table.cases)
    return metrics.model_copy(
        update={
            "aggregates": figures,
            "results": [row for row in metrics.results if row["case"] not in cases],
            "provenance": stated.model_copy(update={"case_set_sha256": digest}),
        }
    )


def format_participant_rows(path: Path, team: str, edition: str | None) -> str:
    """Return a team's rows as CSV, without outcomes: the case, the error, what the team predicted, scores of masks.

    Nothing else of a row is written: no volume or number of lesions of the reference, no class, no follow-up, and no
    sign of whether an answer is right. An empty DSC says that the case does not count.

    Raises:
        HecktorError: The file cannot be read or has no rows.
    """
    metrics = read_metrics(path, team)
    if not metrics.results:
        raise HecktorError("--rows-of", f"results of {team} without rows", "a metrics.json written without --no-rows")
    origin = metrics.provenance
    profile = find_profile(origin.edition, origin.own_edition, edition, team).find_task(origin.task)
    several = profile.has_several_answers
    lines: dict[str, dict[str, Any]] = {}
    for name, answer in profile.answers.items():
        for row in metrics.get_rows(name, several=several):
            line = lines.setdefault(row["case"], {"case": row["case"]})
            line |= {
                f"{name}_{key}" if several else key: value for key, value in _select_predictions(row, answer).items()
            }
    columns = dict.fromkeys(key for line in lines.values() for key in line)
    return format_csv(list(columns), [lines[case] for case in sorted(lines)], for_people=True)


def _select_predictions(row: Mapping[str, Any], answer: AnswerProfile) -> dict[str, Any]:
    """Return the parts of a row that reveal nothing about the reference."""
    if answer.answer.kind == "mask":
        keys = [f"{label}_{value}" for label in LABELS for value in _MASK_VALUES]
    elif answer.answer.kind == "risk":
        keys = ["risk"]
    else:
        keys = [f"predicted_{answer.answer.row_key}", "predicted_probability"]
    flat = flatten_row(row)
    return {"error": row.get("error"), **{key: flat[key] for key in keys if key in flat}}
