"""Every analysis of a task, in the order in which a page shows them; `tasks` has those between tasks."""

from __future__ import annotations

from contract.editions import AnswerSpec
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.classes import confusion
from reporting.analyses.groups import by_group
from reporting.analyses.leaderboards import other_metrics, rank_stability, ranked_metrics, significance
from reporting.analyses.lesions import analyse_lesions, count_lesions, find_primaries
from reporting.analyses.masks import (
    boxes_by_case,
    boxes_by_team,
    dsc_by_case,
    dsc_by_team,
    dsc_correlations,
    find_failed_cases,
    influences,
)
from reporting.analyses.survival import survival_by_risk
from reporting.analyses.tables import answer_rows


def task_analyses(results: TaskResults) -> list[Analysis]:
    """The analyses of one task: of the leaderboard, of each answer's rows, and of groups."""
    return [
        *ranked_metrics(results),
        *rank_stability(results),
        *significance(results),
        *(analysis for answer in results.task.answer_specs for analysis in answer_analyses(results, answer)),
        *by_group(results),
        *other_metrics(results),
    ]


def answer_analyses(results: TaskResults, answer: AnswerSpec) -> list[Analysis]:
    """The analyses of one answer; those of its rows are absent from results written with `--no-rows`."""
    table = answer_rows(results, answer)
    if answer.kind == "mask":
        against = influences(table, results.scans)
        return [
            *boxes_by_team(table),
            *boxes_by_case(table),
            *find_failed_cases(table),
            *find_primaries(table),
            *count_lesions(table),
            *analyse_lesions(table),
            *(dsc_by_team(table, one) for one in against if one.fills_bins),
            *(dsc_by_case(table, one) for one in against),
            *dsc_correlations(table, against, with_scans=bool(results.scans)),
        ]
    if answer.kind == "risk":
        return survival_by_risk(table)
    return confusion(table)
