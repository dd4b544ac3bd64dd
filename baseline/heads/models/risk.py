"""Models of a risk (Cox regression with ridge, bagged signs, a single feature), all linear, and its baseline hazard.

The signs follow the idea of ICARE (Rebaud et al. 2022). Only signs are fitted: each bootstrap sample (bag) uses a
random half of the features, gives each feature the sign of its own C-index, drops the weaker of two correlated features
and averages the signed standardised values. The average over the bags is linear in the features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.documents import LinearHead, Term
from algorithm.heads.parts import MAX_STEPS, Survival
from baseline.heads.cohort import Flags, Floats, HeadCohort, Outcomes
from baseline.heads.models.terms import compute_spread, make_linear_head, make_matrix, rank_correlation
from evaluation.metrics.concordance import PairCounter

SCALE: Final = "log partial hazard"
BAGS: Final = 100
FEATURE_FRACTION: Final = 0.5
# Rank correlation above which only the stronger of two features is used in a bag.
MAX_CORRELATION: Final = 0.7
# Follow-up ends on day 1 at the earliest, because the days of a survival curve are above 0. If the follow-up is short
# or in years, it ends at the earliest after this fraction of the longest follow-up.
FIRST_DAY: Final = 1.0
FIRST_DAY_FRACTION: Final = 1e-3
# Times that differ by a smaller fraction are equal.
_ROUNDING: Final = 1e-9
# A hazard is above 0 from the first node on.
MIN_HAZARD: Final = 1e-9
# Maximum share of the hazard ratios of the patients with an event among the patients at risk, so that the logarithm of
# the remaining share is finite.
MAX_EVENT_FRACTION: Final = 1 - 1e-9
# Log hazard ratio per standard deviation of a risk without skill; above 0, so that the order of the patients remains.
MIN_SLOPE: Final = 1e-6
# Log hazard ratio per standard deviation of the scores (a ratio of 148); the slope of a perfect order would exceed it.
MAX_SLOPE: Final = 5.0
# Maximum number of steps that all have a node at their foot and a node at their top. If there are more steps, only the
# last ones have both.
MAX_EXACT_STEPS: Final = (MAX_STEPS - 1) // 2
EXACT_STEPS: Final = 12


def make_unfitted_heads(
    _cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """Make heads whose risk is the single feature; only its scale is learnt."""
    return [make_linear_head(SCALE, terms, np.ones(len(terms))) for _ in settings]


def fit_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """Fit a Cox regression for each setting; `penalty` is the weight of the squared coefficients."""
    columns = make_matrix(terms, cohort)
    weights = [fit_cox_weights(columns, cohort.outcomes, setting["penalty"]) for setting in settings]
    return [make_linear_head(SCALE, terms, row) for row in weights]


def fit_shipped_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """Fit the same regressions as `fit_cox` with lifelines."""
    columns = make_matrix(terms, cohort)
    weights = [fit_lifelines_weights(columns, cohort.outcomes, setting["penalty"]) for setting in settings]
    return [make_linear_head(SCALE, terms, row) for row in weights]


def fit_lifelines_weights(columns: Floats, outcomes: Outcomes, penalty: float) -> Floats:
    """Fit the same weights as `fit_cox_weights` with lifelines' CoxPHFitter.

    CoxPHFitter scales its columns, so the penalties are scaled, too.
    """
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceWarning

    if not columns.shape[1] or not outcomes.positive.any():
        return np.zeros(columns.shape[1])
    table = pd.DataFrame(columns).assign(days=outcomes.times_days, event=outcomes.positive)
    penalties = penalty / columns.var(0, ddof=1)
    with warnings.catch_warnings():
        # lifelines guesses which columns may harm convergence; with a ridge they do not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = CoxPHFitter(penalizer=penalties, l1_ratio=0.0).fit(table, "days", "event")
    return np.asarray(fitted.params_.to_numpy(), dtype=np.float64)


def fit_cox_weights(columns: Floats, outcomes: Outcomes, penalty: float) -> Floats:
    """Fit the coefficients of a Cox regression on standardised columns (patients, terms), with ties as by Efron (1977).

    The log partial likelihood divided by the number of patients, minus `penalty` / 2 times the squared coefficients, is
    maximised. Cross-validation uses this function: lifelines' CoxPHFitter agrees to 1e-5 and takes 7 to 20 times as
    long on ten real tables, 20 to 90 times on 120 to 600 simulated patients. A nested cross-validation fits 1,600
    times.
    """
    from scipy.optimize import minimize

    if not columns.shape[1] or not outcomes.positive.any():
        return np.zeros(columns.shape[1])
    start, loss = np.zeros(columns.shape[1]), _make_cox_loss(columns, outcomes, penalty)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "gtol": 1e-7})
    return np.asarray(fitted.x, dtype=np.float64)


def _make_cox_loss(columns: Floats, outcomes: Outcomes, penalty: float) -> Callable[[Floats], tuple[float, Floats]]:
    """Make the function that `fit_cox_weights` minimises, with its gradient; at least one patient has an event."""
    order = np.lexsort((~outcomes.positive, -outcomes.times_days))  # at equal times events come first
    days, values = -outcomes.times_days[order], columns[order]
    events = np.flatnonzero(outcomes.positive[order])
    # For each event: the last patient at risk; the first event of its day and the number of events on this day; and the
    # fraction of these events that come before it.
    last = np.searchsorted(days, days[events], side="right") - 1
    _, first, tied, count = np.unique(days[events], return_index=True, return_inverse=True, return_counts=True)
    share = (np.arange(len(events)) - first[tied]) / count[tied]

    def sum_at_risk(risks: Floats) -> Floats:
        """Sum over the patients at risk at each event, minus Efron's share of the events on the same day."""
        of_day = np.add.reduceat(risks[events], first, axis=0)[tied]
        return np.asarray(np.cumsum(risks, axis=0)[last] - (share * of_day.T).T)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = values @ weights
        risks = np.exp(scores - scores.max())
        total = sum_at_risk(risks)
        fit = (scores[events] - scores.max() - np.log(total)).sum()
        slope = values[events].sum(0) - (sum_at_risk(risks[:, None] * values) / total[:, None]).sum(0)
        loss_value = penalty / 2 * weights @ weights - fit / len(values)
        return float(loss_value), penalty * weights - slope / len(values)

    return loss


