"""The rows of each kind of answer, and the scorer."""

from __future__ import annotations

from typing import TypeAlias

from evaluation.editions.rules import ClassRules, MaskRules
from evaluation.editions.task import AnswerProfile
from evaluation.rows.classes import ClassRow, ClassScorer
from evaluation.rows.mask.pair import MaskRow
from evaluation.rows.mask.scorer import MaskScorer
from evaluation.rows.risk import RiskRow, RiskScorer
from evaluation.rows.scorer import Scorer

# Every row has a `case`, the `error` why there is no usable prediction (None if there is one), `failed` if something
# was submitted that cannot be used, and `reference`, its part that does not depend on the submission.
CaseRow: TypeAlias = MaskRow | RiskRow | ClassRow


def scorer_of(profile: AnswerProfile) -> Scorer:
    """The scorer for an answer under its rules."""
    if isinstance(profile.rules, MaskRules):
        return MaskScorer(profile.rules)
    if isinstance(profile.rules, ClassRules):
        return ClassScorer(profile.scored_answer)
    return RiskScorer(profile.answer, profile.rules)
