"""The exact paired exchange: how often a gain is as large if the two teams' answers are swapped by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np
from scipy.stats import binom

from evaluation.metrics.overlap import Booleans, Floats, Integers, WeightedGroups
from evaluation.statistics.tests import DECIMALS, SMALLEST_P

# Classes with fewer discordant patients are too small for a variance.
LEAST_DISCORDANT: Final = 5
ALPHA: Final = 0.025
# Up to this many sums of each half of the patients all of them are listed; beyond it they lie on a lattice.
_MOST_SUMS: Final = 4096
_LATTICE: Final = 2**13
_ROUNDING: Final = 1e-10
_HALVINGS: Final = 24


@dataclass(frozen=True)
class PairedExchange:
    """The exchange test of each team against each other one; all of shape (teams, teams).

    Attributes:
        p: one-sided, small if team a is better; 1 where the test does not exist.
        reach: the largest gain of an exchange whose one-sided p is above 0.025; NaN where the test does not exist.
        small_class: whether a class has fewer than five discordant patients; False for means of other values.
    """

    p: Floats
    reach: Floats
    small_class: Booleans

    @property
    def exists(self) -> Booleans:
        """Pairs of teams that count the same cases by a metric that is a weighted sum of means."""
        exists: Booleans = ~np.isnan(self.reach)
        return exists

    @property
    def exists_for_all(self) -> bool:
        return bool(self.exists.sum() == self.p.size - len(self.p)) and len(self.p) > 1


def paired_exchange(teams: Sequence[WeightedGroups | None], wanted: Booleans) -> PairedExchange:
    """The test of the pairs of teams that are `wanted`, (teams, teams), and of all pairs if values are fractions.

    If two teams are equally good, each patient's two answers could as well have been each other's. A swap changes the
    sign of the patient's part in the difference, so that the difference is a sum of terms of random sign, whose
    distribution is a convolution. Patients with equal terms, such as the discordant ones of a class, form a binomial
    distribution. The p is the probability of a sum at least as large as the difference. Beyond 16 million sums the
    terms are rounded to 1/8192 of their sum first; the p is then the exact one of the rounded terms.

    Source: Fisher 1935, The Design of Experiments, section 21.
    """
    shape = (len(teams), len(teams))
    p, reach, small = np.ones(shape), np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    parts = [None if groups is None else groups.contributions for groups in teams]
    for a, b in combinations(range(len(teams)), 2):
        one, two, mine, theirs = teams[a], teams[b], parts[a], parts[b]
        if one is None or two is None or mine is None or theirs is None:
            continue
        if not (one.are_fractions or wanted[a, b]) or not np.array_equal(one.members, two.members):
            continue
        p[a, b], p[b, a], reach[a, b] = exchange(mine - theirs)
        reach[b, a] = reach[a, b]
        if one.are_fractions:
            discordant = (one.members * (one.values != two.values)).sum(axis=1)
            small[a, b] = small[b, a] = discordant.min() < LEAST_DISCORDANT
    return PairedExchange(p, reach, small)


def exchange(gaps: Floats) -> tuple[float, float, float]:
    """The p of the first team over the second and of the second over the first, and the reach of a swap.

    `gaps` holds each patient's part in the difference. Without a difference in any patient both p are 1.
    """
    gaps = np.round(gaps, DECIMALS)
    scale = float(np.abs(gaps).sum())
    if scale == 0:
        return 1.0, 1.0, 0.0
    gaps = np.round(gaps[gaps != 0] / scale, DECIMALS)
    steps, counts = np.unique(np.abs(gaps), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    halves = order[::2], order[1::2]
    if max(float(np.prod(counts[half] + 1.0)) for half in halves) <= _MOST_SUMS:
        sums, total = _Sums(*(_all_sums(steps[half], counts[half]) for half in halves)), float(gaps.sum())
    else:
        whole = np.rint(gaps * _LATTICE)
        sums, total = _Sums((np.zeros(1), np.ones(1)), _lattice_sums(np.abs(whole))), float(whole.sum()) / _LATTICE
    return sums.at_least(total), sums.at_least(-total), scale * sums.reach()


class _Sums:
    """The sum of two independent sums, each given by its values and their probabilities; at most 1."""

    def __init__(self, first: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> None:
        order = np.argsort(first[0])
        self._first, self._chances = first[0][order], first[1][order]
        order = np.argsort(other[0])
        self._second, chances = other[0][order], other[1][order]
        # The probability of each value of the second sum or a larger one.
        self._tails = np.append(np.cumsum(chances[::-1])[::-1], 0.0)

    def at_least(self, value: float) -> float:
        """The probability of a sum of `value` or more."""
        places = np.searchsorted(self._second, value - self._first - _ROUNDING)
        return min(1.0, max(SMALLEST_P, float(self._chances @ self._tails[places])))

    def reach(self) -> float:
        """The largest sum with a probability above 0.025 to be reached, by bisection."""
        low, high = 0.0, 1.0
        if self.at_least(high) > ALPHA:
            return high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.at_least(middle) > ALPHA else (low, middle)
        return low


def _all_sums(steps: Floats, counts: Integers) -> tuple[Floats, Floats]:
    """Each value of a sum of steps of random sign, and its probability; `counts` says how often a step occurs."""
    values, chances = np.zeros(1), np.ones(1)
    for step, count in zip(steps, counts, strict=True):
        signs, of_signs = _signs(int(count))
        values = np.add.outer(values, step * signs).ravel()
        chances = np.multiply.outer(chances, of_signs).ravel()
    return values, chances


@lru_cache(maxsize=1024)
def _signs(count: int) -> tuple[Floats, Floats]:
    """Each sum of so many random signs, and its probability."""
    signs: Floats = np.linspace(-count, count, count + 1)
    return signs, binom.pmf(np.arange(count + 1), count, 0.5)


def _lattice_sums(steps: Floats) -> tuple[Floats, Floats]:
    """The same for steps that are whole multiples of the lattice's unit."""
    largest, size = int(steps.sum()), 1
    chances = np.zeros(largest + 1)
    chances[0] = 1.0
    for step in steps.astype(np.intp).tolist():
        # Half of the probability stays, half moves up by the step; the sum is twice the place less the largest one.
        chances[:size] /= 2
        moved = chances[:size].copy()
        size += step
        chances[step:size] += moved
    values: Floats = np.linspace(-largest, largest, largest + 1)
    return values / _LATTICE, chances
