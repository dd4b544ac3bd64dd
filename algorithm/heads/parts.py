"""Parts of heads as documents: bounded numbers, calibration, baseline hazard and decision trees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from contract.documents import Document

# Sums of many terms up to this size are still finite.
MAX_NUMBER: Final = 1e100
# Beyond this logit the logistic function is 0 or 1 in double precision.
MAX_LOGIT: Final = 700.0
MAX_STEPS: Final = 64
# Up to this score the hazard ratio exp(score), and its products with any hazard that a head may have, are finite.
MAX_SCORE: Final = 300.0
MAX_TREES: Final = 1000
MAX_NODES: Final = 10_000
# Marks a leaf in `Tree.features`.
LEAF: Final = -1

_Floats = npt.NDArray[np.float64]


def _check_size(value: float) -> float:
    if abs(value) >= MAX_NUMBER:
        raise ValueError(f"a number below {MAX_NUMBER:g}")
    return value


Number = Annotated[float, AfterValidator(_check_size)]
PositiveNumber = Annotated[Number, Field(gt=0)]


class Calibration(Document):
    """Calibration of a score: the probability is the logistic function of `slope * score + offset` (Platt 1999)."""

    slope: Number
    offset: Number

    def probability(self, score: float) -> float:
        """Return the calibrated probability of a score."""
        logit = self.slope * score + self.offset
        return 1 / (1 + math.exp(-max(-MAX_LOGIT, min(MAX_LOGIT, logit))))


class Survival(Document):
    """Cumulative baseline hazard, of a patient with score 0, from day 0 to the last day, the horizon.

    The hazard is 0 on day 0. `days` are above 0 and ascend; `cumulative_hazard` is the hazard on each of these days and
    is linear between them.
    """

    days: Annotated[tuple[Number, ...], Field(min_length=1, max_length=MAX_STEPS)]
    cumulative_hazard: tuple[Number, ...]

    @model_validator(mode="after")
    def _check_ascent(self) -> Survival:
        days, hazard = self.days, self.cumulative_hazard
        if len(days) != len(hazard):
            raise ValueError(f"as many values of cumulative_hazard ({len(hazard)}) as days ({len(days)})")
        is_rising = hazard[0] > 0 and all(low <= high for low, high in pairwise(hazard))
        if not is_rising or any(low >= high for low, high in pairwise((0.0, *days))):
            raise ValueError("ascending days and hazards above 0")
        return self

    @property
    def horizon_days(self) -> float:
        """Return the last day, which no predicted time exceeds."""
        return self.days[-1]

    def restricted_mean(self, score: float) -> float:
        """Return the expected recurrence-free days within the horizon, always finite and above 0.

        This is the integral of exp(-H0(t) exp(score)) over t from 0 to the horizon. It decreases strictly with the
        score, except where it equals its limits, 0 and the horizon, in double precision.
        """
        ratio = _hazard_ratio(score)
        return sum(
            (end - start) * _mean_survival(ratio * low, ratio * high) for (start, low), (end, high) in self._steps()
        )

    def median(self, score: float) -> float | None:
        """Return the median time to recurrence, in days, of patients with this score; None beyond the horizon."""
        half = math.log(2) / _hazard_ratio(score)
        for (start, low), (end, high) in self._steps():
            if high >= half:
                return start + (end - start) * (half - low) / (high - low)
        return None

    def _steps(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Iterate over the linear parts of the hazard: the start and the end of each, as (day, hazard)."""
        return pairwise(zip((0.0, *self.days), (0.0, *self.cumulative_hazard), strict=True))


def _hazard_ratio(score: float) -> float:
    return math.exp(max(-MAX_SCORE, min(MAX_SCORE, score)))


def _mean_survival(low: float, high: float) -> float:
    """Return the mean of exp(-h) for h from `low` to `high`."""
    growth = high - low
    return math.exp(-low) * (-math.expm1(-growth) / growth if growth > 0 else 1.0)


class Tree(Document):
    """A decision tree in preorder: each split is followed by its left branch, and then by its right branch.

    Attributes:
        features: For each node the index of the feature that it splits, or -1 for a leaf.
        numbers: For each node the threshold of the split, or the value of the leaf. A patient goes left if the feature
            is at most the threshold. Features and thresholds are compared in single precision.
    """

    features: Annotated[tuple[Annotated[int, Field(ge=LEAF)], ...], Field(min_length=1, max_length=MAX_NODES)]
    numbers: tuple[Number, ...]

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        if len(self.numbers) != len(self.features):
            raise ValueError(f"as many numbers ({len(self.numbers)}) as features ({len(self.features)})")
        open_branches = 1
        for node, feature in enumerate(self.features, start=1):
            open_branches += -1 if feature == LEAF else 1
            if (open_branches == 0) != (node == len(self.features)):
                raise ValueError("two branches after each split, and no node after the last leaf")
        return self

    def find_right_branches(self) -> list[int]:
        """Return, for each node, the index of the first node of its right branch; for a leaf its own index."""
        right = list(range(len(self.features)))
        splits: list[int] = []
        for node, feature in enumerate(self.features):
            if node and self.features[node - 1] == LEAF:
                right[splits.pop()] = node
            if feature != LEAF:
                splits.append(node)
        return right


@dataclass(frozen=True)
class Forest:
    """The nodes of several trees, one tree after the other.

    Attributes:
        roots: Index of the first node of each tree.
        features: Index of the feature that a node splits; -1 for a leaf.
        thresholds: Thresholds of the splits, in single precision.
        values: Values of the leaves.
        right: Index of the first node of the right branch; for a leaf its own index.
    """

    roots: npt.NDArray[np.int64]
    features: npt.NDArray[np.int64]
    thresholds: npt.NDArray[np.float32]
    values: _Floats
    right: npt.NDArray[np.int64]

    @classmethod
    def from_trees(cls, trees: Sequence[Tree]) -> Forest:
        """Join the nodes of several trees."""
        sizes = [len(tree.features) for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        numbers = np.concatenate([np.array(tree.numbers, dtype=np.float64) for tree in trees])
        right = [np.array(tree.find_right_branches()) + root for tree, root in zip(trees, roots, strict=True)]
        largest = np.finfo(np.float32).max
        return cls(
            roots,
            np.concatenate([np.array(tree.features, dtype=np.int64) for tree in trees]),
            np.clip(numbers, -largest, largest).astype(np.float32),
            numbers,
            np.concatenate(right),
        )

    def predict(self, columns: _Floats) -> _Floats:
        """Compute the mean of the trees' leaves for each patient, shape (patients,).

        Args:
            columns: The features, shape (patients, features).
        """
        values = columns.astype(np.float32)
        nodes = np.tile(self.roots, (len(values), 1))
        rows = np.arange(len(values))[:, None]
        while (is_split := self.features[nodes] != LEAF).any():
            goes_left = values[rows, np.maximum(self.features[nodes], 0)] <= self.thresholds[nodes]
            nodes = np.where(is_split & goes_left, nodes + 1, self.right[nodes])
        return np.asarray(self.values[nodes].mean(1), dtype=np.float64)
