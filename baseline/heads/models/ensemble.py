"""Equal-weight ensemble of candidates on one scale, and the head that it becomes.

All candidates take part, because models with few features win on some cohorts and models with all features on others.
For stages only the candidates near the best one take part (`Target.select_experts`). The choice uses only the folds of
the selection, so that the outer folds of a nested cross-validation stay unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from algorithm.heads.documents import NEVER, EnsembleHead, Expert, Head, LinearHead, Term
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.models.kinds import Target
from baseline.heads.models.selection import Candidate, Setting, SingleHead, refit
from baseline.heads.models.terms import get_scaling, with_weights
from contract.documents import Document

# Fraction of the largest score: a smaller standard deviation is the rounding of a constant.
_MIN_RELATIVE_SD: Final = 1e-9
# Name, mean and standard deviation of the scores, and head.
NamedExpert = tuple[str, float, float, SingleHead]


class ExpertRecord(Document):
    """Name, setting and selection metric of an expert."""

    name: str
    setting: Mapping[str, float]
    metric: float


@dataclass(frozen=True)
class CandidateEnsemble:
    """The experts of an ensemble before they are fitted.

    Attributes:
        tried: Selection metric of each candidate.
        experts: Candidates that take part.
        scales: Mean and standard deviation of each expert's out-of-fold scores.
        slope: Factor that turns the mean of the standardised scores into a log partial hazard; 1 for classes.
        scores: Out-of-fold scores of the ensemble.
        metric: Selection metric of the ensemble.
    """

    tried: dict[str, float]
    experts: tuple[Candidate, ...]
    scales: tuple[tuple[float, float], ...]
    slope: float
    scores: Floats
    metric: float

    @property
    def name(self) -> str:
        names = " + ".join(expert.name for expert in self.experts)
        return f"mean of {names}" if len(self.experts) > 1 else names

    @property
    def setting(self) -> Setting:
        """Return the setting of a single expert; empty for several experts."""
        return self.experts[0].setting if len(self.experts) == 1 else {}

    @property
    def records(self) -> tuple[ExpertRecord, ...]:
        return tuple(
            ExpertRecord(name=expert.name, setting=expert.setting, metric=expert.metric) for expert in self.experts
        )


def make_ensemble(target: Target, cohort: HeadCohort, candidates: Sequence[Candidate]) -> CandidateEnsemble:
    """Make the ensemble of the target's experts, or of only the best candidate if there are fewer than two experts."""
    tried = {candidate.name: candidate.metric for candidate in candidates}
    experts = target.select_experts(candidates, cohort)
    if len(experts) < 2:
        best = max(candidates, key=lambda candidate: candidate.metric)  # the first of equally good candidates
        return CandidateEnsemble(tried, (best,), ((0.0, 1.0),), 1.0, best.scores, best.metric)
    scales = tuple(compute_scale(expert.scores) for expert in experts)
    standardised = [(expert.scores - mean) / sd for expert, (mean, sd) in zip(experts, scales, strict=True)]
    scores = np.mean(standardised, axis=0)
    slope = target.estimate_slope(cohort, scores) or 1.0
    return CandidateEnsemble(tried, experts, scales, slope, slope * scores, target.selection_metric(cohort, scores))


def compute_scale(scores: Floats) -> tuple[float, float]:
    """Compute mean and standard deviation of scores; the standard deviation of constant scores is set to 1.

    For scores of classes the mean is 0, because a mean of each class would move the boundaries between classes, and the
    standard deviation is taken around each patient's own mean. Classes without training patients do not count.
    """
    if scores.ndim == 1:
        return float(scores.mean()), _nonzero_sd(scores, float(scores.std()))
    fitted = scores[:, (scores > NEVER / 2).all(0)]
    return 0.0, _nonzero_sd(fitted, float((fitted - fitted.mean(1, keepdims=True)).std()))


def _nonzero_sd(scores: Floats, sd: float) -> float:
    return sd if sd > _MIN_RELATIVE_SD * np.abs(scores).max(initial=0.0) else 1.0


def fit_ensemble(
    ensemble: CandidateEnsemble, cohort: HeadCohort, rng: np.random.Generator, *, is_shipped: bool = False
) -> Head:
    """Fit the ensemble on the whole cohort; `is_shipped` marks the head of the package."""
    heads = {expert.name: refit(cohort, expert, rng, is_shipped=is_shipped) for expert in ensemble.experts}
    if len(heads) < 2:
        return heads[ensemble.experts[0].name]
    scales = [(mean, sd / ensemble.slope) for mean, sd in ensemble.scales]
    return make_head([(name, *scale, head) for (name, head), scale in zip(heads.items(), scales, strict=True)])


def make_head(experts: Sequence[NamedExpert]) -> Head:
    """Make the head whose score is the mean of the experts' standardised scores.

    Linear experts become one linear head. With a custom head, which may fail, the head lists the experts.
    """
    linear = [(mean, sd, head) for _, mean, sd, head in experts if isinstance(head, LinearHead)]
    if len(linear) == len(experts):
        return combine_experts(linear)
    return EnsembleHead(
        experts=tuple(Expert(name=name, mean=mean, sd=sd, head=head) for name, mean, sd, head in experts)
    )


def combine_experts(experts: Sequence[tuple[float, float, LinearHead]]) -> LinearHead:
    """Combine experts to one linear head, whose score is the mean of (score - mean) / sd of the experts.

    Terms that differ only in their weights are added up. Each standardised value is clipped before it is weighted, so
    the sum is exact. A class without training patients still never wins.
    """
    share, classes = 1 / len(experts), experts[0][-1].classes
    terms: dict[object, Term] = {}
    weights: dict[object, Floats] = {}
    for _, sd, head in experts:
        for term in head.terms:
            key = get_scaling(term)
            terms.setdefault(key, term)
            weights[key] = weights.get(key, np.zeros(len(head.intercepts))) + share * np.array(term.weights) / sd
    starts = np.array([head.intercepts for *_, head in experts])
    moved = sum(share * (start - mean) / sd for start, (mean, sd, _) in zip(starts, experts, strict=True))
    never = np.logical_and((starts <= NEVER).any(0), bool(classes))
    used = {key: np.where(never, 0.0, row) for key, row in weights.items()}
    return LinearHead(
        scale=" and ".join(dict.fromkeys(head.scale for *_, head in experts)),
        classes=classes,
        intercepts=tuple(np.where(never, NEVER, moved).tolist()),
        terms=tuple(with_weights(terms[key], row) for key, row in used.items() if row.any()),
    )
