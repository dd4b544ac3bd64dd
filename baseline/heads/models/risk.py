"""Models of a risk (Cox regression with ridge, bagged signs, a single feature), all linear, and its baseline hazard.

The signs follow the idea of ICARE (Rebaud et al. 2022). Only signs are fitted: each bootstrap sample (bag) uses a
random half of the features, gives each the sign of its own C-index, drops the weaker of two correlated features and
averages the signed standardised values. The average over the bags is linear in the features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.documents import LinearHead, Term
from algorithm.heads.parts import MOST_STEPS, Survival
from baseline.heads.cohort import Flags, Floats, HeadCohort, Outcomes
from baseline.heads.models.terms import linear_head, matrix, rank_correlation, spread_of
from evaluation.metrics.concordance import PairCounter

SCALE: Final = "log partial hazard"
BAGS: Final = 100
FEATURE_SHARE: Final = 0.5
# Rank correlation above which only the stronger of two features is used in a bag.
MOST_CORRELATION: Final = 0.7
# Follow-up ends on day 1 at the earliest, since days of a survival ascend from above 0; of a short follow-up, or one
# in years, after this share of it.
FIRST_DAY, FIRST_SHARE = 1.0, 1e-3
# Times that differ by a smaller share are one time.
_ROUNDING: Final = 1e-9
# A hazard is above 0 from the first node on.
LEAST_HAZARD: Final = 1e-9
# Of the patients at risk, by their hazard ratios; the others' ratios may vanish beside it.
LARGEST_SHARE: Final = 1 - 1e-9
# Log hazard ratio per standard deviation of a risk without skill: above 0, so that the order of the patients remains.
LEAST_SLOPE: Final = 1e-6
# Log hazard ratio per standard deviation of the scores (a ratio of 148); the slope of a perfect order would exceed it.
MOST_SLOPE: Final = 5.0
# Steps that have a node at their foot and one at their top: all, or the last ones.
MOST_EXACT_STEPS: Final = (MOST_STEPS - 1) // 2
EXACT_STEPS: Final = 12


def unfitted(
    _cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """The single feature as a risk: only its scale is learnt."""
    return [linear_head(SCALE, terms, np.ones(len(terms))) for _ in settings]


def fit_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting: `penalty` is the weight of the squared coefficients."""
    columns = matrix(terms, cohort)
    weights = [cox_weights(columns, cohort.outcomes, setting["penalty"]) for setting in settings]
    return [linear_head(SCALE, terms, one) for one in weights]


def fit_shipped_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting as by `fit_cox`, fitted by lifelines."""
    columns = matrix(terms, cohort)
    weights = [lifelines_weights(columns, cohort.outcomes, setting["penalty"]) for setting in settings]
    return [linear_head(SCALE, terms, one) for one in weights]


def lifelines_weights(columns: Floats, outcomes: Outcomes, penalty: float) -> Floats:
    """`cox_weights` by lifelines' CoxPHFitter, which scales its columns, so that the penalties are scaled too."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceWarning

    if not columns.shape[1] or not outcomes.positive.any():
        return np.zeros(columns.shape[1])
    table = pd.DataFrame(columns).assign(days=outcomes.times_days, event=outcomes.positive)
    penalties = penalty / columns.var(0, ddof=1)
    with warnings.catch_warnings():
        # It guesses at columns that may harm convergence; with a ridge they do not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = CoxPHFitter(penalizer=penalties, l1_ratio=0.0).fit(table, "days", "event")
    return np.asarray(fitted.params_.to_numpy(), dtype=np.float64)


def cox_weights(columns: Floats, outcomes: Outcomes, penalty: float) -> Floats:
    """Coefficients of a Cox regression on standardised columns (patients, terms), ties by Efron (1977).

    Maximises the log partial likelihood over the number of patients, less `penalty` / 2 times the squared coefficients.
    For the loops: lifelines' CoxPHFitter gives the same to 1e-5 and takes 7 to 20 times as long on ten real tables, 20
    to 90 times on 120 to 600 drawn patients. A nested cross-validation fits 1,600 times.
    """
    from scipy.optimize import minimize

    if not columns.shape[1] or not outcomes.positive.any():
        return np.zeros(columns.shape[1])
    start, loss = np.zeros(columns.shape[1]), _cox_loss(columns, outcomes, penalty)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "gtol": 1e-7})
    return np.asarray(fitted.x, dtype=np.float64)


