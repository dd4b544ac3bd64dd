"""Equal-weight ensemble of candidates on one scale, and the head that it becomes.

All candidates take part, since models with few and with all features each win on some cohorts; of stages only those
near the best one do (`Target.experts`). The choice uses the folds of the selection alone, so that outer folds of a
nested cross-validation stay unseen.
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
from baseline.heads.models.terms import scaling_of, with_weights
from contract.documents import Document

# Of the largest score: less is the rounding of a constant.
_LEAST_SD: Final = 1e-9
# Name, mean and standard deviation of the scores, and head.
NamedExpert = tuple[str, float, float, SingleHead]


class ExpertRecord(Document):
    """Name, setting and selection metric of an expert."""

    name: str
    setting: Mapping[str, float]
    metric: float


@dataclass(frozen=True)
class CandidateEnsemble:
    """The experts of an ensemble, its out-of-fold scores and metric.

    `tried` is the selection metric of each candidate, `scales` mean and standard deviation of each expert's out-of-fold
    scores, `slope` the factor that turns the mean of the standardised scores into a log partial hazard (1 for classes).
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
        """The setting of a single expert, empty for several."""
        return self.experts[0].setting if len(self.experts) == 1 else {}

    @property
    def records(self) -> tuple[ExpertRecord, ...]:
        return tuple(ExpertRecord(name=one.name, setting=one.setting, metric=one.metric) for one in self.experts)


def make_ensemble(target: Target, cohort: HeadCohort, candidates: Sequence[Candidate]) -> CandidateEnsemble:
    """The ensemble of the target's experts; the best candidate alone if there are fewer than two."""
    tried = {candidate.name: candidate.metric for candidate in candidates}
    experts = target.experts(candidates, cohort)
    if len(experts) < 2:
        best = max(candidates, key=lambda candidate: candidate.metric)  # the first of equally good ones
        return CandidateEnsemble(tried, (best,), ((0.0, 1.0),), 1.0, best.scores, best.metric)
    scales = tuple(scale_of(expert.scores) for expert in experts)
    standardised = [(expert.scores - mean) / sd for expert, (mean, sd) in zip(experts, scales, strict=True)]
    scores = np.mean(standardised, axis=0)
    slope = target.slope(cohort, scores) or 1.0
    return CandidateEnsemble(tried, experts, scales, slope, slope * scores, target.selection_metric(cohort, scores))


def scale_of(scores: Floats) -> tuple[float, float]:
    """Mean and standard deviation of scores; 1 in place of the latter for constant scores.

    Of scores of classes the mean is 0, since a mean of each class would move the boundaries between classes, and the
    standard deviation is that of the classes' scores around each patient's own mean. Classes without training patients
    do not count.
    """
    if scores.ndim == 1:
        return float(scores.mean()), _divisor(scores, float(scores.std()))
    fitted = scores[:, (scores > NEVER / 2).all(0)]
    return 0.0, _divisor(fitted, float((fitted - fitted.mean(1, keepdims=True)).std()))


def _divisor(scores: Floats, sd: float) -> float:
    return sd if sd > _LEAST_SD * np.abs(scores).max(initial=0.0) else 1.0


def fit_ensemble(
    ensemble: CandidateEnsemble, cohort: HeadCohort, rng: np.random.Generator, *, is_shipped: bool = False
) -> Head:
    """The ensemble fitted on the whole cohort; the head of the package `is_shipped`."""
    heads = {expert.name: refit(cohort, expert, rng, is_shipped=is_shipped) for expert in ensemble.experts}
    if len(heads) < 2:
        return heads[ensemble.experts[0].name]
    scales = [(mean, sd / ensemble.slope) for mean, sd in ensemble.scales]
    return get_head([(name, *scale, head) for (name, head), scale in zip(heads.items(), scales, strict=True)])


def get_head(experts: Sequence[NamedExpert]) -> Head:
    """The mean of the experts' standardised scores as a head.

    It is one linear head, unless one is an entrant's, which may fail: then it lists the experts.
    """
    linear = [(mean, sd, head) for _, mean, sd, head in experts if isinstance(head, LinearHead)]
    if len(linear) == len(experts):
        return combine_experts(linear)
    return EnsembleHead(
        experts=tuple(Expert(name=name, mean=mean, sd=sd, head=head) for name, mean, sd, head in experts)
    )


def combine_experts(experts: Sequence[tuple[float, float, LinearHead]]) -> LinearHead:
    """One linear head whose scores are the mean of (score - mean) / sd of the experts.

    Terms that agree in everything but the weights are added up. Each standardised value is clipped before it is
    weighted, so the sum is exact. A class without training patients still never wins.
    """
    share, classes = 1 / len(experts), experts[0][-1].classes
    terms: dict[object, Term] = {}
    weights: dict[object, Floats] = {}
    for _, sd, head in experts:
        for term in head.terms:
            key = scaling_of(term)
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
