"""Estimates of the heads and their comparators in both kinds of cross-validation, with intervals over patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import Flags, Outcomes, outcomes_in
from baseline.heads.cross_validation import KINDS
from baseline.heads.metrics import weighted_balanced_accuracy, weighted_c_index
from baseline.heads.models.targets import COMPARATORS, Target
from evaluation.metrics.overlap import WeightedMetric
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.extras import estimate_extras

GAP: Final = "gap"
BEHIND: Final = "behind"
HEADS: Final = "heads"
TITLES: Final = {HEADS: "heads", **COMPARATORS}


@dataclass(frozen=True)
class ModelEstimates:
    """One model's metric in each kind of cross-validation.

    `gap` is the metric in nested cross-validation minus that with centres left out; of a comparator, `behind` is the
    heads' metric minus its own in nested cross-validation. A kind that the cohort does not allow is absent.
    """

    name: str
    estimates: Mapping[str, Estimate]

    @property
    def title(self) -> str:
        """Title in tables and figures."""
        return TITLES[self.name]

    def as_json(self) -> dict[str, Any]:
        """The estimates as plain data."""
        return {what: vars(estimate) for what, estimate in self.estimates.items()}


def estimate_models(target: Target, record: Mapping[str, Any], bootstraps: int, seed: int) -> list[ModelEstimates]:
    """The heads, then each comparator, of a target's record in `cross_validation.json`.

    Intervals come from bootstrap samples of the patients with fixed scores, so they do not show how other training
    patients would change the heads. All models share the samples.
    """
    outcomes = outcomes_in(target.answer, record["patients"])
    metrics: dict[tuple[str, str], WeightedMetric] = {}
    for kind, scored in available(record).items():
        for name, answers in {HEADS: scored, **scored["comparators"]}.items():
            metrics[name, kind] = _metric(target, outcomes, answers)
    if not metrics:
        return []
    names = list(dict.fromkeys(name for name, _ in metrics))
    nested, left_out = KINDS
    for name in names:
        if (name, nested) in metrics and (name, left_out) in metrics:
            metrics[name, GAP] = _difference(metrics[name, nested], metrics[name, left_out])
        if (name, nested) in metrics and name != HEADS:
            metrics[name, BEHIND] = _difference(metrics[HEADS, nested], metrics[name, nested])
    flat = {f"{name} {what}": metric for (name, what), metric in metrics.items()}
    estimates = estimate_extras(flat, len(record["patients"]), bootstraps, seed).by_metric
    return [
        ModelEstimates(name, {what: estimates[f"{name} {what}"] for other, what in metrics if other == name})
        for name in names
    ]


def available(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The kinds of cross-validation that the cohort allowed."""
    return {kind: record[kind] for kind in KINDS if "why_not" not in record[kind]}


def high_risk(scored: Mapping[str, Any]) -> Flags:
    """Patients above the median score of their outer fold; scores of different folds come from different models."""
    scores, fold_of = np.asarray(scored["score"]), np.asarray(scored["fold_of_patient"])
    high = np.zeros(len(scores), dtype=np.bool_)
    for fold in np.unique(fold_of):
        inside = fold_of == fold
        high[inside] = scores[inside] > np.median(scores[inside])
    return high


def _metric(target: Target, outcomes: Outcomes, answers: Mapping[str, Any]) -> WeightedMetric:
    if target.answer.kind == "risk":
        return weighted_c_index(outcomes, np.asarray(answers["score"], np.float64))
    return weighted_balanced_accuracy(outcomes, np.asarray(answers["positive"], np.bool_))


def _difference(first: WeightedMetric, second: WeightedMetric) -> WeightedMetric:
    return lambda weights: first(weights) - second(weights)
