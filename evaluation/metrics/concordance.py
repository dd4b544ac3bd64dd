"""Comparable and concordant pairs of patients under case weights.

Patients are sorted by time, a recurrence before a censoring at the same time, and the distinct (time, censored) are
numbered from 0. Patient j is comparable with a recurrence i if the number of j is greater. So the patients who are
comparable with a recurrence are the last patients of this order.

For many rows of weights w, the sum over pairs of w_i c_ij w_j follows from a product of matrices, w times the
transposed scores c. Its column of each recurrence i is multiplied by w_i, and the columns are added up. Sums that do
not depend on risks are computed once for all metrics and all teams that have the same follow-up and the same draws
(`SharedFollowUp.weigh`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Floats, Integers, Singles, ratio

# Pairs of patients in one block: about the size of a processor's cache.
_MAX_PAIRS_IN_MEMORY: Final = 200_000
# Sums under larger arrays of weights are not cached.
_MAX_CACHED_WEIGHTS: Final = 2_000_000
# Whole numbers and halves up to this sum are exact in single precision, which is twice as fast.
_MAX_EXACT_SUM: Final = 2.0**22


def rank_follow_up(times: Floats, events: Booleans) -> Integers:
    """Return the number of each patient's (time, censored) in their sorted distinct values, shape (patients,).

    Patient j is comparable with a recurrence i exactly if the number of j is greater.
    """
    _, numbers = np.unique(np.stack([times, ~events], axis=1), axis=0, return_inverse=True)
    return numbers.ravel().astype(np.intp)


def find_comparable_pairs(times: Floats, events: Booleans, rows: Integers) -> Floats:
    """Return 1 where the row's patient recurred before the column's last follow-up, and 0 elsewhere.

    A recurrence counts as earlier than a censoring at the same time. Two recurrences at the same time are not
    comparable.

    Args:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        rows: Indices of the patients of the rows.

    Returns:
        An array of shape (rows, patients).
    """
    numbers = rank_follow_up(times, events)
    pairs: Floats = ((numbers[rows, None] < numbers[None, :]) & events[rows, None]).astype(np.float64)
    return pairs


@dataclass(frozen=True)
class PairBlock:
    """Pairs of some recurrences (rows) with all patients who may be comparable with them (columns).

    Attributes:
        rows: Places of the rows among the recurrences of the follow-up.
        first_column: Place of the first column in the order of the follow-up; the last column is the last patient.
        recurrences: Patients of the rows.
        patients: Patients of the columns.
        is_comparable: Whether a pair is comparable, shape (rows, columns).
    """

    rows: slice
    first_column: int
    recurrences: Integers
    patients: Integers
    is_comparable: Booleans

    def score(self, risks: Floats, missing_score: float) -> Singles:
        """Return the scores of the pairs, 0 for a pair that is not comparable.

        The score is 1 if the recurrence has the higher risk, 0.5 if both risks are equal, and `missing_score` if a risk
        is NaN.

        Args:
            risks: Risks of all patients, shape (patients,) or (teams, patients).
            missing_score: Score of a pair with a missing risk.

        Returns:
            An array of shape (rows, columns) or (teams, rows, columns).
        """
        earlier, later = risks[..., self.recurrences, None], risks[..., None, self.patients]
        scores: Singles = np.add(earlier > later, earlier >= later, dtype=np.float32)
        scores *= 0.5
        if missing_score != 0 and np.isnan(risks).any():
            scores[np.isnan(earlier) | np.isnan(later)] = missing_score
        scores *= self.is_comparable
        return scores


class SharedFollowUp:
    """Follow-up of a cohort with its comparable pairs, which metrics of all teams share.

    Args:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).

    Attributes:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        order: Indices of the patients, sorted by their numbers from `rank_follow_up`.
        recurrences: Indices of the patients who recurred, in this order.
    """

    def __init__(self, times: Floats, events: Booleans) -> None:
        self.times, self.events = times, events
        number = rank_follow_up(times, events)
        self.order = np.argsort(number, kind="stable")
        self.recurrences = self.order[events[self.order]]
        # Position in `order` of the first patient who is comparable with each recurrence; all later patients are, too.
        self._first_comparable = np.searchsorted(number[self.order], number[self.recurrences], side="right")
        self._cached: deque[WeightedFollowUp] = deque(maxlen=2)

    def split_pairs(self, max_pairs: int) -> Iterator[PairBlock]:
        """Yield all comparable pairs in blocks of about `max_pairs`."""
        n, n_rows = self.order.size, self.recurrences.size
        step = max(1, max_pairs // max(1, n))
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows))
            first_comparable = self._first_comparable[rows]
            first = int(first_comparable[0])
            is_comparable = np.arange(first, n) >= first_comparable[:, None]
            yield PairBlock(rows, first, self.recurrences[rows], self.order[first:], is_comparable)

    def weigh(self, weights: Floats) -> WeightedFollowUp:
        """Return sums under each row of `weights`, shape (replicates, patients).

        The sums under the last two read-only arrays are cached, because all metrics and teams share these draws.
        """
        for weighted in tuple(self._cached):
            if weighted.weights is weights:
                return weighted
        weighted = WeightedFollowUp(self, weights)
        if not weights.flags.writeable and weights.size <= _MAX_CACHED_WEIGHTS:
            self._cached.append(weighted)
        return weighted

    def sum_comparable_weights(self, weights: Floats) -> Floats:
        """Return the sum of the weights of the patients who are comparable with each recurrence.

        The shape is (replicates, recurrences).
        """
        # Column k is the sum of the last k patients.
        reverse_sums: Floats = np.zeros((len(weights), self.order.size + 1))
        np.cumsum(weights[:, self.order[::-1]], axis=1, out=reverse_sums[:, 1:])
        return np.ascontiguousarray(reverse_sums[:, self.order.size - self._first_comparable])

    @cached_property
    def comparable_without(self) -> Floats:
        """The number of comparable pairs that remain if each patient in turn is left out, shape (patients,)."""
        n_comparable = self.order.size - self._first_comparable
        counts = np.zeros(self.order.size + 1)
        np.add.at(counts, self._first_comparable, 1.0)
        n_left: Floats = np.empty(self.order.size)
        n_left[self.order] = n_comparable.sum() - np.cumsum(counts)[:-1]
        n_left[self.recurrences] -= n_comparable
        return n_left


class WeightedFollowUp:
    """Case weights, shape (replicates, patients), and their sums that do not depend on risks, computed when needed."""

    def __init__(self, follow_up: SharedFollowUp, weights: Floats) -> None:
        self.weights = weights
        self._follow_up = follow_up

    @cached_property
    def ordered(self) -> Floats | Singles:
        """The weights in the order of the follow-up, in single precision if sums of pairs are exact in it."""
        ordered = self.weights[:, self._follow_up.order]
        is_exact = ordered.sum(axis=1).max(initial=0) < _MAX_EXACT_SUM and np.array_equal(ordered, np.rint(ordered))
        return ordered.astype(np.float32) if is_exact else ordered

    @cached_property
    def comparable_weights(self) -> Floats:
        """The sum of the weights of the patients who are comparable with each recurrence."""
        return self._follow_up.sum_comparable_weights(self.weights)

    @cached_property
    def censoring_survival(self) -> Floats:
        """The probability of not being censored before each patient's own time, shape (replicates, patients).

        This is the Kaplan-Meier estimate with censoring as the event. A recurrence at the same time comes first, so
        that patients who recur at t are not at risk of being censored at t. Patients of weight 0 whose time is after
        all other times get 1.
        """
        order = self._follow_up.order
        times, first, index = np.unique(self._follow_up.times[order], return_index=True, return_inverse=True)
        weights = self.weights[:, order]
        at_time = np.add.reduceat(weights, first, axis=1)
        censored = np.add.reduceat(weights * ~self._follow_up.events[order], first, axis=1)
        at_risk = np.cumsum(at_time[:, ::-1], axis=1)[:, ::-1]
        exposed = at_risk - (at_time - censored)
        stays = 1.0 - np.divide(censored, exposed, out=np.zeros_like(censored), where=exposed > 0)
        before = np.ones((len(weights), times.size))
        np.cumprod(stays[:, :-1], axis=1, out=before[:, 1:])
        # If every patient at the last time is censored, no patient of this replicate is later, so any positive
        # number will do.
        before[before <= 0] = 1.0
        probability: Floats = np.empty(weights.shape)
        probability[:, order] = before[:, index]
        return probability


@lru_cache(maxsize=8)
def _share_follow_up(times: bytes, events: bytes) -> SharedFollowUp:
    return SharedFollowUp(np.frombuffer(times, dtype=np.float64), np.frombuffer(events, dtype=np.bool_))


def find_follow_up(times: Floats, events: Booleans) -> SharedFollowUp:
    """Return the follow-up of a cohort; the cohorts of all teams with equal follow-up share one object."""
    return _share_follow_up(np.asarray(times, dtype=np.float64).tobytes(), np.asarray(events, dtype=np.bool_).tobytes())


@dataclass(frozen=True)
class PairSums:
    """Weighted sums over comparable pairs, one value for each replicate.

    Attributes:
        comparable: All pairs.
        concordant: Pairs in which the patient who recurred earlier has the higher risk. A tie of risks counts 0.5, a
            pair with a missing risk the counter's `missing_score`.
    """

    comparable: Floats
    concordant: Floats

    def concordance(self) -> Floats:
        """Return the concordant fraction of the pairs, NaN if no pair is comparable."""
        # Fractional weights leave a perfect order an ulp above 1.
        return np.clip(ratio(self.concordant, self.comparable), 0.0, 1.0)


class PairCounter:
    """Counter of the pairs of one cohort under many weights.

    Args:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        risks: Higher for earlier recurrence, NaN where missing, shape (patients,).
        missing_score: Score of a comparable pair with a missing risk.
    """

    def __init__(self, times: Floats, events: Booleans, risks: Floats, missing_score: float = 0.0) -> None:
        self._follow_up = find_follow_up(times, events)
        self._risks = risks
        self._missing_score = missing_score

    def count(self, weights: Floats, earlier_weights: Floats | None = None) -> PairSums:
        """Sum the pairs under each row of `weights`, shape (replicates, patients).

        The weight of a pair is the product of its patients' weights. `earlier_weights`, of the same shape, replace the
        weights of the patient who recurred.
        """
        weighted = self._follow_up.weigh(weights)
        earlier = (weights if earlier_weights is None else earlier_weights)[:, self._follow_up.recurrences]
        comparable = np.einsum("bi,bi->b", earlier, weighted.comparable_weights)
        concordant = np.zeros(len(weights))
        for block in self._follow_up.split_pairs(_MAX_PAIRS_IN_MEMORY):
            scores = block.score(self._risks, self._missing_score)
            later = weighted.ordered[:, block.first_column :] @ scores.T
            concordant += np.einsum("bi,bi->b", earlier[:, block.rows], later)
        return PairSums(comparable, concordant)

    def leave_one_out(self) -> PairSums:
        """Return the sums of an unweighted cohort with each patient left out in turn, shape (patients,)."""
        concordant = np.zeros(self._risks.size)
        for block in self._follow_up.split_pairs(_MAX_PAIRS_IN_MEMORY):
            scores = block.score(self._risks, self._missing_score)
            concordant[block.patients] += scores.sum(axis=0, dtype=np.float64)
            concordant[block.recurrences] += scores.sum(axis=1, dtype=np.float64)
        # Each pair was counted for both of its patients.
        return PairSums(self._follow_up.comparable_without, concordant.sum() / 2 - concordant)


def make_case_control_counter(cases: Booleans, scores: Floats) -> PairCounter:
    """Make a counter of the pairs of a case and a control, which are concordant if the case's score is higher.

    Both arrays have the same shape; `cases` is True for a case and False for a control.
    """
    return PairCounter((~cases).astype(np.float64), cases, scores)
