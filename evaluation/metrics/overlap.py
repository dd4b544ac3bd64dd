"""Overlap of masks: counts of one case, aggregates over a cohort as functions of case weights.

A weighted metric takes weights of shape (replicates, cases), the count of each case, and returns one value for each
replicate, NaN if undefined. Ones give the cohort's own value, the counts of a bootstrap sample its replicate, both from
the same few sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.intp]
WeightedMetric: TypeAlias = Callable[[Floats], Floats]
Box: TypeAlias = tuple[slice, slice, slice]

MM3_PER_ML: Final = 1000.0
VOLUME_BINS: Final = 5

# DSC of a case without reference voxels, (without, with) predicted voxels; None leaves the case out of the mean.
EMPTY_RULES: Final[dict[str, tuple[float | None, float | None]]] = {
    "skip": (None, 0.0),
    "one": (1.0, 0.0),
    "zero": (0.0, 0.0),
    "drop_empty_reference": (None, None),
}


@dataclass(frozen=True)
class Overlap:
    """Voxel counts of one label in one case."""

    intersection: int
    reference: int
    predicted: int


def extend_to_cohort(metric: WeightedMetric, places: npt.NDArray[np.intp], n_cases: int) -> WeightedMetric:
    """A metric of the cases at `places` of a cohort as a function of the weights of all its `n_cases` cases."""
    if np.array_equal(places, np.arange(n_cases)):
        return metric
    if isinstance(metric, MeanRecall):
        return metric.extend_to_cohort(places, n_cases)
    return lambda weights: metric(weights[:, places])


def foreground_box(*masks: npt.NDArray[Any]) -> Box:
    """The smallest box, in (z, y, x) slices, outside which every mask is zero; empty slices where all are.

    Masks hold no negative values and share one shape.
    """
    if masks[0].size == 0:
        return (slice(0, 0), slice(0, 0), slice(0, 0))
    planes = np.maximum.reduce([mask.reshape(mask.shape[0], -1).max(axis=1) for mask in masks])
    along_z = _extent(planes)
    yx = np.maximum.reduce([mask[along_z].max(axis=0, initial=0) for mask in masks])
    return (along_z, _extent(yx.max(axis=1)), _extent(yx.max(axis=0)))


def _extent(profile: npt.NDArray[Any]) -> slice:
    occupied = np.flatnonzero(profile)
    return slice(int(occupied[0]), int(occupied[-1]) + 1) if occupied.size else slice(0, 0)


def count_overlaps(reference: npt.NDArray[np.uint8], predicted: npt.NDArray[np.uint8], n_labels: int) -> list[Overlap]:
    """Voxel counts of every label, background first, from one pass over two masks of one shape, (z, y, x).

    `n_labels` is the number of labels, background included.
    """
    pairs = reference.astype(np.uint8, copy=False) * np.uint8(n_labels) + predicted
    joint = np.bincount(pairs.ravel(), minlength=n_labels**2).reshape(n_labels, n_labels)
    return [
        Overlap(int(joint[label, label]), int(joint[label].sum()), int(joint[:, label].sum()))
        for label in range(n_labels)
    ]


class OverlapScores(NamedTuple):
    """Scores of one label in one case, in [0, 1]; None if the case does not count."""

    dsc: float | None
    precision: float | None
    recall: float | None


def score_overlap(voxels: Overlap, *, failed: bool, rule: str) -> OverlapScores:
    """Dice similarity coefficient, precision and recall of one label in one case.

    2 intersection / (reference + predicted), the fraction of the predicted voxels that are correct, and the fraction of
    the reference voxels that are predicted. `rule`, a key of `EMPTY_RULES`, decides about an empty reference. An empty
    prediction of a tumour has precision 0; `failed` (no usable prediction) has no predicted voxel.
    """
    common, reference, predicted = voxels.intersection, voxels.reference, voxels.predicted
    if reference > 0:
        precision = common / predicted if predicted > 0 else 0.0
        return OverlapScores(2 * common / (reference + predicted), precision, common / reference)
    # An empty reference does not excuse a failed case, unless the rule drops every empty reference.
    score = EMPTY_RULES[rule][predicted > 0 or failed]
    return OverlapScores(score, score, score)


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Element by element; NaN where the denominator is not positive."""
    undefined: Floats = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)


def ratio_of_sums(weights: Floats, numerator: Floats, denominator: Floats) -> Floats:
    """Sum of numerators over sum of denominators in each replicate; NaN if the denominators sum to 0."""
    return ratio(weights @ numerator, weights @ denominator)


@dataclass(frozen=True, eq=False)
class MeanRecall:
    """The mean recall of groups of patients as a function of case weights: a recall, accuracy or balanced accuracy.

    Groups without a patient are left out; with fewer than `least` groups left the metric is undefined.

    Attributes:
        correct: 1 where the answer is right, 0 elsewhere; shape (cases,).
        members: 1 where a case belongs to a group, 0 elsewhere; shape (groups, cases).
    """

    correct: Floats
    members: Floats
    least: int = 1

    @cached_property
    def _found(self) -> Floats:
        return self.members * self.correct

    def __call__(self, weights: Floats) -> Floats:
        recalls = np.stack([ratio_of_sums(weights, *of) for of in zip(self._found, self.members, strict=True)])
        present = (~np.isnan(recalls)).sum(axis=0)
        return ratio(np.nansum(recalls, axis=0), np.where(present >= self.least, present, 0.0))

    def extend_to_cohort(self, places: Integers, n_cases: int) -> MeanRecall:
        """The same of the cases at `places` of a cohort of `n_cases`."""
        correct, members = np.zeros(n_cases), np.zeros((len(self.members), n_cases))
        correct[places], members[:, places] = self.correct, self.members
        return MeanRecall(correct, members, self.least)


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """The sum of (weight, metric) pairs as a function of case weights; NaN where one is undefined."""

    terms: Sequence[tuple[float, WeightedMetric]]

    def __call__(self, weights: Floats) -> Floats:
        return np.asarray(np.sum([share * metric(weights) for share, metric in self.terms], axis=0))


