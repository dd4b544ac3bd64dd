"""The exact paired exchange: how often a gain is as large if the two teams' answers are swapped by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Floats, Integers, WeightedGroups
from evaluation.statistics.tests import DECIMALS, SMALLEST_P

# Classes with fewer discordant patients are too small for a variance.
LEAST_DISCORDANT: Final = 5
ALPHA: Final = 0.025
# Up to this many sums of each half of the patients all of them are listed; beyond it they lie on a lattice.
_MOST_SUMS: Final = 4096
_LATTICE: Final = 2**12
_ROUNDING: Final = 1e-10
_HALVINGS: Final = 24


@dataclass(frozen=True)
class PairedExchange:
    """The exchange test of each team against each other one; all of shape (teams, teams).

    Attributes:
        p: one-sided, small if team a is better; 1 where the test does not exist.
        exists: whether the teams count the same cases, and the test was wanted or values are fractions.
        decides: whether it is wanted, or a class has fewer than five discordant patients.
        reach: the largest gain of an exchange whose one-sided p is above 0.025; NaN where the test does not decide.
    """

    p: Floats
    exists: Booleans
    decides: Booleans
    reach: Floats

    @property
    def exists_for_all(self) -> bool:
        return bool(self.exists.sum() == self.p.size - len(self.p)) and len(self.p) > 1


def paired_exchange(teams: Sequence[WeightedGroups | None], wanted: Booleans) -> PairedExchange:
    """The test of the pairs of teams that it is `wanted` to decide, (teams, teams), and of all if values are fractions.

    If two teams are equally good, each patient's two answers could as well have been each other's. A swap changes the
    sign of the patient's part in the difference, so that the difference is a sum of terms of random sign, whose
    distribution is a convolution. Patients with equal terms, such as the discordant ones of a class, form a binomial
    distribution. The p is the probability of a sum at least as large as the difference. Beyond 16 million sums the
    terms are rounded to 1/4096 of their sum first; the p is then the exact one of the rounded terms.

    Source: Fisher 1935, The Design of Experiments, section 21.
    """
    shape = (len(teams), len(teams))
    nowhere = np.zeros((2, *shape), dtype=np.bool_)
    test = PairedExchange(np.ones(shape), nowhere[0], nowhere[1], np.full(shape, np.nan))
    parts = [np.zeros(0) if groups is None else groups.contributions for groups in teams]
    for a, b in combinations(range(len(teams)), 2):
        one, two, both, back = teams[a], teams[b], (a, b), (b, a)
        if one is None or two is None or not (one.are_fractions or wanted[both]):
            continue
        if not np.array_equal(one.members, two.members):
            continue
        decides = bool(wanted[both]) or (one.are_fractions and bool(_small_classes(one, two).any()))
        test.exists[both] = test.exists[back] = True
        test.decides[both] = test.decides[back] = decides
        test.p[both], test.p[back], reach = exchange(parts[a] - parts[b], with_reach=decides)
        test.reach[both] = test.reach[back] = reach
    return test


def _small_classes(one: WeightedGroups, two: WeightedGroups) -> Booleans:
    """The classes with fewer than five patients in whom one team alone is right."""
    discordant = (one.members * two.members * (one.values != two.values)).sum(axis=1)
    small: Booleans = discordant < LEAST_DISCORDANT
    return small


def missed_variance(teams: Sequence[WeightedGroups | None]) -> Floats:
    """The variance of each difference, (teams, teams), that draws of patients miss in small classes.

    In a class of n patients, of which d are discordant and s more are right for one team than for the other, draws see
    a variance of d / n^2 - s^2 / n^3 and exchanges one of d / n^2: without the second term, the share of the class that
    speaks for one team, there is none left where all do. It is added, times the square of the class's weight, for
    classes with fewer than five discordant patients, so that a sum of recalls and other metrics, of which no exact
    exchange exists, doesn't rest on two patients. `teams` are the fractions within the metric, None without any.
    """
    missed = np.zeros((len(teams), len(teams)))
    for a, b in combinations(range(len(teams)), 2):
        one, two = teams[a], teams[b]
        if one is None or two is None or one.weights.size != two.weights.size:
            continue
        sizes = np.stack([groups.members.sum(axis=1) for groups in (one, two)])
        recalls = np.stack([(groups.members * groups.values).sum(axis=1) for groups in (one, two)]) / sizes
        of_class = (one.weights * (recalls[0] - recalls[1])) ** 2 / sizes.min(axis=0)
        missed[a, b] = missed[b, a] = of_class[_small_classes(one, two)].sum()
    return missed


def exchange(gaps: Floats, *, with_reach: bool = True) -> tuple[float, float, float]:
    """The p of the first team over the second and of the second over the first, and the reach, NaN without it.

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
    reach = scale * sums.reach() if with_reach else np.nan
    return sums.at_least(total), sums.at_least(-total), reach


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
    from scipy.stats import binom  # takes seconds, for which no help waits

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
