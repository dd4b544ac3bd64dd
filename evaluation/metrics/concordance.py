"""Comparable and concordant pairs of patients under case weights.

Cohorts of up to about a thousand patients have a matrix of pairs, whose products with the weights give the sums. Larger
cohorts are counted in n log n steps and without a matrix.

Merge-sort counting, written as one cumulative sum per bit of the time rank. Patients are sorted by time, a recurrence
before a censoring at the same time, and the distinct (time, censored) are numbered from 0: patient j is comparable with
a recurrence i where the number of j is greater. Of two numbers a < b the highest differing bit is 0 in a and 1 in b, so
that each bit splits the pairs into blocks of equal higher bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Floats, Integers, ratio

# Numbers in one block of replicates: about the size of a processor's cache.
_BLOCK_NUMBERS: Final = 400_000
# Up to this many pairs of a recurrence and a patient a product of matrices is faster than merge-sort counting.
_MAX_MATRIX_PAIRS: Final = 400_000
# Whole numbers and halves up to this sum are exact in single precision, which is twice as fast.
_MAX_EXACT_SUM: Final = 2.0**22


def rank_follow_up(times: Floats, events: Booleans) -> Integers:
    """The place of each patient among the distinct (time, censored), shape (patients,).

    Patient j is comparable with a recurrence i exactly where the place of j is greater.
    """
    _, place = np.unique(np.stack([times, ~events], axis=1), axis=0, return_inverse=True)
    return place.ravel().astype(np.intp)


def comparable_pairs(times: Floats, events: Booleans, rows: Integers) -> Floats:
    """1 where the row's patient recurred before the column's last follow-up, else 0, shape (rows, patients).

    A recurrence counts as earlier than a censoring at the same time; two recurrences at one time are not compared.
    `times` is the follow-up, `events` True for a recurrence, both of shape (patients,).
    """
    order = rank_follow_up(times, events)
    pairs: Floats = ((order[rows, None] < order[None, :]) & events[rows, None]).astype(np.float64)
    return pairs


@dataclass(frozen=True)
class _Level:
    """The pairs that one bit splits.

    `later` are the patients with the bit set, by block and then by risk; `earlier` the recurrences without it.
    Of the running sum over `later`, beginning with 0, each of `earlier` needs the places where its block begins,
    where risks equal to its own begin, and where they end.
    """

    later: Integers
    earlier: Integers
    begin: Integers
    below: Integers
    up_to: Integers


@dataclass(frozen=True)
class PairSums:
    """Weighted sums over comparable pairs, one a replicate.

    `concordant` counts a tie of risks as 0.5; pairs in which a risk is missing stand in `unknown` alone.
    """

    comparable: Floats
    concordant: Floats
    unknown: Floats

    def concordance(self, missing_score: float = 0.0) -> Floats:
        """The concordant fraction, a pair with a missing risk counted `missing_score`; NaN without comparable pairs."""
        # Fractional weights leave a perfect order an ulp above 1.
        return np.clip(ratio(self.concordant + missing_score * self.unknown, self.comparable), 0.0, 1.0)


@dataclass(frozen=True)
class _PairMatrix:
    """All pairs of a recurrence (row) and a patient (column).

    `recurred` are the places of the recurrences. `comparable` and `known` say whether a pair counts and whether it has
    both risks, `concordant` is its score of 0, 0.5 or 1; all have shape (recurrences, patients).
    """

    recurred: Integers
    comparable: Booleans
    known: Booleans
    concordant: Floats

    def count(self, weights: Floats, earlier_weights: Floats) -> PairSums:
        """Return the sums under each row of the weights, see `PairCounter.count`."""
        earlier = earlier_weights[:, self.recurred]
        comparable = _weigh_pairs(earlier, self.comparable, weights)
        unknown = np.zeros(len(weights))
        if self.has_unknown:
            unknown = _weigh_pairs(earlier, self.comparable & ~self.known, weights)
        return PairSums(comparable, _weigh_pairs(earlier, self.concordant, weights), unknown)

    def leave_one_out(self) -> PairSums:
        """Return the sums without each patient in turn."""
        return PairSums(
            self._without_each(self.comparable.astype(np.float64)),
            self._without_each(self.concordant),
            self._without_each((self.comparable & ~self.known).astype(np.float64)),
        )

    @property
    def has_unknown(self) -> bool:
        """Return whether a comparable pair lacks a risk."""
        return bool((self.comparable & ~self.known).any())

    def _without_each(self, pairs: Floats) -> Floats:
        sums: Floats = pairs.sum() - pairs.sum(axis=0)
        sums[self.recurred] -= pairs.sum(axis=1)
        return sums


def _weigh_pairs(earlier: Floats, pairs: Booleans | Floats, weights: Floats) -> Floats:
    """Return the sum of pairs under the weights of both patients, shape (replicates,)."""
    is_exact = np.array_equal(earlier, np.rint(earlier)) and earlier.sum(axis=1).max(initial=0) < _MAX_EXACT_SUM
    number = np.float32 if is_exact else np.float64
    later: Floats = (earlier.astype(number) @ pairs.astype(number)).astype(np.float64)
    total: Floats = np.einsum("bj,bj->b", later, weights)
    return total


class PairCounter:
    """Counts the pairs of one cohort under many weights.

    `times` is the follow-up, `events` True for a recurrence, `risks` higher for earlier recurrence and NaN where
    missing; all have shape (patients,).
    """

    def __init__(self, times: Floats, events: Booleans, risks: Floats) -> None:
        self._number = rank_follow_up(times, events)
        self._events = np.asarray(events, dtype=np.bool_)
        known = np.flatnonzero(~np.isnan(risks))
        rank = np.zeros(risks.size, dtype=np.intp)
        rank[known] = np.unique(risks[known], return_inverse=True)[1].ravel()
        self._known = known
        self._rank = rank

    @cached_property
    def _levels(self) -> list[_Level]:
        bits = int(self._number.max(initial=0)).bit_length()
        levels = (_level(self._number, self._events, self._rank, self._known, bit) for bit in range(bits))
        return [level for level in levels if level.later.size and level.earlier.size]

    @cached_property
    def _matrix(self) -> _PairMatrix | None:
        """The pairs as a matrix, None for cohorts that are too large."""
        recurred = np.flatnonzero(self._events)
        if recurred.size * self._events.size > _MAX_MATRIX_PAIRS:
            return None
        comparable = self._number[recurred, None] < self._number
        is_known = np.zeros(self._events.size, dtype=np.bool_)
        is_known[self._known] = True
        compared = comparable & is_known[recurred, None] & is_known
        higher = self._rank[recurred, None] > self._rank
        tied = self._rank[recurred, None] == self._rank
        return _PairMatrix(recurred, comparable, compared, compared * (higher + 0.5 * tied))

    def count(self, weights: Floats, earlier_weights: Floats | None = None) -> PairSums:
        """The sums under each row of `weights`, shape (replicates, patients).

        The weight of a pair is the product of its patients' weights; `earlier_weights`, of the same shape, replace
        the weights of the patient who recurred.
        """
        earlier = weights if earlier_weights is None else earlier_weights
        if self._matrix is not None:
            return self._matrix.count(np.asarray(weights, dtype=np.float64), np.asarray(earlier, dtype=np.float64))
        replicates, n = weights.shape
        step = max(1, _BLOCK_NUMBERS // max(1, n))
        sums: Floats = np.zeros((3, replicates))
        for start in range(0, replicates, step):
            block = slice(start, start + step)
            sums[:, block] = self._count_block(weights[block], earlier[block])
        return PairSums(*sums)

    def leave_one_out(self) -> PairSums:
        """The sums of an unweighted cohort with each patient left out in turn, shape (patients,)."""
        if self._matrix is not None:
            return self._matrix.leave_one_out()
        return self.count(1.0 - np.eye(self._events.size))

    def _count_block(self, weights: Floats, earlier_weights: Floats) -> tuple[Floats, Floats, Floats]:
        # Patients along the first axis, so that running sums and look-ups move whole rows of replicates.
        w = np.ascontiguousarray(weights.T, dtype=np.float64)
        earlier = np.ascontiguousarray(earlier_weights.T, dtype=np.float64)
        comparable = self._comparable(w, earlier, np.arange(w.shape[0]))
        unknown = np.zeros(w.shape[1])
        if self._known.size < w.shape[0]:
            unknown = comparable - self._comparable(w, earlier, self._known)
        concordant = np.zeros(w.shape[1])
        for level in self._levels:
            sums = np.zeros((level.later.size + 1, w.shape[1]))
            np.cumsum(w[level.later], axis=0, out=sums[1:])
            lower = sums[level.below]
            lower += sums[level.up_to]
            lower *= 0.5
            lower -= sums[level.begin]
            concordant += np.einsum("ib,ib->b", lower, earlier[level.earlier])
        return comparable, concordant, unknown

    def _comparable(self, w: Floats, earlier: Floats, patients: Integers) -> Floats:
        """Weight of all comparable pairs among `patients`."""
        order = patients[np.argsort(self._number[patients], kind="stable")]
        numbers = self._number[order]
        after = np.zeros((order.size + 1, w.shape[1]))
        np.cumsum(w[order][::-1], axis=0, out=after[1:])
        recurred = self._events[order]
        later = order.size - np.searchsorted(numbers, numbers[recurred], side="right")
        total: Floats = np.einsum("ib,ib->b", after[later], earlier[order[recurred]])
        return total


def make_case_control_counter(cases: Booleans, scores: Floats) -> PairCounter:
    """Counts pairs of a case and a control, concordant where the case's score is higher; arguments have one shape."""
    return PairCounter((~cases).astype(np.float64), cases, scores)


def _level(number: Integers, events: Booleans, rank: Integers, known: Integers, bit: int) -> _Level:
    is_later = (number[known] >> bit) & 1 == 1
    later, earlier = known[is_later], known[~is_later]
    earlier = earlier[events[earlier]]
    # One key for block and risk: a block's risks are contiguous in its order.
    span = int(rank.max(initial=0)) + 2
    key = (number >> (bit + 1)) * span + rank
    later = later[np.argsort(key[later], kind="stable")]
    keys = key[later]
    return _Level(
        later,
        earlier,
        np.searchsorted(keys, key[earlier] - rank[earlier], side="left"),
        np.searchsorted(keys, key[earlier], side="left"),
        np.searchsorted(keys, key[earlier], side="right"),
    )