def _cox_loss(columns: Floats, outcomes: Outcomes, penalty: float) -> Callable[[Floats], tuple[float, Floats]]:
    """The function that `cox_weights` minimises, with its gradient; some patient has an event."""
    order = np.lexsort((~outcomes.positive, -outcomes.times_days))  # of equal times events come first
    days, values = -outcomes.times_days[order], columns[order]
    events = np.flatnonzero(outcomes.positive[order])
    # For each event: the last patient at risk, the first event of its day, their number, and its place among them.
    last = np.searchsorted(days, days[events], side="right") - 1
    _, first, tied, count = np.unique(days[events], return_index=True, return_inverse=True, return_counts=True)
    share = (np.arange(len(events)) - first[tied]) / count[tied]

    def at_risk(risks: Floats) -> Floats:
        """Sum over the patients at risk at each event, less Efron's share of the events on that day."""
        of_day = np.add.reduceat(risks[events], first, axis=0)[tied]
        return np.asarray(np.cumsum(risks, axis=0)[last] - (share * of_day.T).T)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = values @ weights
        risks = np.exp(scores - scores.max())
        total = at_risk(risks)
        fit = (scores[events] - scores.max() - np.log(total)).sum()
        slope = values[events].sum(0) - (at_risk(risks[:, None] * values) / total[:, None]).sum(0)
        loss_value = penalty / 2 * weights @ weights - fit / len(values)
        return float(loss_value), penalty * weights - slope / len(values)

    return loss


