"""A bagged univariate-sign model, after the idea of ICARE (Rebaud et al. 2022).

Nothing is fitted but signs: on each bootstrap sample a random half of the features is looked at, each takes the sign
of its own C-index, the weaker of two correlated features is dropped, and the signed standardised values are averaged.
The bags' average is linear in the features, so it is written as an ordinary head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from baseline.heads.models.cox import KIND, cox_weights
from baseline.heads.models.shared import Cohort, Flags, Floats, comparable_pairs, matrix, rank_correlation, weighted

BAGS: Final = 100
FEATURE_SHARE: Final = 0.5
# Of two features whose ranks correlate more than this, only the stronger one counts in a bag.
MOST_CORRELATION: Final = 0.7
_UNPENALISED: Final = {"penalty": 0.0, "l1_ratio": 0.0}


def fit_signs(
    cohort: Cohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[LinearHead]:
    """One head for each setting: `least_effect` is how far a feature's C-index must lie from 0.5 to count.

    The average is put on the scale of a log partial hazard by a Cox regression on it alone.
    """
    columns = matrix(terms, cohort)
    counts = rng.multinomial(len(cohort.rows), np.full(len(cohort.rows), 1 / len(cohort.rows)), size=BAGS)
    looked_at = rng.random((BAGS, len(terms))).argsort(1) < np.ceil(FEATURE_SHARE * len(terms))
    effects = univariate_concordance(columns, cohort, counts.astype(np.float64)) - 0.5
    related = np.abs(rank_correlation(columns)) > MOST_CORRELATION
    heads = []
    for setting in settings:
        bags = [
            bag_weights(np.where(seen, effect, 0.0), related, setting["least_effect"])
            for seen, effect in zip(looked_at, effects, strict=True)
        ]
        weights = np.mean(bags, axis=0) if terms else np.zeros(0)
        heads.append(LinearHead(KIND, 0.0, weighted(terms, _as_log_hazard(weights, columns, cohort)), None))
    return heads


def univariate_concordance(columns: Floats, cohort: Cohort, counts: Floats) -> Floats:
    """C-index of each column on each bag, shape (bags, columns); 0.5 where a bag has no comparable pair.

    `counts` (bags, patients) says how often a bag holds a patient; pairs count as often as the bag has them.
    """
    pairs = comparable_pairs(cohort.outcomes.rfs_days, cohort.outcomes.relapse).astype(np.float64)
    total = np.maximum(((counts @ pairs) * counts).sum(1), 1e-9)
    found = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        signed = pairs * np.sign(column[:, None] - column[None, :])
        found[:, number] = 0.5 + 0.5 * ((counts @ signed) * counts).sum(1) / total
    return found


def bag_weights(effects: Floats, related: Flags, least_effect: float) -> Floats:
    """One bag's weights: signs over the number of features that count, all zero where none does.

    Features come in the order of their effect; one that is related to a feature before it is dropped, as is one whose
    effect is 0 or below the least.
    """
    kept: list[int] = []
    for number in np.argsort(-np.abs(effects), kind="stable"):
        if effects[number] == 0 or abs(effects[number]) < least_effect:
            break
        if not related[number, kept].any():
            kept.append(int(number))
    weights = np.zeros(len(effects))
    weights[kept] = np.sign(effects[kept]) / max(len(kept), 1)
    return weights


def _as_log_hazard(weights: Floats, columns: Floats, cohort: Cohort) -> Floats:
    score = columns @ weights
    if score.std() < 1e-9:
        return np.zeros(len(weights))
    slope = float(cox_weights((score / score.std())[:, None], cohort, _UNPENALISED)[0] / score.std())
    # The signs were chosen for a rising hazard; a slope that is not positive can only be noise.
    return np.asarray(weights * max(slope, 1e-6))
