"""The metrics of any kind of answer."""

from __future__ import annotations

from contract.editions import AnswerSpec
from evaluation.metrics.classes import class_metrics, select_counted_classes
from evaluation.metrics.masks import mask_metrics
from evaluation.metrics.risks import RISK_METRICS
from evaluation.metrics.rules import MaskRules, Metric, RiskRules, Rules


def metrics_of(answer: AnswerSpec, rules: Rules) -> tuple[Metric, ...]:
    """Every metric of an answer that these rules measure."""
    if isinstance(rules, MaskRules):
        return mask_metrics(rules.surfaces)
    return RISK_METRICS if isinstance(rules, RiskRules) else class_metrics(select_counted_classes(answer, rules))
