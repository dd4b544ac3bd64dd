"""Comparable and concordant pairs of patients under case weights.

Cohorts of up to about a thousand patients have a matrix of pairs, whose products with the weights give the sums. Larger
cohorts are counted in n log n steps and with no matrix, as follows.

Patients are sorted by time, a recurrence before a censoring at the same time, and the distinct (time, censored) are
numbered from 0. Patient j is comparable with a recurrence i if the number of j is greater. The highest bit in which
two numbers a < b differ is 0 in a and 1 in b. So each bit splits the pairs into blocks of numbers with equal higher
bits, and every comparable pair is counted at exactly one bit: merge-sort counting, with one cumulative sum per bit.

Example with four patients (`test_the_worked_example_of_the_docstring`)::

    patient  number  bits  outcome     risk
    A        0       00    recurrence  0.9
    B        1       01    recurrence  0.4
    C        2       10    censored    0.4
    D        3       11    recurrence  0.7

    bit 1: one block. Earlier (bit is 0) recurrences: A, B. Later (bit is 1) patients by risk: C 0.4, D 0.7.
           A is above both: 2. B is above none and equal to C: 0.5.
    bit 0: block of A and B: A is above B: 1.
           Block of C and D: C is no recurrence: no pair.

    concordant 2 + 0.5 + 1 = 3.5 of the 5 comparable pairs AB, AC, AD, BC and BD: the C-index is 0.7.

With weights, "above both" is a difference of two running sums of the later patients' weights.
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
    """Return the place of each patient among the distinct (time, censored), shape (patients,).

    Patient j is comparable with a recurrence i exactly if the place of j is greater.
    """
    _, place = np.unique(np.stack([times, ~events], axis=1), axis=0, return_inverse=True)
    return place.ravel().astype(np.intp)


def comparable_pairs(times: Floats, events: Booleans, rows: Integers) -> Floats:
    """Return 1 where the row's patient recurred before the column's last follow-up, else 0.

    A recurrence counts as earlier than a censoring at the same time. Two recurrences at the same time are not
    comparable.

    Args:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        rows: Numbers of the patients of the rows.

    Returns:
        An array of shape (rows, patients).
    """
    order = rank_follow_up(times, events)
    pairs: Floats = ((order[rows, None] < order[None, :]) & events[rows, None]).astype(np.float64)
    return pairs


@dataclass(frozen=True)
class _Level:
    """The pairs that one bit splits, and where each earlier patient reads the running sum over the later ones.

    Attributes:
        later: The patients with the bit set, sorted by block and then by risk.
        earlier: The recurrences with the bit unset.
        begin: For each of `earlier`, the place in the running sum (which begins with 0) where its block begins.
        below: The place where the risks that are equal to its own risk begin.
        up_to: The place where these risks end.
    """

    later: Integers
    earlier: Integers
    begin: Integers
    below: Integers
    up_to: Integers


@dataclass(frozen=True)
class PairSums:
    """Weighted sums over comparable pairs, one value for each replicate.

    Attributes:
        comparable: All pairs.
        concordant: Pairs in which the patient who recurred earlier has the higher risk; a tie of risks counts 0.5.
        unknown: Pairs in which a risk is missing. They do not count in `concordant`.
    """

    comparable: Floats
    concordant: Floats
    unknown: Floats

    def concordance(self, missing_score: float = 0.0) -> Floats:
        """Return the concordant fraction of the pairs, NaN if no pair is comparable.

        A pair with a missing risk counts `missing_score`.
        """
        # Fractional weights leave a perfect order an ulp above 1.
        return np.clip(ratio(self.concordant + missing_score * self.unknown, self.comparable), 0.0, 1.0)


@dataclass(frozen=True)
class _PairMatrix:
    """All pairs of a recurrence (row) and a patient (column).

    Attributes:
        recurrences: Places of the recurrences in the cohort.
        comparable: Whether a pair counts, shape (recurrences, patients).
        known: Whether a pair counts and has both risks, shape (recurrences, patients).
        concordant: Score of the pair, 0, 0.5 or 1, shape (recurrences, patients).
    """

    recurrences: Integers
    comparable: Booleans
    known: Booleans
    concordant: Floats

    def count(self, weights: Floats, earlier_weights: Floats) -> PairSums:
        """Return the sums under each row of the weights, see `PairCounter.count`."""
        earlier = earlier_weights[:, self.recurrences]
        comparable = _weigh_pairs(earlier, self.comparable, weights)
        unknown = np.zeros(len(weights))
        if self.has_unknown:
            unknown = _weigh_pairs(earlier, self.comparable & ~self.known, weights)
        return PairSums(comparable, _weigh_pairs(earlier, self.concordant, weights), unknown)

    def leave_one_out(self) -> PairSums:
        """Return the sums without each patient in turn."""
        return PairSums(
            self._sum_without_each(self.comparable.astype(np.float64)),
            self._sum_without_each(self.concordant),
            self._sum_without_each((self.comparable & ~self.known).astype(np.float64)),
        )

    @property
    def has_unknown(self) -> bool:
        """Whether a comparable pair lacks a risk."""
        return bool((self.comparable & ~self.known).any())

    def _sum_without_each(self, pairs: Floats) -> Floats:
        sums: Floats = pairs.sum() - pairs.sum(axis=0)
        sums[self.recurrences] -= pairs.sum(axis=1)
        return sums


def _weigh_pairs(earlier: Floats, pairs: Booleans | Floats, weights: Floats) -> Floats:
    """Return the sum of pairs under the weights of both patients, shape (replicates,)."""
    is_exact = np.array_equal(earlier, np.rint(earlier)) and earlier.sum(axis=1).max(initial=0) < _MAX_EXACT_SUM
    number = np.float32 if is_exact else np.float64
    later: Floats = (earlier.astype(number) @ pairs.astype(number)).astype(np.float64)
    total: Floats = np.einsum("bj,bj->b", later, weights)
    return total


class PairCounter:
    """Counter of the pairs of one cohort under many weights.

    Args:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        risks: Higher for earlier recurrence, NaN where missing, shape (patients,).
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
        """The pairs that each bit splits, for merge-sort counting."""
        bits = int(self._number.max(initial=0)).bit_length()
        levels = (_make_level(self._number, self._events, self._rank, self._known, bit) for bit in range(bits))
        return [level for level in levels if level.later.size and level.earlier.size]

    @cached_property
    def _matrix(self) -> _PairMatrix | None:
        """The pairs as a matrix; None for cohorts that are too large."""
        recurrences = np.flatnonzero(self._events)
        if recurrences.size * self._events.size > _MAX_MATRIX_PAIRS:
            return None
        comparable = self._number[recurrences, None] < self._number
        is_known = np.zeros(self._events.size, dtype=np.bool_)
        is_known[self._known] = True
        known = comparable & is_known[recurrences, None] & is_known
        is_higher = self._rank[recurrences, None] > self._rank
        is_tied = self._rank[recurrences, None] == self._rank
        return _PairMatrix(recurrences, comparable, known, known * (is_higher + 0.5 * is_tied))

    def count(self, weights: Floats, earlier_weights: Floats | None = None) -> PairSums:
        """Sum the pairs under each row of `weights`, shape (replicates, patients).

        The weight of a pair is the product of its patients' weights. `earlier_weights`, of the same shape, replace the
        weights of the patient who recurred.
        """
        if earlier_weights is None:
            earlier_weights = weights
        if self._matrix is not None:
            return self._matrix.count(
                np.asarray(weights, dtype=np.float64), np.asarray(earlier_weights, dtype=np.float64)
            )
        replicates, n = weights.shape
        step = max(1, _BLOCK_NUMBERS // max(1, n))
        sums: Floats = np.zeros((3, replicates))
        for start in range(0, replicates, step):
            block = slice(start, start + step)
            sums[:, block] = self._count_block(weights[block], earlier_weights[block])
        return PairSums(*sums)

    def leave_one_out(self) -> PairSums:
        """Return the sums of an unweighted cohort with each patient left out in turn, shape (patients,)."""
        if self._matrix is not None:
            return self._matrix.leave_one_out()
        return self.count(1.0 - np.eye(self._events.size))

    def _count_block(self, weights: Floats, earlier_weights: Floats) -> tuple[Floats, Floats, Floats]:
        # Patients along the first axis, so that running sums and look-ups move whole rows of replicates.
        w = np.ascontiguousarray(weights.T, dtype=np.float64)
        earlier = np.ascontiguousarray(earlier_weights.T, dtype=np.float64)
        comparable = self._count_comparable(w, earlier, np.arange(w.shape[0]))
        unknown = np.zeros(w.shape[1])
        if self._known.size < w.shape[0]:
            unknown = comparable - self._count_comparable(w, earlier, self._known)
        concordant = np.zeros(w.shape[1])
        for level in self._levels:
            sums = np.zeros((level.later.size + 1, w.shape[1]))
            np.cumsum(w[level.later], axis=0, out=sums[1:])
            # Lower risks count 1 and equal risks 0.5: the mean of the sums below and up to the own risk.
            lower = sums[level.below]
            lower += sums[level.up_to]
            lower *= 0.5
            lower -= sums[level.begin]
            concordant += np.einsum("ib,ib->b", lower, earlier[level.earlier])
        return comparable, concordant, unknown

    def _count_comparable(self, w: Floats, earlier: Floats, patients: Integers) -> Floats:
        """Sum the weights of all comparable pairs among `patients`."""
        order = patients[np.argsort(self._number[patients], kind="stable")]
        numbers = self._number[order]
        after = np.zeros((order.size + 1, w.shape[1]))
        np.cumsum(w[order][::-1], axis=0, out=after[1:])
        is_recurrence = self._events[order]
        later = order.size - np.searchsorted(numbers, numbers[is_recurrence], side="right")
        total: Floats = np.einsum("ib,ib->b", after[later], earlier[order[is_recurrence]])
        return total


def make_case_control_counter(cases: Booleans, scores: Floats) -> PairCounter:
    """Make a counter of the pairs of a case and a control, which are concordant if the case's score is higher.

    Both arrays have the same shape; `cases` is True for a case and False for a control.
    """
    return PairCounter((~cases).astype(np.float64), cases, scores)


def _make_level(number: Integers, events: Booleans, rank: Integers, known: Integers, bit: int) -> _Level:
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
        begin=np.searchsorted(keys, key[earlier] - rank[earlier], side="left"),
        below=np.searchsorted(keys, key[earlier], side="left"),
        up_to=np.searchsorted(keys, key[earlier], side="right"),
    )
