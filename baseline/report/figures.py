"""Figures of the report as data; the page draws them in the browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from baseline.heads.cohort import Outcomes
from baseline.heads.record import KINDS, KindRecord
from baseline.report.models import high_risk
from contract.editions import Answer
from evaluation.analyses.analysis import Analysis
from evaluation.analyses.classes import calibration, confusion
from evaluation.analyses.survival import survival_by_risk
from evaluation.analyses.tables import AnswerRows

Kinds = Mapping[str, KindRecord]
# Both kinds of cross-validation as the page names them.
KIND_TITLES: Final = {kind: title.capitalize() for kind, title in KINDS.items()}
# Captions in place of those that speak of teams, by the name of the analysis.
_CAPTIONS: Final = {
    "survival": (
        "Kaplan-Meier estimate of being free of recurrence with its 95% interval, for patients with a risk above the "
        "median of their outer fold and for the others."
    ),
    "numbers-at-risk": (
        "Patients still followed and free of recurrence after each number of years, by predicted group; the two-sided "
        "p of the log-rank test between the two groups; and the mean time free of recurrence up to the longest "
        "follow-up that both groups reach."
    ),
}


def answer_figures(answer: Answer, outcomes: Outcomes, kinds: Kinds) -> list[Analysis]:
    """The evaluation's figures of an answer, for each kind of cross-validation in place of a team.

    Survival of the patients above and up to the median risk of their outer fold, calibration of two classes, or
    confusion matrices of more.
    """
    rows = {KIND_TITLES[kind]: _rows(answer, outcomes, scored) for kind, scored in kinds.items()}
    cases = tuple(str(number) for number in range(len(outcomes.values)))
    table = AnswerRows(answer, "", tuple(rows), cases, tuple(map(tuple, rows.values())), {})
    if answer.kind == "risk":
        analyses = survival_by_risk(table)
    else:
        analyses = calibration(table) if answer.is_binary else confusion(table)
    return [_by_kind(analysis) for analysis in analyses]


def _rows(answer: Answer, outcomes: Outcomes, scored: KindRecord) -> list[dict[str, Any]]:
    """Rows as the evaluation has them; a risk is 1 above the median of the outer fold and 0 up to it."""
    if answer.kind == "risk":
        sign = -1.0 if answer.direction == "time" else 1.0
        groups = zip(outcomes.times_days, outcomes.positive, high_risk(scored), strict=True)
        return [{"rfs_days": days, "relapse": event, "risk": sign * high} for days, event, high in groups]
    truth = [{answer.row_key: answer.classes[value]} for value in outcomes.values]
    if answer.is_binary:
        more: list[dict[str, Any]] = [{"predicted_probability": value} for value in scored.probability or ()]
    else:
        more = [{f"predicted_{answer.row_key}": value} for value in scored.given or ()]
    return [row | answers for row, answers in zip(truth, more, strict=True)]


def _by_kind(analysis: Analysis) -> Analysis:
    """The analysis with the kind of cross-validation in place of the team."""
    columns = {("kind" if key == "team" else key): title for key, title in analysis.columns.items()}
    rows = [{("kind" if key == "team" else key): value for key, value in row.items()} for row in analysis.rows]
    chart = {key: "kind" if value == "team" else value for key, value in analysis.chart.items()}
    caption = _CAPTIONS.get(analysis.name, analysis.caption)
    columns |= {"kind": "Cross-validation"}
    return replace(analysis, caption=caption, columns=columns, rows=rows, chart=chart, source="", notes=())
