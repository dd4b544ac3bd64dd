"""What every model of the heads shares: the patients, their scaled features, and the two metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

from algorithm.heads.linear import CLIP_SD, Term
from algorithm.heads.measure import Features
from baseline.heads.harmonise import centre_shifts, depends_on_scanner
from contract.errors import MetricError

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
# A feature known for fewer of the training patients than this is left out.
LEAST_KNOWN_SHARE: Final = 0.2
# Features whose ranks agree this well say the same twice.
TWIN_CORRELATION: Final = 0.95


@dataclass(frozen=True)
class Outcomes:
    """Targets of the patients of a feature table, in its order; `hpv` and `relapse` are boolean arrays."""

    rfs_days: Floats
    relapse: Flags
    hpv: Flags


@dataclass(frozen=True)
class Cohort:
    """Patients in one order: IDs, centres' codes, features (None is missing) and outcomes."""

    ids: tuple[str, ...]
    centres: tuple[str, ...]
    rows: tuple[Features, ...]
    outcomes: Outcomes

    def pick(self, numbers: Numbers) -> Cohort:
        """The patients of these numbers, in their order."""
        told = self.outcomes
        return Cohort(
            tuple(self.ids[n] for n in numbers),
            tuple(self.centres[n] for n in numbers),
            tuple(self.rows[n] for n in numbers),
            Outcomes(told.rfs_days[numbers], told.relapse[numbers], told.hpv[numbers]),
        )

    def with_outcomes(self, outcomes: Outcomes) -> Cohort:
        """The same patients with other outcomes."""
        return replace(self, outcomes=outcomes)

    def values(self, features: Sequence[str]) -> Floats:
        """Features as columns, shape (patients, features); NaN is missing."""
        table = [[np.nan if row.get(name) is None else row[name] for name in features] for row in self.rows]
        return np.asarray(table, dtype=np.float64).reshape(len(self.rows), len(features))


def usual_transforms(cohort: Cohort) -> dict[str, str]:
    """Every feature of the cohort, in the rows' order, with its transform: volumes and glycolysis are skewed and
    logarithmised.
    """
    names = dict.fromkeys(name for row in cohort.rows for name in row)
    return {
        name: "log1p" if name.endswith("_ml") or "tlg" in name or "glycolysis" in name else "identity" for name in names
    }


def scaled_terms(cohort: Cohort, transforms: Mapping[str, str], harmonise: bool = False) -> tuple[Term, ...]:
    """Filling, scaling and on request the centres' shifts of each feature, learnt from these patients; weights are 0.

    Constant features and those that are known for hardly anyone are left out.
    """
    values = cohort.values(list(transforms))
    terms = []
    for (feature, transform), column in zip(transforms.items(), values.T, strict=True):
        known = column[np.isfinite(column)]
        if not known.size or known.size < LEAST_KNOWN_SHARE * len(column):
            continue
        fill = float(np.median(known))
        moved = _transformed(np.where(np.isfinite(column), column, fill), transform)
        if moved.std() >= 1e-9:
            terms.append(Term(feature, transform, fill, float(moved.mean()), float(moved.std()), 0.0))
    return _harmonised(terms, cohort) if harmonise else tuple(terms)


def unlike_terms(terms: Sequence[Term], cohort: Cohort) -> tuple[Term, ...]:
    """The terms without those whose ranks correlate more than 0.95 with an earlier one; outcomes are not looked at."""
    related = np.abs(rank_correlation(matrix(terms, cohort))) > TWIN_CORRELATION
    kept: list[int] = []
    for number in range(len(terms)):
        if not related[number, kept].any():
            kept.append(number)
    return tuple(terms[number] for number in kept)


def rank_correlation(columns: Floats) -> Floats:
    """Spearman's correlation of each pair of columns; constant columns correlate with nothing."""
    ranks = stats.rankdata(columns, axis=0)
    ranks = ranks - ranks.mean(0)
    sizes = np.sqrt((ranks**2).sum(0))
    return np.asarray(ranks.T @ ranks / np.maximum(np.outer(sizes, sizes), 1e-9), dtype=np.float64)


def matrix(terms: Sequence[Term], cohort: Cohort) -> Floats:
    """What `Term.standardised` gives for each patient and term, shape (patients, terms)."""
    values = cohort.values([term.feature for term in terms])
    columns = [_standardised(term, column, cohort.centres) for term, column in zip(terms, values.T, strict=True)]
    return np.asarray(columns, dtype=np.float64).reshape(len(terms), len(cohort.rows)).T