def fit_signs(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[LinearHead]:
    """Fit bagged signs for each setting; `least_effect` is the minimum distance of a feature's C-index from 0.5.

    A Cox regression on the average puts the average on the scale of a log partial hazard.
    """
    columns, patients = make_matrix(terms, cohort), len(cohort.ids)
    counts = rng.multinomial(patients, np.full(patients, 1 / patients), size=BAGS)
    drawn = rng.random((BAGS, len(terms))).argsort(1) < np.ceil(FEATURE_FRACTION * len(terms))
    effects = univariate_concordance(columns, cohort, counts.astype(np.float64)) - 0.5
    related = np.abs(rank_correlation(columns)) > MAX_CORRELATION
    heads = []
    for setting in settings:
        bags = [
            compute_bag_weights(np.where(used, effect, 0.0), related, setting["least_effect"])
            for used, effect in zip(drawn, effects, strict=True)
        ]
        weights = np.mean(bags, axis=0) if terms else np.zeros(0)
        heads.append(make_linear_head(SCALE, terms, weights * log_hazard_slope(columns @ weights, cohort)))
    return heads


def univariate_concordance(columns: Floats, cohort: HeadCohort, counts: Floats) -> Floats:
    """Compute the C-index of each column on each bag, shape (bags, columns); 0.5 for a bag without a comparable pair.

    `counts`, shape (bags, patients), is how often each patient was drawn.
    """
    values = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        pairs = PairCounter(cohort.outcomes.times_days, cohort.outcomes.positive, column).count(counts)
        signed = 2 * pairs.concordant - pairs.comparable
        values[:, number] = 0.5 + 0.5 * signed / np.maximum(pairs.comparable, 1e-9)
    return values


def compute_bag_weights(effects: Floats, related: Flags, least_effect: float) -> Floats:
    """Compute the weights of one bag: signs divided by the number of features used, or zeros if no feature is used.

    Features are taken by decreasing effect. A feature is dropped if it is related to an earlier feature, or if its
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
    """Compute the slope of a Cox regression on scores that rise with the risk; above 0, or 0 for constant scores.

    Scores that order the events perfectly, or nearly so, have no finite slope; `MAX_SLOPE` is used instead.
    """
    spread = compute_spread(scores)
    if spread == 0:
        return 0.0
    columns = (scores / spread)[:, None]
    if _is_separated(columns, cohort.outcomes):
        return MAX_SLOPE / spread
    # The scores rise with the hazard by construction; a slope of 0 or less is noise.
    return max(float(fit_cox_weights(columns, cohort.outcomes, 0.0)[0]), MIN_SLOPE) / spread


def describe_slope_problem(scores: Floats, cohort: HeadCohort) -> str | None:
    """Describe the assumption of `log_hazard_slope` about the scores; None if the slope is an estimate."""
    spread = compute_spread(scores)
    if spread == 0:
        return None
    columns = (scores / spread)[:, None]
    if _is_separated(columns, cohort.outcomes):
        return "the scores order the events almost perfectly, so that hazard ratios are bounded, not estimated"
    if fit_cox_weights(columns, cohort.outcomes, 0.0)[0] <= MIN_SLOPE:
        return "the out-of-fold scores do not rise with the hazard, so that all risks are nearly equal"
    return None


def _is_separated(columns: Floats, outcomes: Outcomes) -> bool:
    """Return whether the partial likelihood of standardised scores, a concave function, still rises at `MAX_SLOPE`."""
    if not outcomes.positive.any():
        return False
    _, gradient = _make_cox_loss(columns, outcomes, 0.0)(np.array([MAX_SLOPE]))
    return bool(gradient[0] < 0)


def estimate_baseline_survival(outcomes: Outcomes, scores: Floats) -> Survival:
    """Estimate the baseline hazard at score 0 from follow-up and log partial hazards, up to the longest follow-up.

    The hazard is the product limit of Kalbfleisch and Prentice (1973), tied events at their mean hazard ratio; with
    equal scores the survival is the Kaplan-Meier estimate. Events at the longest follow-up (the horizon) do not count:
    no patient is followed after them, so that they say nothing about the days before. With out-of-fold scores the days
    agree with patients that the model never saw; lifelines has no estimate for scores that it did not fit.

    The estimate steps at each event. The last steps are large because few patients remain, and each of them rises
    within a day. If there are more than 31 events, the earlier steps have nodes at equal ranks, in the middle of a
    step.
    """
    times = _merge_equal_times(outcomes.times_days)
    horizon = float(times.max()) or FIRST_DAY
    day = min(FIRST_DAY, FIRST_DAY_FRACTION * horizon)
    days, ratios = np.maximum(times, day), np.exp(scores)
    is_event = outcomes.positive & (days < horizon)
    if not is_event.any():
        return Survival(days=(horizon,), cumulative_hazard=(MIN_HAZARD,))
    event_days, of_day, tied = np.unique(days[is_event], return_inverse=True, return_counts=True)
    at_events = np.bincount(of_day, ratios[is_event])
    at_risk = np.array([ratios[days >= day].sum() for day in event_days])
    after = np.cumsum(-np.log1p(-np.minimum(at_events / at_risk, MAX_EVENT_FRACTION)) * tied / at_events)
    before = np.concatenate([[0.0], after[:-1]])
    start = 0 if len(after) <= MAX_EXACT_STEPS else len(after) - EXACT_STEPS
    early = np.unique(np.linspace(0, start - 1, min(start, MAX_STEPS - 1 - 2 * EXACT_STEPS)).round().astype(int))
    rise = np.minimum(day, np.diff(event_days, prepend=0.0) / 2)
    late_days = np.column_stack([event_days - rise, event_days])[start:].ravel()
    late = np.column_stack([before, after])[start:].ravel()
    nodes = np.concatenate([event_days[early], late_days, [horizon]])
    hazard = np.concatenate([(before[early] + after[early]) / 2, late, [after[-1]]])
    return Survival(days=tuple(nodes.tolist()), cumulative_hazard=tuple(np.maximum(hazard, MIN_HAZARD).tolist()))


def _merge_equal_times(times: Floats) -> Floats:
    """Replace times that differ only by rounding with the first of them."""
    values, place = np.unique(times, return_inverse=True)
    is_first = np.diff(values, prepend=-np.inf) > _ROUNDING * values
    return np.asarray(values[is_first][np.cumsum(is_first) - 1][place])
