"""Kinds of answers, a module for each: the row of a case, its form in metrics.json, its metrics and its scorer."""

from __future__ import annotations

from typing import Final, TypeAlias

from contract.editions import Answer
from evaluation.metrics.rules import ClassRules, MaskRules, Metric, Rules
from evaluation.rows.classes import ClassRow, ClassScorer, class_metrics
from evaluation.rows.comparison import MaskScorer
from evaluation.rows.mask import MaskRow, mask_metrics
from evaluation.rows.risk import RISK_METRICS, RiskRow, RiskScorer
from evaluation.rows.scorer import Scorer

# Every row has a `case`, the `error` why there is no usable prediction (None if there is one), `failed` if something
# was submitted that cannot be used, and `reference`, its part that does not depend on the submission.
CaseRow: TypeAlias = MaskRow | RiskRow | ClassRow

_ALL_SURFACES: Final = "both"


def scorer_for(answer: Answer, rules: Rules) -> Scorer:
    """The scorer for an answer, with all classes that are scored, under its rules."""
    if isinstance(rules, MaskRules):
        return MaskScorer(rules)
    if isinstance(rules, ClassRules):
        return ClassScorer(answer)
    return RiskScorer(answer, rules)


def metrics_of(answer: Answer, rules: Rules) -> dict[str, Metric]:
    """The metrics that these rules measure for an answer, by name."""
    return {metric.name: metric for metric in _metrics(answer, rules.surfaces if isinstance(rules, MaskRules) else "")}


def with_all_classes(answer: Answer) -> Answer:
    """The answer with the classes that its declaration does not count."""
    return answer.model_copy(update={"classes": (*answer.not_counted, *answer.classes), "not_counted": ()})


def find_metric(answer: Answer, name: str) -> Metric | None:
    """The metric of an answer with this name, under any rules; None if it has none."""
    metrics = (*_metrics(answer, _ALL_SURFACES), *_metrics(with_all_classes(answer), _ALL_SURFACES))
    return next((metric for metric in metrics if metric.name == name), None)


def _metrics(answer: Answer, surfaces: str) -> tuple[Metric, ...]:
    if answer.kind == "mask":
        return mask_metrics(surfaces)
    return RISK_METRICS if answer.kind == "risk" else class_metrics(answer)
