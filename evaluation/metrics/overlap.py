"""Overlap of masks: counts of one case, aggregates over a cohort as functions of case weights.

A weighted metric takes weights of shape (replicates, cases), the count of each case, and returns one value for each
replicate, NaN if undefined. Weights of 1 give the value of the cohort, and the counts of a bootstrap sample give the
value of this replicate. Both come from the same few sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.intp]
WeightedMetric: TypeAlias = Callable[[Floats], Floats]
Box: TypeAlias = tuple[slice, slice, slice]

MM3_PER_ML: Final = 1000.0
VOLUME_BINS: Final = 5

# DSC of a case without reference voxels: (without predicted voxels, with predicted voxels). None leaves the case out of
# the mean.
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


def extend_to_cohort(metric: WeightedMetric, indices: npt.NDArray[np.intp], n_cases: int) -> WeightedMetric:
    """Return a metric of some cases as a function of the weights of all cases of a cohort.

    Args:
        metric: Metric as a function of the weights of some cases.
        indices: Index of each of these cases in the cohort.
        n_cases: Number of cases in the cohort.
    """
    if np.array_equal(indices, np.arange(n_cases)):
        return metric
    if isinstance(metric, MeanRecall):
        return metric.extend_to_cohort(indices, n_cases)
    return lambda weights: metric(weights[:, indices])


def find_foreground_box(*masks: npt.NDArray[Any]) -> Box:
    """Find the smallest box, in (z, y, x) slices, that contains the foreground of every mask.

    The masks have the same shape and no negative values. The slices are empty if every mask is.
    """
    if masks[0].size == 0:
        return (slice(0, 0), slice(0, 0), slice(0, 0))
    planes = np.maximum.reduce([mask.reshape(mask.shape[0], -1).max(axis=1) for mask in masks])
    along_z = _find_extent(planes)
    yx = np.maximum.reduce([mask[along_z].max(axis=0, initial=0) for mask in masks])
    return (along_z, _find_extent(yx.max(axis=1)), _find_extent(yx.max(axis=0)))


def _find_extent(profile: npt.NDArray[Any]) -> slice:
    occupied = np.flatnonzero(profile)
    return slice(int(occupied[0]), int(occupied[-1]) + 1) if occupied.size else slice(0, 0)


def count_overlaps(reference: npt.NDArray[np.uint8], predicted: npt.NDArray[np.uint8], n_labels: int) -> list[Overlap]:
    """Count the voxels of every label, background first, in two masks of the same shape, (z, y, x).

    `n_labels` is the number of labels with the background.
    """
    overlaps = []
    for label in range(n_labels):
        in_reference, in_prediction = reference == label, predicted == label
        counted = (in_reference & in_prediction, in_reference, in_prediction)
        overlaps.append(Overlap(*(int(np.count_nonzero(mask)) for mask in counted)))
    return overlaps


class OverlapScores(NamedTuple):
    """Scores of one label in one case, from 0 to 1; None if the case does not count."""

    dsc: float | None
    precision: float | None
    recall: float | None


def score_overlap(voxels: Overlap, *, failed: bool, rule: str) -> OverlapScores:
    """Compute the Dice similarity coefficient, precision and recall of one label in one case.

    The DSC is 2 intersection / (reference + predicted). Precision is the fraction of the predicted voxels that are
    correct, recall the fraction of the reference voxels that are predicted. If the prediction of a tumour is empty, its
    precision is 0.

    Args:
        voxels: Voxel counts of the label.
        failed: Whether there is no usable prediction. Then no voxel is predicted.
        rule: Key of `EMPTY_RULES`, which decides about an empty reference.
    """
    common, reference, predicted = voxels.intersection, voxels.reference, voxels.predicted
    if reference > 0:
        precision = common / predicted if predicted > 0 else 0.0
        return OverlapScores(2 * common / (reference + predicted), precision, common / reference)
    # An empty reference does not excuse a failed case, unless the rule drops every empty reference.
    score = EMPTY_RULES[rule][predicted > 0 or failed]
    return OverlapScores(score, score, score)


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide element by element; NaN where the denominator is not positive."""
    undefined: Floats = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)


def ratio_of_sums(weights: Floats, numerator: Floats, denominator: Floats) -> Floats:
    """Divide the weighted sum of numerators by the weighted sum of denominators in each replicate.

    The ratio is NaN if the denominators sum to 0.
    """
    return ratio(weights @ numerator, weights @ denominator)


