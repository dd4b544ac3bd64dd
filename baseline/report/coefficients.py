"""Coefficients of the shipped head and their stability over the outer folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

# A head may use all features; the page shows those with the largest weights.
MOST_SHOWN: Final = 20


@dataclass(frozen=True)
class Coefficient:
    """A feature's weight per standard deviation in the shipped head and each outer fold; None and 0 if unused."""

    feature: str
    shipped: float | None
    folds: tuple[float, ...]

    @property
    def used_in(self) -> int:
        """Number of outer folds that use the feature."""
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

    Args:
        head: the head's record (`terms` with `feature` and `weight`), None without a head.
        folds: the outer folds' records with `coefficients`.
    """
    shipped = {} if head is None else {term["feature"]: float(term["weight"]) for term in head["terms"]}
    names = dict.fromkeys([*shipped, *(name for fold in folds for name in fold["coefficients"])])
    weights = [
        Coefficient(name, shipped.get(name), tuple(float(fold["coefficients"].get(name, 0.0)) for fold in folds))
        for name in names
    ]
    return sorted(weights, key=lambda one: -one.size)
