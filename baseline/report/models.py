"""Figures of the heads: metrics with intervals, on reference masks too, and coefficients with their stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import read_head
from baseline.heads.cohort import Flags, Outcomes, outcomes_in
from baseline.heads.cross_validation import KINDS, coefficients_of
from baseline.heads.metrics import (
    weighted_balanced_accuracy,
    weighted_c_index,
    weighted_class_accuracy,
)
from baseline.heads.models.kinds import Target
from baseline.heads.models.targets import COMPARATORS
from evaluation.metrics.overlap import Difference, WeightedMetric
from evaluation.statistics.bootstrap import Estimate, estimate_unranked

GAP: Final = "gap"
BEHIND: Final = "behind"
HEADS: Final = "heads"
TITLES: Final = {HEADS: "heads", **COMPARATORS}
MASK_KINDS: Final = {"automatic": "automatic masks", "reference": "reference masks", "cost": "reference less automatic"}
# A head may use all features; the page shows those with the largest weights.
MOST_SHOWN: Final = 20


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
        return TITLES.get(self.name, self.name)

    def as_json(self) -> dict[str, Any]:
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
            metrics[name, kind] = metric_of(target, outcomes, answers)
    if not metrics:
        return []
    names = list(dict.fromkeys(name for name, _ in metrics))
    nested, left_out = KINDS
    for name in names:
        if (name, nested) in metrics and (name, left_out) in metrics:
            metrics[name, GAP] = Difference(metrics[name, nested], metrics[name, left_out])
        if (name, nested) in metrics and name != HEADS:
            metrics[name, BEHIND] = Difference(metrics[HEADS, nested], metrics[name, nested])
    flat = {f"{name} {what}": metric for (name, what), metric in metrics.items()}
    estimates = estimate_unranked(flat, len(record["patients"]), bootstraps, seed).by_metric
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


def metric_of(target: Target, outcomes: Outcomes, answers: Mapping[str, Any]) -> WeightedMetric:
    """The target's metric of the answers in a record of `cross_validation.json`."""
    if target.answer.kind == "risk":
        return weighted_c_index(outcomes, np.asarray(answers["score"], np.float64))
    if target.answer.is_binary:
        return weighted_balanced_accuracy(outcomes, np.asarray(answers["positive"], np.bool_))
    return weighted_class_accuracy(outcomes, np.array([target.answer.classes.index(one) for one in answers["class"]]))


def estimate_on_references(
    target: Target, automatic: Mapping[str, Any], reference: Mapping[str, Any], bootstraps: int, seed: int
) -> tuple[int, dict[str, dict[str, Estimate]]]:
    """Heads on automatic and on reference masks: the number of patients of both records, and estimates by kind.

    The estimates are `automatic`, `reference` and their difference, the `cost` of automatic masks, from samples of
    these patients. Each head was fitted and cross-validated on masks of its own kind. Empty if no kind has both.
    """
    places = _common(automatic, reference)
    kinds = [kind for kind in available(automatic) if kind in available(reference)]
    if not kinds or not places[0]:
        return 0, {}
    outcomes = outcomes_in(target.answer, [automatic["patients"][place] for place in places[0]])
    metrics: dict[str, WeightedMetric] = {}
    for kind in kinds:
        scored = [_picked(record[kind], chosen) for record, chosen in zip((automatic, reference), places, strict=True)]
        first, second = (metric_of(target, outcomes, one) for one in scored)
        metrics |= {f"automatic {kind}": first, f"reference {kind}": second, f"cost {kind}": Difference(second, first)}
    estimates = estimate_unranked(metrics, len(places[0]), bootstraps, seed).by_metric
    return len(places[0]), {kind: {name: estimates[f"{name} {kind}"] for name in MASK_KINDS} for kind in kinds}


def _common(*records: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Places of the patients of both records, in the order of the first."""
    first, second = ({row["id"]: place for place, row in enumerate(one["patients"])} for one in records)
    names = [name for name in first if name in second]
    return [first[name] for name in names], [second[name] for name in names]


def _picked(scored: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    return {key: [scored[key][n] for n in places] for key in ("score", "positive", "class") if key in scored}


@dataclass(frozen=True)
class Coefficient:
    """A feature's weight per standard deviation in the shipped head and each outer fold; None and 0 if unused."""

    feature: str
    shipped: float | None
    folds: tuple[float, ...]

    @property
    def used_in(self) -> int:
        return sum(weight != 0 for weight in self.folds)

    @property
    def same_sign(self) -> int:
        """Number of outer folds with the sign of the shipped weight, or of the folds' sum if it is not shipped."""
        sign = np.sign(sum(self.folds) if self.shipped is None else self.shipped)
        return sum(bool(np.sign(weight) == sign) for weight in self.folds if weight != 0)

    @property
    def size(self) -> float:
        """The larger absolute value of the shipped weight and the mean over the folds."""
        mean = float(np.mean(self.folds)) if self.folds else 0.0
        return max(abs(self.shipped or 0.0), abs(mean))


def coefficients(head: Mapping[str, Any] | None, folds: Sequence[Mapping[str, Any]]) -> list[Coefficient]:
    """Every feature of the shipped head or an outer fold, by decreasing weight.

    `head` is the head as JSON, None without a head; the records of the outer `folds` hold `coefficients`.
    """
    shipped = {} if head is None else coefficients_of(read_head(head, "heads.json"))
    names = dict.fromkeys([*shipped, *(name for fold in folds for name in fold["coefficients"])])
    weights = [
        Coefficient(name, shipped.get(name), tuple(float(fold["coefficients"].get(name, 0.0)) for fold in folds))
        for name in names
    ]
    return sorted(weights, key=lambda one: -one.size)
