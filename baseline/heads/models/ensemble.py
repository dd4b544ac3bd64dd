"""Weighted ensemble of candidates on one scale, and the head that it becomes.

All candidates with skill take part, because models with few features win on some cohorts and models with all features
on others. They are weighted by their skill (`Target.weigh_candidates`). The weights come only from the folds of the
selection, so that the outer folds of a nested cross-validation stay unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from algorithm.heads.documents import NEVER, EnsembleHead, Expert, Head, LinearHead, Term
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.models.selection import Candidate, Setting, refit, select_candidates
from baseline.heads.models.targets import Target
from baseline.heads.models.terms import compute_spread, get_scaling, with_weights
from contract.documents import Document

# Fraction of the largest score; a smaller standard deviation is the rounding error of constant scores.
_MIN_RELATIVE_SD: Final = 1e-9


class ExpertRecord(Document):
    """Name, setting, selection metric and weight of an expert; heads of older versions have no weight."""

    name: str
    setting: Mapping[str, float]
    metric: float
    weight: float | None = None


@dataclass(frozen=True)
class CandidateEnsemble:
    """The experts of an ensemble before they are fitted.

    Attributes:
        tried: Selection metric of each candidate.
        experts: Candidates that take part.
        weights: Share of each expert; the sum is 1.
        scales: Mean and standard deviation of each expert's out-of-fold scores.
        slope: Factor that turns the mean of the standardised scores into a log partial hazard; 1 for classes.
        scores: Out-of-fold scores of the ensemble.
        metric: Selection metric of the ensemble.
        reason: Reason for a head on clinical variables only, a sentence; empty if the candidates have skill.
    """

    tried: dict[str, float]
    experts: tuple[Candidate, ...]
    weights: tuple[float, ...]
    scales: tuple[tuple[float, float], ...]
    slope: float
    scores: Floats
    metric: float
    reason: str = ""

    @property
    def name(self) -> str:
        names = [expert.name for expert in self.experts]
        if len(names) == 1:
            return names[0]
        if len(set(self.weights)) == 1:
            return f"mean of {' + '.join(names)}"
        shares = [f"{name} ({weight:.0%})" for name, weight in zip(names, self.weights, strict=True)]
        return f"weighted mean of {' + '.join(shares)}"

    @property
    def setting(self) -> Setting:
        """Return the setting of a single expert; empty for several experts."""
        return self.experts[0].setting if len(self.experts) == 1 else {}

    @property
    def records(self) -> tuple[ExpertRecord, ...]:
        return tuple(
            ExpertRecord(name=expert.name, setting=expert.setting, metric=expert.metric, weight=weight)
            for expert, weight in zip(self.experts, self.weights, strict=True)
        )


def select_ensemble(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> CandidateEnsemble:
    """Select the settings of the target's families over the folds of the selection, and weight the families.

    If no family is better than chance, the target's fallback family is the only expert, provided that its scores differ
    between patients.
    """
    families, folds = target.select_families(cohort), target.make_folds(cohort, rng)
    candidates = select_candidates(cohort, families, folds, target.selection_metric, rng)
    fallback = target.fallback_family
    if fallback is None or any(target.weigh_candidates(candidates, cohort)):
        return make_ensemble(target, cohort, candidates)
    [candidate] = select_candidates(cohort, [fallback], folds, target.selection_metric, rng)
    if compute_spread(candidate.scores) == 0:
        return make_ensemble(target, cohort, candidates)
    tried = {candidate.name: candidate.metric for candidate in candidates}
    reason = f"No candidate was better than chance ({len(tried)} tried); the out-of-fold {target.selection_title} of"
    return replace(
        make_single_ensemble(candidate, tried), reason=f"{reason} {candidate.name} is {candidate.metric:.3f}."
    )


def make_ensemble(target: Target, cohort: HeadCohort, candidates: Sequence[Candidate]) -> CandidateEnsemble:
    """Make the ensemble of the candidates with a weight, or of only the best candidate if there are fewer than two.

    The scores of a single candidate keep their scale unless its family needs a slope.
    """
    tried = {candidate.name: candidate.metric for candidate in candidates}
    weight_of = zip(candidates, target.weigh_candidates(candidates, cohort), strict=True)
    weighted = [(candidate, weight) for candidate, weight in weight_of if weight > 0]
    if len(weighted) < 2:
        best = max(candidates, key=lambda candidate: candidate.metric)  # the first of equally good candidates
        if not best.family.needs_slope:
            return make_single_ensemble(best, tried)
        weighted = [(best, 1.0)]
    experts = tuple(expert for expert, _ in weighted)
    total = sum(weight for _, weight in weighted)
    weights = tuple(weight / total for _, weight in weighted)
    scales = tuple(compute_scale(expert.scores) for expert in experts)
    standardised = [(expert.scores - mean) / sd for expert, (mean, sd) in zip(experts, scales, strict=True)]
    scores = np.asarray(np.average(standardised, axis=0, weights=weights), dtype=np.float64)
    slope = target.estimate_slope(cohort, scores) or 1.0
    metric = target.selection_metric(cohort, scores)
    return CandidateEnsemble(tried, experts, weights, scales, slope, slope * scores, metric)


def make_single_ensemble(expert: Candidate, tried: dict[str, float]) -> CandidateEnsemble:
    """Make the ensemble of one expert, whose scores keep their scale."""
    return CandidateEnsemble(tried, (expert,), (1.0,), ((0.0, 1.0),), 1.0, expert.scores, expert.metric)


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
    heads = [refit(cohort, expert, rng, is_shipped=is_shipped) for expert in ensemble.experts]
    if len(heads) < 2 and not ensemble.experts[0].family.needs_slope:
        return heads[0]
    parts = zip(ensemble.experts, ensemble.scales, ensemble.weights, heads, strict=True)
    experts = [
        Expert(name=expert.name, mean=mean, sd=sd / ensemble.slope, weight=weight, head=head)
        for expert, (mean, sd), weight, head in parts
    ]
    if all(isinstance(head, LinearHead) for head in heads):
        return combine_experts(experts)
    return EnsembleHead(experts=tuple(experts))


def combine_experts(experts: Sequence[Expert]) -> LinearHead:
    """Combine linear experts into one linear head, whose score is the weighted mean of (score - mean) / sd.

    Terms that differ only in their weights are added up. Each standardised value is clipped before it is weighted, so
    the sum is exact. A class without training patients still never wins.
    """
    heads = [expert.head for expert in experts if isinstance(expert.head, LinearHead)]
    shares = np.array([expert.weight for expert in experts])
    shares = shares / shares.sum()
    terms: dict[object, Term] = {}
    weights: dict[object, Floats] = {}
    for expert, share, head in zip(experts, shares, heads, strict=True):
        for term in head.terms:
            key = get_scaling(term)
            terms.setdefault(key, term)
            weights[key] = weights.get(key, np.zeros(len(head.intercepts))) + share * np.array(term.weights) / expert.sd
    starts = np.array([head.intercepts for head in heads])
    standardised = [(start - expert.mean) / expert.sd for start, expert in zip(starts, experts, strict=True)]
    never = np.logical_and((starts <= NEVER).any(0), bool(heads[0].classes))
    used = {key: np.where(never, 0.0, row) for key, row in weights.items()}
    return LinearHead(
        scale=" and ".join(dict.fromkeys(head.scale for head in heads)),
        classes=heads[0].classes,
        intercepts=tuple(np.where(never, NEVER, shares @ np.array(standardised)).tolist()),
        terms=tuple(with_weights(terms[key], row) for key, row in used.items() if row.any()),
    )