def fit_signs(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting: `least_effect` is the minimum distance of a feature's C-index from 0.5.

    A Cox regression on the average alone puts it on the scale of a log partial hazard.
    """
    columns, patients = matrix(terms, cohort), len(cohort.ids)
    counts = rng.multinomial(patients, np.full(patients, 1 / patients), size=BAGS)
    drawn = rng.random((BAGS, len(terms))).argsort(1) < np.ceil(FEATURE_SHARE * len(terms))
    effects = univariate_concordance(columns, cohort, counts.astype(np.float64)) - 0.5
    related = np.abs(rank_correlation(columns)) > MOST_CORRELATION
    heads = []
    for setting in settings:
        bags = [
            bag_weights(np.where(used, effect, 0.0), related, setting["least_effect"])
            for used, effect in zip(drawn, effects, strict=True)
        ]
        weights = np.mean(bags, axis=0) if terms else np.zeros(0)
        heads.append(linear_head(SCALE, terms, weights * log_hazard_slope(columns @ weights, cohort)))
    return heads


def univariate_concordance(columns: Floats, cohort: HeadCohort, counts: Floats) -> Floats:
    """C-index of each column on each bag, shape (bags, columns); 0.5 for a bag without a comparable pair.

    `counts` (bags, patients) holds how often each patient was drawn.
    """
    values = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        pairs = PairCounter(cohort.outcomes.times_days, cohort.outcomes.positive, column).count(counts)
        signed = 2 * pairs.concordant - pairs.comparable
        values[:, number] = 0.5 + 0.5 * signed / np.maximum(pairs.comparable, 1e-9)
    return values


def bag_weights(effects: Floats, related: Flags, least_effect: float) -> Floats:
    """Weights of one bag: signs divided by the number of features used, all zero if there is none.

    Features are taken by decreasing effect; one that is related to an earlier feature is dropped, as is one whose
    effect is 0 or below `least_effect`.
    """
    chosen: list[int] = []
    for number in np.argsort(-np.abs(effects), kind="stable"):
        if effects[number] == 0 or abs(effects[number]) < least_effect:
            break
        if not related[number, chosen].any():
            chosen.append(int(number))
    weights = np.zeros(len(effects))
    weights[chosen] = np.sign(effects[chosen]) / max(len(chosen), 1)
    return weights


def log_hazard_slope(scores: Floats, cohort: HeadCohort) -> float:
    """Slope of a Cox regression on scores of which higher values mean an earlier event, above 0; 0 for a constant.

    Scores that order the events perfectly, or nearly so, have no finite slope: it is held at `MOST_SLOPE`.
    """
    spread = spread_of(scores)
    if spread == 0:
        return 0.0
    columns = (scores / spread)[:, None]
    if _is_separated(columns, cohort.outcomes):
        return MOST_SLOPE / spread
    # The scores rise with the hazard by construction; a slope of 0 or less is noise.
    return max(float(cox_weights(columns, cohort.outcomes, 0.0)[0]), LEAST_SLOPE) / spread


def slope_notice(scores: Floats, cohort: HeadCohort) -> str | None:
    """The assumption of `log_hazard_slope` about the scores; None if it is a plain Cox regression."""
    spread = spread_of(scores)
    if spread == 0:
        return None
    columns = (scores / spread)[:, None]
    if _is_separated(columns, cohort.outcomes):
        return "the scores order the events almost perfectly, so that hazard ratios are bounded, not estimated"
    if cox_weights(columns, cohort.outcomes, 0.0)[0] <= LEAST_SLOPE:
        return "the out-of-fold scores do not rise with the hazard, so that all risks are nearly equal"
    return None


def _is_separated(columns: Floats, outcomes: Outcomes) -> bool:
    """True if the partial likelihood of standardised scores, a concave function, still rises at the largest slope."""
    if not outcomes.positive.any():
        return False
    _, gradient = _cox_loss(columns, outcomes, 0.0)(np.array([MOST_SLOPE]))
    return bool(gradient[0] < 0)


def baseline_survival(outcomes: Outcomes, scores: Floats) -> Survival:
    """Baseline hazard at score 0 from follow-up and log partial hazards, up to the longest follow-up, the horizon.

    The hazard is the product limit of Kalbfleisch and Prentice (1973), tied events at their mean ratio; with equal
    scores the survival is Kaplan-Meier's. Events on the horizon do not count: nobody is followed after them, so that
    they say nothing about the days before. Out-of-fold scores make the days agree with patients that the model never
    saw; lifelines has no estimate for scores that it did not fit.

    The estimate steps at each event. The last steps, which few patients make large, keep their height within a day; of
    more than 31 events the earlier ones have nodes at equal ranks, on the middle of a step.
    """
    times = _without_rounding(outcomes.times_days)
    horizon = float(times.max()) or FIRST_DAY
    day = min(FIRST_DAY, FIRST_SHARE * horizon)
    days, ratios = np.maximum(times, day), np.exp(scores)
    is_event = outcomes.positive & (days < horizon)
    if not is_event.any():
        return Survival(days=(horizon,), cumulative_hazard=(LEAST_HAZARD,))
    event_days, of_day, tied = np.unique(days[is_event], return_inverse=True, return_counts=True)
    at_events = np.bincount(of_day, ratios[is_event])
    at_risk = np.array([ratios[days >= day].sum() for day in event_days])
    after = np.cumsum(-np.log1p(-np.minimum(at_events / at_risk, LARGEST_SHARE)) * tied / at_events)
    before = np.concatenate([[0.0], after[:-1]])
    start = 0 if len(after) <= MOST_EXACT_STEPS else len(after) - EXACT_STEPS
    early = np.unique(np.linspace(0, start - 1, min(start, MOST_STEPS - 1 - 2 * EXACT_STEPS)).round().astype(int))
    rise = np.minimum(day, np.diff(event_days, prepend=0.0) / 2)
    late_days = np.column_stack([event_days - rise, event_days])[start:].ravel()
    late = np.column_stack([before, after])[start:].ravel()
    nodes = np.concatenate([event_days[early], late_days, [horizon]])
    hazard = np.concatenate([(before[early] + after[early]) / 2, late, [after[-1]]])
    return Survival(days=tuple(nodes.tolist()), cumulative_hazard=tuple(np.maximum(hazard, LEAST_HAZARD).tolist()))


def _without_rounding(times: Floats) -> Floats:
    """The times, those that differ by rounding alone at the first of them."""
    values, place = np.unique(times, return_inverse=True)
    is_first = np.diff(values, prepend=-np.inf) > _ROUNDING * values
    return np.asarray(values[is_first][np.cumsum(is_first) - 1][place])