def weighted(terms: Sequence[Term], weights: npt.ArrayLike) -> tuple[Term, ...]:
    """The terms with these weights; those of weight 0 are left out."""
    pairs = zip(terms, np.asarray(weights, dtype=np.float64).reshape(-1), strict=True)
    return tuple(replace(term, weight=float(weight)) for term, weight in pairs if weight != 0)


def concordance(rfs_days: Floats, relapse: Flags, risk: Floats) -> float:
    """Harrell's C of a risk (higher = earlier recurrence); tied risks count half.

    Raises:
        MetricError: no two patients can be compared.
    """
    pairs = comparable_pairs(rfs_days, relapse)
    if not pairs.any():
        raise MetricError("C-index", f"no comparable pair among {len(risk)} patients")
    order = 0.5 + 0.5 * np.sign(risk[:, None] - risk[None, :])
    return float(order[pairs].mean())


def comparable_pairs(rfs_days: Floats, relapse: Flags) -> Flags:
    """Whether patient i is known to have relapsed before patient j, shape (patients, patients).

    An event comes before a censoring on the same day; two events on one day are not comparable.
    """
    days, event = rfs_days, relapse
    earlier = days[:, None] < days[None, :]
    same_day = (days[:, None] == days[None, :]) & ~event[None, :]
    return np.asarray(event[:, None] & (earlier | same_day))


def area_under_curve(positive: Flags, scores: Floats) -> float:
    """Probability that a positive scores higher than a negative; ties count half.

    Raises:
        MetricError: one of the classes is empty.
    """
    if positive.all() or not positive.any():
        raise MetricError("area under the curve", f"{int(positive.sum())} of {len(positive)} positive", "both classes")
    return float((0.5 + 0.5 * np.sign(scores[positive][:, None] - scores[~positive][None, :])).mean())


def balanced_accuracy(positive: Flags, answers: Flags) -> float:
    """Mean of sensitivity and specificity; both classes must be there."""
    return float((np.mean(answers[positive]) + np.mean(~answers[~positive])) / 2)


def best_threshold(positive: Flags, scores: Floats) -> tuple[float, float]:
    """The threshold (score >= threshold is positive) of the highest balanced accuracy, and that accuracy.

    Candidates lie midway between neighbouring scores; of equally good ones the middle one is taken, which is
    the most stable choice.
    """
    order, place = np.unique(scores, return_inverse=True)
    candidates = np.concatenate([[order[0] - 1.0], (order[:-1] + order[1:]) / 2, [order[-1] + 1.0]])
    below = [np.cumsum(np.bincount(place[flag], minlength=len(order))) for flag in (positive, ~positive)]
    sensitivity, specificity = 1 - _shares(below[0]), _shares(below[1])
    accuracy = (sensitivity + specificity) / 2
    best = np.flatnonzero(accuracy >= accuracy.max() - 1e-12)
    chosen = best[len(best) // 2]
    return float(candidates[chosen]), float(accuracy[chosen])


def _shares(counts: npt.NDArray[np.int64]) -> Floats:
    """Cumulative counts as shares of the last, after a first 0."""
    return np.concatenate([[0.0], counts / counts[-1]])


def _harmonised(terms: Sequence[Term], cohort: Cohort) -> tuple[Term, ...]:
    """The terms with the centres' shifts of those features that a scanner can shift."""
    shiftable = [number for number, term in enumerate(terms) if depends_on_scanner(term.feature)]
    names = [terms[number].feature for number in shiftable]
    scaled = [
        (_transformed(column, terms[number].transform) - terms[number].mean) / terms[number].sd
        for number, column in zip(shiftable, cohort.values(names).T, strict=True)
    ]
    shifts = dict(zip(shiftable, centre_shifts(np.array(scaled).T, cohort.centres), strict=True)) if scaled else {}
    return tuple(replace(term, centres=shifts.get(number, {})) for number, term in enumerate(terms))


def _standardised(term: Term, column: Floats, centres: Sequence[str]) -> Floats:
    known = np.isfinite(column)
    scaled = (_transformed(np.where(known, column, term.fill), term.transform) - term.mean) / term.sd
    for centre, move in term.centres.items():
        there = known & np.array([code == centre for code in centres])
        scaled[there] = (scaled[there] - move.shift) / move.scale
    return np.asarray(np.clip(scaled, -CLIP_SD, CLIP_SD))


def _transformed(values: Floats, transform: str) -> Floats:
    return np.log1p(np.maximum(values, 0.0)) if transform == "log1p" else values
