"""Features of a cohort as the terms of a linear head: transformation, imputation and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import stats

from algorithm.heads.documents import LinearHead, Term, Transform, transform_values
from baseline.heads.cohort import Floats, HeadCohort
from contract.editions.answers import RULES

# Features known for a smaller share of the training patients are left out.
LEAST_KNOWN_SHARE: Final = 0.2
# Standard deviation, as a share of the largest absolute value, up to which values differ only by rounding.
MIN_SPREAD_SHARE: Final = 1e-12
# Rank correlation above which two features are redundant.
TWIN_CORRELATION: Final = 0.95

Transforms = Mapping[str, Transform]


def unchanged(names: Iterable[str]) -> Transforms:
    """Features that are used as they are."""
    return dict.fromkeys(names, "identity")


def usual_transforms(cohort: HeadCohort) -> Transforms:
    """Transform of every feature of the cohort, in order: log for volumes and glycolysis, which are skewed.

    Stages by a rule are left out, since the features that they follow from are there.
    """
    names = [str(name) for name in cohort.features.columns if name not in RULES]
    return {
        name: "log1p" if name.endswith("_ml") or "tlg" in name or "glycolysis" in name else "identity" for name in names
    }


def spread_of(values: Floats) -> float:
    """Return the standard deviation, or 0 if the values differ only by rounding; NaN if one is NaN or infinite.

    The limit is relative, and squares neither vanish nor overflow, so that the unit of the values does not matter.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(largest):
        return math.nan
    if largest == 0:
        return 0.0
    exponent = math.frexp(largest)[1]
    spread = math.ldexp(float(np.ldexp(values, -exponent).std()), exponent)
    return 0.0 if spread <= MIN_SPREAD_SHARE * largest else spread


def unusable_features(cohort: HeadCohort, transforms: Transforms) -> dict[str, str]:
    """Return the features that have no term, with the reason."""
    columns = zip(transforms.items(), cohort.values(list(transforms)).T, strict=True)
    terms = {feature: _scaled_term(feature, transform, column) for (feature, transform), column in columns}
    return {feature: term for feature, term in terms.items() if isinstance(term, str)}


def fit_scaled_terms(cohort: HeadCohort, transforms: Transforms) -> tuple[Term, ...]:
    """Return terms of one weight, 0, with imputation and scaling learnt from these patients.

    The features of `unusable_features` are left out.
    """
    columns = zip(transforms.items(), cohort.values(list(transforms)).T, strict=True)
    terms = [_scaled_term(feature, transform, column) for (feature, transform), column in columns]
    return tuple(term for term in terms if isinstance(term, Term))


def _scaled_term(feature: str, transform: Transform, column: Floats) -> Term | str:
    """Return the term of a feature, or the reason why it has none."""
    known = column[np.isfinite(column)]
    if not known.size or known.size < LEAST_KNOWN_SHARE * len(column):
        return f"known for less than {LEAST_KNOWN_SHARE:.0%} of the patients"
    fill = float(np.median(known))
    filled = transform_values(np.where(np.isfinite(column), column, fill), transform)
    mean, sd = float(filled.mean()), spread_of(filled)
    if not sd > 0:
        return "constant"
    return Term(feature=feature, transform=transform, fill=fill, mean=mean, sd=sd, weights=(0.0,))


def remove_correlated_terms(terms: Sequence[Term], cohort: HeadCohort) -> tuple[Term, ...]:
    """The terms without those whose rank correlation with an earlier one exceeds 0.95; outcomes are not used."""
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
    columns = [term.standardise(column) for term, column in zip(terms, values.T, strict=True)]
    return np.asarray(columns, dtype=np.float64).reshape(len(terms), len(cohort.ids)).T


def with_weights(term: Term, weights: npt.ArrayLike) -> Term:
    """The term with other weights, one for each score."""
    return term.model_copy(update={"weights": tuple(np.asarray(weights, dtype=np.float64).ravel().tolist())})


def linear_head(
    scale: str, terms: Sequence[Term], weights: npt.ArrayLike, intercepts: npt.ArrayLike = (0.0,), **parts: Any
) -> LinearHead:
    """A linear head with `weights`, shape (scores, terms) or (terms,), without terms of weight 0."""
    starts = np.asarray(intercepts, dtype=np.float64).tolist()
    columns = np.asarray(weights, dtype=np.float64).reshape(len(starts), len(terms)).T
    used = tuple(with_weights(term, row) for term, row in zip(terms, columns, strict=True) if row.any())
    return LinearHead(scale=scale, intercepts=tuple(starts), terms=used, **parts)


def scaling_of(term: Term) -> tuple[object, ...]:
    """Everything but the weights; terms that agree in it can be added up."""
    return (term.feature, term.transform, term.fill, term.mean, term.sd)
