"""Kinds of answers, each with the row of a case and its scorer."""

from __future__ import annotations

from typing import TypeAlias

from contract.editions import AnswerSpec
from evaluation.metrics.classification import select_counted_classes
from evaluation.metrics.rules import MaskRules, RiskRules, Rules
from evaluation.rows.classes import ClassRow, ClassScorer
from evaluation.rows.comparison import MaskScorer
from evaluation.rows.mask import MaskRow
from evaluation.rows.risk import RiskRow, RiskScorer
from evaluation.rows.scorer import Scorer

CaseRow: TypeAlias = MaskRow | RiskRow | ClassRow


def make_scorer(answer: AnswerSpec, rules: Rules) -> Scorer:
    """Make the scorer of an answer by its rules."""
    if isinstance(rules, MaskRules):
        return MaskScorer(rules)
    if isinstance(rules, RiskRules):
        return RiskScorer(answer, rules)
    return ClassScorer(select_counted_classes(answer, rules))