@dataclass(frozen=True, eq=False)
class Difference:
    """The first metric minus the second on the same samples, as a function of case weights."""

    first: WeightedMetric
    second: WeightedMetric

    def __call__(self, weights: Floats) -> Floats:
        return self.first(weights) - self.second(weights)


def split_into_recalls(metric: WeightedMetric) -> dict[MeanRecall, float]:
    """Return the recalls, accuracies or balanced accuracies whose weighted sum a metric is, each with its weight.

    The result is empty if the metric has other parts.
    """
    if isinstance(metric, MeanRecall):
        return {metric: 1.0}
    weights: dict[MeanRecall, float] = {}
    for share, term in metric.terms if isinstance(metric, WeightedSum) else ():
        recalls = split_into_recalls(term)
        if not recalls:
            return {}
        for recall, weight in recalls.items():
            weights[recall] = weights.get(recall, 0.0) + share * weight
    return weights


def mean_metric(values: Floats) -> WeightedMetric:
    """The mean of per-case values; NaN marks a case that does not count."""
    counted = np.isfinite(values)
    numerator, denominator = np.where(counted, values, 0.0), counted.astype(np.float64)
    return lambda weights: ratio_of_sums(weights, numerator, denominator)


def median_metric(values: Floats) -> WeightedMetric:
    """The median of per-case values; NaN marks a case that does not count, infinity the worst distance.

    Weights are whole numbers, the counts of each case. With an even count, the mean of the middle two.
    """
    counted = np.flatnonzero(~np.isnan(values))
    order = counted[np.argsort(values[counted], kind="stable")]
    ordered = values[order]

    def weighted(weights: Floats) -> Floats:
        median: Floats = np.full(len(weights), np.nan)
        if order.size == 0:
            return median
        up_to = np.cumsum(weights[:, order], axis=1)
        total = up_to[:, -1]
        # The middle element is the first with more than this many elements up to it.
        low = np.argmax(up_to > np.floor((total - 1) / 2)[:, None], axis=1)
        high = np.argmax(up_to > np.floor(total / 2)[:, None], axis=1)
        np.copyto(median, (ordered[low] + ordered[high]) / 2, where=total > 0)
        return median

    return weighted


def dsc_agg_metric(intersections: Floats, references: Floats, predictions: Floats) -> WeightedMetric:
    """Aggregated DSC, 2 sum(intersection) / sum(reference + predicted): a ratio of sums over cases.

    Volumes are in mm3 or voxels. Source: Andrearczyk et al., and the organisers' code of 2022 and 2025.
    """
    return lambda weights: ratio_of_sums(weights, 2 * intersections, references + predictions)


def harmonic_mean_metric(first: WeightedMetric, second: WeightedMetric) -> WeightedMetric:
    """2 a b / (a + b) of two metrics, each 0 or more; 0 where both are, NaN where one is undefined."""

    def weighted(weights: Floats) -> Floats:
        one, other = first(weights), second(weights)
        total = one + other
        return np.where(total == 0, 0.0, ratio(2 * one * other, total))

    return weighted


def average_metric(*metrics: WeightedMetric) -> WeightedMetric:
    """The plain mean of several metrics; NaN where one is undefined."""
    return lambda weights: np.asarray(np.mean([metric(weights) for metric in metrics], axis=0))


def split_into_equal_bins(values: Floats, n_bins: int) -> list[Integers]:
    """The places of rising values in bins of equal size, the first bin also with the remainder.

    Equal values keep their order. With fewer values than bins the first bin holds all of them.
    Source: the HECKTOR 2021 overview (101 cases in bins of 21, 20, 20, 20 and 20).
    """
    order = np.argsort(values, kind="stable")
    size = order.size // n_bins
    return np.split(order, [order.size - size * (n_bins - number) for number in range(1, n_bins)])


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rank correlation, average ranks for ties; None if either side is constant."""
    value = float(spearman_metric(first, second)(np.ones((1, len(first))))[0])
    return None if np.isnan(value) else value


def spearman_metric(first: Floats, second: Floats) -> WeightedMetric:
    """The same as a function of case weights, whole numbers; NaN if either side is constant."""

    def weighted(weights: Floats) -> Floats:
        a, b = (_centred_ranks(values, weights) for values in (first, second))
        spread = np.sqrt((weights * a**2).sum(axis=1) * (weights * b**2).sum(axis=1))
        product = (weights * a * b).sum(axis=1)
        return np.asarray(np.divide(product, spread, out=np.full(len(product), np.nan), where=spread > 1e-9))

    return weighted


def _centred_ranks(values: Floats, weights: Floats) -> Floats:
    """Average ranks less their mean. `scipy.stats.rankdata` takes no weights, and a second of every run to import."""
    _, level = np.unique(values, return_inverse=True)
    counts = np.stack([np.bincount(level, of_sample) for of_sample in weights])
    ranks = np.cumsum(counts, axis=1) - (counts - 1) / 2
    centred: Floats = ranks[:, level] - (weights.sum(axis=1, keepdims=True) + 1) / 2
    return centred
