"""Each feature's coefficient in the shipped head, and how steady it is over the outer folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

# Harmonised and elastic-net heads may use all features; the page shows those that weigh most.
MOST_SHOWN: Final = 20


@dataclass(frozen=True)
class Coefficient:
    """A feature's weight a standard deviation: in the shipped head (None where it has none) and in each outer fold, 0
    where that fold's head does not use it.
    """

    feature: str
    shipped: float | None
    folds: tuple[float, ...]

    @property
    def used_in(self) -> int:
        """In how many outer folds the feature has a weight."""
        return sum(weight != 0 for weight in self.folds)

    @property
    def same_sign(self) -> int:
        """In how many outer folds its weight has the sign of the shipped one, or of most where none is shipped."""
        sign = np.sign(sum(self.folds) if self.shipped is None else self.shipped)
        return sum(bool(np.sign(weight) == sign) for weight in self.folds if weight != 0)

    @property
    def size(self) -> float:
        """The larger of the shipped weight and the mean of the folds', without sign."""
        mean = float(np.mean(self.folds)) if self.folds else 0.0
        return max(abs(self.shipped or 0.0), abs(mean))


def coefficients(head: Mapping[str, Any] | None, folds: Sequence[Mapping[str, Any]]) -> list[Coefficient]:
    """Every feature of the shipped head or any outer fold, the weightiest first.

    Args:
        head: the head's record (`terms` with `feature` and `weight`), None where there is none.
        folds: the outer folds' records with `coefficients`.
    """
    shipped = {} if head is None else {term["feature"]: float(term["weight"]) for term in head["terms"]}
    names = dict.fromkeys([*shipped, *(name for fold in folds for name in fold["coefficients"])])
    found = [
        Coefficient(name, shipped.get(name), tuple(float(fold["coefficients"].get(name, 0.0)) for fold in folds))
        for name in names
    ]
    return sorted(found, key=lambda one: -one.size)
