"""Features of a cohort as the terms of a linear head: transformation, imputation and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import stats

from algorithm.heads.documents import LinearHead, Term, Transform, standardise_features, transform_values
from baseline.heads.cohort import Floats, HeadCohort
from contract.editions.answers import RULES

# Features that are known for a smaller fraction of the training patients are left out.
MIN_KNOWN_FRACTION: Final = 0.2
# Up to this standard deviation, as a fraction of the largest absolute value, values differ only by rounding.
MIN_RELATIVE_SPREAD: Final = 1e-12
# Rank correlation above which two features are redundant.
REDUNDANT_CORRELATION: Final = 0.95

Transforms = Mapping[str, Transform]


def use_unchanged(names: Iterable[str]) -> Transforms:
    """Return the transforms that leave these features unchanged."""
    return dict.fromkeys(names, "identity")


def choose_transforms(cohort: HeadCohort) -> Transforms:
    """Choose the transform of every feature of the cohort: log for volumes and glycolysis, which are skewed.

    Stages by a rule are left out, because the features that define them are in the cohort.
    """
    names = [str(name) for name in cohort.features.columns if name not in RULES]
    return {
        name: "log1p" if name.endswith("_ml") or "tlg" in name or "glycolysis" in name else "identity" for name in names
    }


def compute_spread(values: Floats) -> float:
    """Compute the standard deviation: 0 if the values differ only by rounding, NaN if a value is not finite.

    The limit is relative, and squares neither underflow nor overflow, so that the unit of the values does not matter.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(largest):
        return math.nan
    if largest == 0:
        return 0.0
    exponent = math.frexp(largest)[1]
    spread = math.ldexp(float(np.ldexp(values, -exponent).std()), exponent)
    return 0.0 if spread <= MIN_RELATIVE_SPREAD * largest else spread


def find_unusable_features(cohort: HeadCohort, transforms: Transforms) -> dict[str, str]:
    """Find the features that have no term, with the reasons."""
    columns = zip(transforms.items(), cohort.values(list(transforms)).T, strict=True)
    terms = {feature: _fit_scaled_term(feature, transform, column) for (feature, transform), column in columns}
    return {feature: term for feature, term in terms.items() if isinstance(term, str)}


def fit_scaled_terms(cohort: HeadCohort, transforms: Transforms) -> tuple[Term, ...]:
    """Fit imputation and scaling of each usable feature to these patients; the weight of each term is 0.

    The features of `find_unusable_features` are left out.
    """
    columns = zip(transforms.items(), cohort.values(list(transforms)).T, strict=True)
    terms = [_fit_scaled_term(feature, transform, column) for (feature, transform), column in columns]
    return tuple(term for term in terms if isinstance(term, Term))


def _fit_scaled_term(feature: str, transform: Transform, column: Floats) -> Term | str:
    """Fit the term of a feature; return the reason if the feature cannot be used."""
    known = column[np.isfinite(column)]
    if not known.size or known.size < MIN_KNOWN_FRACTION * len(column):
        return f"known for less than {MIN_KNOWN_FRACTION:.0%} of the patients"
    fill = float(np.median(known))
    filled = transform_values(np.where(np.isfinite(column), column, fill), transform)
    mean, sd = float(filled.mean()), compute_spread(filled)
    if not sd > 0:
        return "constant"
    return Term(feature=feature, transform=transform, fill=fill, mean=mean, sd=sd, weights=(0.0,))


def remove_correlated_terms(terms: Sequence[Term], cohort: HeadCohort) -> tuple[Term, ...]:
    """Remove terms whose rank correlation with an earlier term exceeds 0.95; outcomes are not used."""
    related = np.abs(rank_correlation(make_matrix(terms, cohort))) > REDUNDANT_CORRELATION
    chosen: list[int] = []
    for number in range(len(terms)):
        if not related[number, chosen].any():
            chosen.append(number)
    return tuple(terms[number] for number in chosen)


def rank_correlation(columns: Floats) -> Floats:
    """Compute the Spearman correlation of each pair of columns; 0 for constant columns."""
    ranks = stats.rankdata(columns, axis=0)
    ranks = ranks - ranks.mean(0)
    sizes = np.sqrt((ranks**2).sum(0))
    return np.asarray(ranks.T @ ranks / np.maximum(np.outer(sizes, sizes), 1e-9), dtype=np.float64)


def make_matrix(terms: Sequence[Term], cohort: HeadCohort) -> Floats:
    """Make the matrix of standardised values, shape (patients, terms)."""
    return standardise_features(terms, cohort)


def with_weights(term: Term, weights: npt.ArrayLike) -> Term:
    """Return the term with new weights, one for each score."""
    return term.model_copy(update={"weights": tuple(np.asarray(weights, dtype=np.float64).ravel().tolist())})


def make_linear_head(
    scale: str, terms: Sequence[Term], weights: npt.ArrayLike, intercepts: npt.ArrayLike = (0.0,), **parts: Any
) -> LinearHead:
    """Make a linear head with `weights`, shape (scores, terms) or (terms,), without terms of weight 0."""
    starts = np.asarray(intercepts, dtype=np.float64).tolist()
    columns = np.asarray(weights, dtype=np.float64).reshape(len(starts), len(terms)).T
    used = tuple(with_weights(term, row) for term, row in zip(terms, columns, strict=True) if row.any())
    return LinearHead(scale=scale, intercepts=tuple(starts), terms=used, **parts)


def get_scaling(term: Term) -> tuple[object, ...]:
    """Return all fields except the weights; terms with equal fields can be added up."""
    return (term.feature, term.transform, term.fill, term.mean, term.sd)
