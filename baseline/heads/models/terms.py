"""Features of a cohort as the terms of a linear head: transformation, imputation, scaling, harmonisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

from algorithm.heads.linear import CLIP_SD, Term
from algorithm.outcome.plan import PREFIX
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.harmonise import centre_shifts, depends_on_scanner
from contract.editions.declaration import RULES

# Features known for a smaller share of the training patients are left out.
LEAST_KNOWN_SHARE: Final = 0.2
# Rank correlation above which two features are redundant.
TWIN_CORRELATION: Final = 0.95


def usual_transforms(cohort: HeadCohort) -> dict[str, str]:
    """Transform of every feature of the cohort, in the order of the rows: log for volumes and glycolysis, which are
    skewed. Stages by a rule are left out, since the features that they follow from are there, and the outcome network's
    answers, which are a model of their own and may be absent.
    """
    every = dict.fromkeys(name for row in cohort.rows for name in row)
    names = [name for name in every if name not in RULES and not name.startswith(PREFIX)]
    return {
        name: "log1p" if name.endswith("_ml") or "tlg" in name or "glycolysis" in name else "identity" for name in names
    }


def scaled_terms(cohort: HeadCohort, transforms: Mapping[str, str], harmonise: bool = False) -> tuple[Term, ...]:
    """Terms of weight 0 with imputation, scaling and optional centre shifts learnt from these patients.

    Constant features and features known for too few patients are left out.
    """
    values = cohort.values(list(transforms))
    terms = []
    for (feature, transform), column in zip(transforms.items(), values.T, strict=True):
        known = column[np.isfinite(column)]
        if not known.size or known.size < LEAST_KNOWN_SHARE * len(column):
            continue
        fill = float(np.median(known))
        transformed = _transformed(np.where(np.isfinite(column), column, fill), transform)
        if transformed.std() >= 1e-9:
            terms.append(Term(feature, transform, fill, float(transformed.mean()), float(transformed.std()), 0.0))
    return _harmonised(terms, cohort) if harmonise else tuple(terms)


def without_twins(terms: Sequence[Term], cohort: HeadCohort) -> tuple[Term, ...]:
    """The terms without those whose rank correlation with an earlier one exceeds 0.95; outcomes play no role."""
    related = np.abs(rank_correlation(matrix(terms, cohort))) > TWIN_CORRELATION
    chosen: list[int] = []
    for number in range(len(terms)):
        if not related[number, chosen].any():
            chosen.append(number)
    return tuple(terms[number] for number in chosen)


def rank_correlation(columns: Floats) -> Floats:
    """Spearman correlation of each pair of columns; 0 for constant columns."""
    ranks = stats.rankdata(columns, axis=0)
    ranks = ranks - ranks.mean(0)
    sizes = np.sqrt((ranks**2).sum(0))
    return np.asarray(ranks.T @ ranks / np.maximum(np.outer(sizes, sizes), 1e-9), dtype=np.float64)


def matrix(terms: Sequence[Term], cohort: HeadCohort) -> Floats:
    """`Term.standardised` of each patient and term, shape (patients, terms)."""
    values = cohort.values([term.feature for term in terms])
    columns = [_standardised(term, column, cohort.centres) for term, column in zip(terms, values.T, strict=True)]
    return np.asarray(columns, dtype=np.float64).reshape(len(terms), len(cohort.rows)).T


def weighted(terms: Sequence[Term], weights: npt.ArrayLike) -> tuple[Term, ...]:
    """The terms with these weights, without those of weight 0."""
    pairs = zip(terms, np.asarray(weights, dtype=np.float64).reshape(-1), strict=True)
    return tuple(replace(term, weight=float(weight)) for term, weight in pairs if weight != 0)


def _harmonised(terms: Sequence[Term], cohort: HeadCohort) -> tuple[Term, ...]:
    """The terms with centre shifts for features that depend on the scanner."""
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
