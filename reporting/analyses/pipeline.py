"""Every analysis of a task, in the order of the page; the module `tasks` compares tasks."""

from __future__ import annotations

from contract.editions import AnswerSpec
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.case_ranks import analyse_case_ranks
from reporting.analyses.classes import analyse_confusion
from reporting.analyses.groups import analyse_groups
from reporting.analyses.leaderboards import (
    analyse_ranked_metrics,
    analyse_significance,
    analyse_stability,
    analyse_unranked_metrics,
)
from reporting.analyses.lesions import analyse_lesions, count_detected_primaries, count_lesions
from reporting.analyses.masks import (
    compute_binned_dsc,
    compute_case_medians,
    correlate_dsc,
    find_failed_cases,
    find_influences,
    summarise_cases,
    summarise_teams,
)
from reporting.analyses.survival import analyse_survival
from reporting.analyses.tables import collect_rows


def analyse_task(results: TaskResults, *, with_cases: bool = True) -> list[Analysis]:
    """Analyse the leaderboard of one task, the rows of each answer, and groups of patients.

    Args:
        results: The results of the task.
        with_cases: Whether to compute the analyses that show single patients.
    """
    return [
        *analyse_ranked_metrics(results),
        *analyse_stability(results),
        *analyse_significance(results),
        *analyse_case_ranks(results, with_cases=with_cases),
        *(
            analysis
            for answer in results.task.answers
            for analysis in analyse_answer(results, answer, with_cases=with_cases)
        ),
        *analyse_groups(results),
        *analyse_unranked_metrics(results),
    ]


def analyse_answer(results: TaskResults, answer: AnswerSpec, *, with_cases: bool = True) -> list[Analysis]:
    """Analyse the rows of one answer; results written with `--no-rows` have no such analyses."""
    if answer.kind != "mask" and not with_cases:
        return []  # a reader could infer outcomes or classes of single patients
    table = collect_rows(results, answer)
    if answer.kind == "mask":
        influences = find_influences(table, results.scans)
        return [
            *summarise_teams(table),
            *([*summarise_cases(table), *find_failed_cases(table)] if with_cases else ()),
            *count_detected_primaries(table),
            *count_lesions(table),
            *analyse_lesions(table),
            *(compute_binned_dsc(table, influence) for influence in influences if influence.has_enough_cases),
            *(compute_case_medians(table, influence) for influence in influences if with_cases),
            *correlate_dsc(table, influences),
        ]
    if answer.kind == "risk":
        return analyse_survival(table)
    return analyse_confusion(table)
