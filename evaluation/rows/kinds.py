"""The scorer of each kind of answer."""

from __future__ import annotations

from evaluation.editions.rules import ClassRules, MaskRules
from evaluation.editions.task import AnswerProfile
from evaluation.rows.classes import ClassScorer
from evaluation.rows.mask.scorer import MaskScorer
from evaluation.rows.risk import RiskScorer
from evaluation.rows.scorer import Scorer


def scorer_of(profile: AnswerProfile) -> Scorer:
    """The scorer for an answer under its rules."""
    if isinstance(profile.rules, MaskRules):
        return MaskScorer(profile.rules)
    if isinstance(profile.rules, ClassRules):
        return ClassScorer(profile.answer)
    return RiskScorer(profile.answer, profile.rules)
