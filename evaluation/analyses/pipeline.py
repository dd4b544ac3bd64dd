"""Every analysis of a challenge, in the order in which a page shows them."""

from __future__ import annotations

from collections.abc import Sequence

from contract.editions import Answer
from evaluation.analyses.analysis import Analysis
from evaluation.analyses.classes import calibration, sensitivity_and_specificity
from evaluation.analyses.factors import dsc_by_volume
from evaluation.analyses.intervals import metric_intervals
from evaluation.analyses.rankings import rank_stability, significance
from evaluation.analyses.sources import TaskResults
from evaluation.analyses.survival import survival_by_risk
from evaluation.analyses.tables import answer_rows


def task_analyses(results: TaskResults) -> list[Analysis]:
    """The analyses of one task: of the leaderboard, then of each answer's rows."""
    return [
        *metric_intervals(results),
        *rank_stability(results),
        *significance(results),
        *(analysis for answer in results.task.answers for analysis in _answer_analyses(results, answer)),
    ]


def _answer_analyses(results: TaskResults, answer: Answer) -> list[Analysis]:
    table = answer_rows(results, answer)
    if answer.kind == "mask":
        return dsc_by_volume(table)
    if answer.kind == "risk":
        return survival_by_risk(table)
    return [*sensitivity_and_specificity(table), *calibration(table)]


def challenge_analyses(results: Sequence[TaskResults]) -> list[Analysis]:  # noqa: ARG001
    """The analyses between tasks."""
    return []
