"""The metrics of any kind of answer."""

from __future__ import annotations

from contract.editions import Answer
from evaluation.metrics.classes import class_metrics, counted_answer
from evaluation.metrics.masks import mask_metrics
from evaluation.metrics.risks import RISK_METRICS
from evaluation.metrics.rules import MaskRules, Metric, RiskRules, Rules


def metrics_of(answer: Answer, rules: Rules) -> tuple[Metric, ...]:
    """Every metric of an answer that these rules measure."""
    if isinstance(rules, MaskRules):
        return mask_metrics(rules.surfaces)
    return RISK_METRICS if isinstance(rules, RiskRules) else class_metrics(counted_answer(answer, rules))