@dataclass(frozen=True, eq=False)
class MeanRecall:
    """The mean recall of groups of patients as a function of case weights: a recall, accuracy or balanced accuracy.

    Groups with no patient are left out. If fewer than `min_groups` groups remain, the metric is undefined.

    Attributes:
        correct: 1 where the prediction is right, 0 elsewhere; shape (cases,).
        members: 1 where a case belongs to a group, 0 elsewhere; shape (groups, cases).
        min_groups: Number of groups that must have patients.
    """

    correct: Floats
    members: Floats
    min_groups: int = 1

    @cached_property
    def _correct_members(self) -> Floats:
        return self.members * self.correct

    def __call__(self, weights: Floats) -> Floats:
        groups = zip(self._correct_members, self.members, strict=True)
        recalls = np.stack([ratio_of_sums(weights, correct, members) for correct, members in groups])
        present = (~np.isnan(recalls)).sum(axis=0)
        return ratio(np.nansum(recalls, axis=0), np.where(present >= self.min_groups, present, 0.0))

    def extend_to_cohort(self, indices: Integers, n_cases: int) -> MeanRecall:
        """Return the metric as a function of the weights of all cases of a cohort, see the function of this name."""
        correct = np.zeros(n_cases)
        members = np.zeros((len(self.members), n_cases))
        correct[indices] = self.correct
        members[:, indices] = self.members
        return MeanRecall(correct, members, self.min_groups)


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """The sum of (weight, metric) pairs as a function of case weights; NaN where a metric is undefined."""

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
    terms = metric.terms if isinstance(metric, WeightedSum) else ()
    for share, term in terms:
        recalls = split_into_recalls(term)
        if not recalls:
            return {}
        for recall, weight in recalls.items():
            weights[recall] = weights.get(recall, 0.0) + share * weight
    return weights


def mean_metric(values: Floats) -> WeightedMetric:
    """Return the mean of per-case values as a function of case weights; NaN marks a case that does not count."""
    counted = np.isfinite(values)
    numerator, denominator = np.where(counted, values, 0.0), counted.astype(np.float64)
    return lambda weights: ratio_of_sums(weights, numerator, denominator)


def median_metric(values: Floats) -> WeightedMetric:
    """Return the median of per-case values as a function of case weights, which are the whole-number counts of cases.

    NaN marks a case that does not count, infinity the worst distance. The median of an even number of values is the
    mean of the middle two.
    """
    counted = np.flatnonzero(~np.isnan(values))
    order = counted[np.argsort(values[counted], kind="stable")]
    ordered = values[order]

    def median(weights: Floats) -> Floats:
        medians: Floats = np.full(len(weights), np.nan)
        if order.size == 0:
            return medians
        up_to = np.cumsum(weights[:, order], axis=1)
        total = up_to[:, -1]
        # The middle element is the first with more than this many elements up to it.
        low = np.argmax(up_to > np.floor((total - 1) / 2)[:, None], axis=1)
        high = np.argmax(up_to > np.floor(total / 2)[:, None], axis=1)
        np.copyto(medians, (ordered[low] + ordered[high]) / 2, where=total > 0)
        return medians

    return median


def dsc_agg_metric(intersections: Floats, references: Floats, predictions: Floats) -> WeightedMetric:
    """Return the aggregated DSC, 2 sum(intersection) / sum(reference + predicted), as a function of case weights.

    The sums are over cases, of volumes in mm3 or voxels.
    Source: Andrearczyk et al., and the organisers' code of 2022 and 2025.
    """
    return lambda weights: ratio_of_sums(weights, 2 * intersections, references + predictions)


def harmonic_mean_metric(first: WeightedMetric, second: WeightedMetric) -> WeightedMetric:
    """Return the harmonic mean 2 a b / (a + b) of two metrics that are 0 or more.

    It is 0 where both metrics are 0, and NaN where one of them is undefined.
    """

    def harmonic_mean(weights: Floats) -> Floats:
        a, b = first(weights), second(weights)
        total = a + b
        return np.where(total == 0, 0.0, ratio(2 * a * b, total))

    return harmonic_mean


def average_metric(*metrics: WeightedMetric) -> WeightedMetric:
    """Return the mean of several metrics; NaN where one of them is undefined."""
    return lambda weights: np.asarray(np.mean([metric(weights) for metric in metrics], axis=0))


def split_into_equal_bins(values: Floats, n_bins: int) -> list[Integers]:
    """Return the indices of the values in bins of equal size, from the smallest values to the largest.

    The first bin also contains the remainder. Equal values keep their order. If there are fewer values than bins, the
    first bin contains all of them.
    Source: the HECKTOR 2021 overview (101 cases in bins of 21, 20, 20, 20 and 20).
    """
    order = np.argsort(values, kind="stable")
    size = order.size // n_bins
    return np.split(order, [order.size - size * (n_bins - number) for number in range(1, n_bins)])
