"""How high a score gets by trying often: the distribution of the best of k predictions that know nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.errors import MetricError
from evaluation.editions.edge_cases import NO_COMPARABLE_PAIR, ONE_CLASS_ONLY
from evaluation.metrics.concordance import follow_up_order
from evaluation.metrics.overlap import Floats

Booleans: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]
# Scores of so many random predictions, drawn from a generator.
DrawScores: TypeAlias = Callable[[int, np.random.Generator], Floats]

_DRAWS_AT_ONCE: Final = 1_000_000
_QUANTILES: Final = {"ci95_low": 0.025, "median": 0.5, "ci95_high": 0.975}


def random_c_index(times_days: Floats, events: Booleans) -> DrawScores:
    """C-indices of independent random risks, drawn without drawing any risk; exact, for risks without ties.

    Args:
        times_days: follow-up, shape (patients,).
        events: True = recurrence, shape (patients,).

    Go through the recurrences from the last to the first. All m patients that one is comparable with are later, and
    the number of them with a lower risk is uniform on 0 to m, whatever their own order is: so one whole number a
    recurrence and draw is enough. Recurrences at one time are compared with the same m patients: of the m + 1 gaps
    between these, each next one takes a gap with a weight of 1 + the number of those already in it.
    Which pairs are comparable says `evaluation.metrics.survival.c_index_metric`.

    Raises:
        MetricError: no pair is comparable.
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
    """How many of m later patients have a lower risk than each of n recurrences at one time, summed over these."""
    gaps = np.empty((n, draws), dtype=np.int64)
    for place in range(n):
        drawn = rng.integers(0, m + 1 + place, draws)
        shares = np.flatnonzero(drawn > m)
        gaps[place] = drawn
        gaps[place, shares] = gaps[drawn[shares] - m - 1, shares]
    total: Integers = gaps.sum(axis=0)
    return total


def random_balanced_accuracy(positive: Booleans) -> DrawScores:
    """Balanced accuracies of answers by the toss of a fair coin; `positive` is the reference, shape (patients,).

    Raises:
        MetricError: the reference holds one class only.
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if n_positive == 0 or n_negative == 0:
        raise MetricError(ONE_CLASS_ONLY)

    def scores(draws: int, rng: np.random.Generator) -> Floats:
        sensitivity = rng.binomial(n_positive, 0.5, draws) / n_positive
        specificity = rng.binomial(n_negative, 0.5, draws) / n_negative
        return (sensitivity + specificity) / 2

    return scores


@dataclass(frozen=True)
class BestOf:
    """The best of `tries` random predictions, as often as it was repeated; shape (repeats,)."""

    tries: int
    best: Floats

    def summary(self, winner: float | None = None) -> dict[str, Any]:
        """Mean, standard deviation and quantiles; with a winner's score how likely chance does as well.

        `p` has one added to both counts, so that it is never 0 (Davison and Hinkley 1997, section 4.2).
        """
        found: dict[str, Any] = {"tries": self.tries, "mean": float(self.best.mean()), "sd": float(self.best.std())}
        found |= {name: float(np.quantile(self.best, share)) for name, share in _QUANTILES.items()}
        if winner is not None:
            found["p"] = float(((self.best >= winner).sum() + 1) / (self.best.size + 1))
        return found


def best_of(scores: DrawScores, tries: int, repeats: int, rng: np.random.Generator) -> BestOf:
    """The best of `tries` independent random predictions, `repeats` times.

    Source: the HECKTOR 2021 overview, which so asks whether the winner of 82 submissions beats chance.
    """
    step = max(1, _DRAWS_AT_ONCE // tries)
    parts = []
    for start in range(0, repeats, step):
        rows = min(step, repeats - start)
        parts.append(scores(rows * tries, rng).reshape(rows, tries).max(axis=1))
    return BestOf(tries, np.concatenate(parts))
