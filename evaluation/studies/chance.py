"""Scores by chance: the distribution of the best of k random predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.errors import MetricError
from evaluation.metrics.concordance import follow_up_order
from evaluation.metrics.overlap import Floats
from evaluation.metrics.rules import NO_COMPARABLE_PAIR, ONE_CLASS_ONLY

Booleans: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]
# Takes a number of random predictions and a generator, returns their scores.
DrawScores: TypeAlias = Callable[[int, np.random.Generator], Floats]

_DRAWS_AT_ONCE: Final = 1_000_000
_QUANTILES: Final = {"ci95_low": 0.025, "median": 0.5, "ci95_high": 0.975}


def random_c_index(times_days: Floats, events: Booleans) -> DrawScores:
    """C-indices of independent random risks without ties, drawn exactly without drawing the risks.

    `times_days` is the follow-up and `events` True for a recurrence, both of shape (patients,). Raises MetricError
    without a comparable pair.

    Take the recurrences from last to first. All m patients comparable with a recurrence are later. The number of them
    with a lower risk is uniform on 0 to m, independent of their own order, so one whole number for each recurrence
    and draw is enough. Recurrences at the same time are compared with the same m patients: each further one takes one
    of the m + 1 gaps between them with a weight of 1 + the number of recurrences already in that gap.
    `evaluation.metrics.survival.c_index_metric` defines comparable pairs.
    """
    number = follow_up_order(times_days, events)
    counts = np.bincount(number)
    later = counts[::-1].cumsum()[::-1] - counts
    recurring = np.bincount(number[events], minlength=counts.size)
    groups = [(int(m), int(n)) for m, n in zip(later, recurring, strict=True) if m > 0 and n > 0]
    pairs = sum(m * n for m, n in groups)
    if pairs == 0:
        raise MetricError(NO_COMPARABLE_PAIR.format(n=times_days.size))

    def scores(draws: int, rng: np.random.Generator) -> Floats:
        concordant = np.zeros(draws, dtype=np.int64)
        for m, n in groups:
            concordant += _lower_risks(m, n, draws, rng)
        return concordant / pairs

    return scores


def _lower_risks(m: int, n: int, draws: int, rng: np.random.Generator) -> Integers:
    """The number of m later patients with a lower risk, summed over n recurrences at one time."""
    gaps = np.empty((n, draws), dtype=np.int64)
    for place in range(n):
        drawn = rng.integers(0, m + 1 + place, draws)
        shares = np.flatnonzero(drawn > m)
        gaps[place] = drawn
        gaps[place, shares] = gaps[drawn[shares] - m - 1, shares]
    return np.asarray(gaps.sum(axis=0))


def random_balanced_accuracy(reference: npt.NDArray[Any], n_classes: int = 2) -> DrawScores:
    """Balanced accuracies of random predictions, each class equally likely.

    `reference` is the class of each patient, shape (patients,). Raises MetricError if it holds one class only.
    """
    sizes = np.unique(reference, return_counts=True)[1][::-1]
    if sizes.size < 2:
        raise MetricError(ONE_CLASS_ONLY)

    def scores(draws: int, rng: np.random.Generator) -> Floats:
        recalls = [rng.binomial(size, 1 / n_classes, draws) / size for size in sizes]
        return np.asarray(np.sum(recalls, axis=0) / len(recalls))

    return scores


@dataclass(frozen=True)
class BestOf:
    """The best of `tries` random predictions in each repeat; shape (repeats,)."""

    tries: int
    best: Floats

    def summary(self, winner: float | None = None) -> dict[str, Any]:
        """Mean, standard deviation and quantiles; with a winner's score also the probability that chance reaches it.

        One is added to both counts of `p`, so that it is never 0 (Davison and Hinkley 1997, section 4.2).
        """
        figures: dict[str, Any] = {"tries": self.tries, "mean": float(self.best.mean()), "sd": float(self.best.std())}
        figures |= {name: float(np.quantile(self.best, share)) for name, share in _QUANTILES.items()}
        if winner is not None:
            figures["p"] = float(((self.best >= winner).sum() + 1) / (self.best.size + 1))
        return figures


def best_of(scores: DrawScores, tries: int, repeats: int, rng: np.random.Generator) -> BestOf:
    """The best of `tries` independent random predictions, `repeats` times.

    Source: the HECKTOR 2021 overview, which asks whether the winner of 82 submissions beats chance.
    """
    step = max(1, _DRAWS_AT_ONCE // tries)
    parts = []
    for start in range(0, repeats, step):
        rows = min(step, repeats - start)
        parts.append(scores(rows * tries, rng).reshape(rows, tries).max(axis=1))
    return BestOf(tries, np.concatenate(parts))
