"""Pairwise comparisons of teams by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.editions.document import MetricProfile
from evaluation.metrics.overlap import Floats
from evaluation.metrics.rules import KANG, MISSING_RISK_RULES, SIGNED_RANK, RiskRules
from evaluation.ranking.rank import Values
from evaluation.results.board import MetricTests, TeamPair
from evaluation.results.task import TaskResults
from evaluation.rows.risk import make_survival_cohort
from evaluation.rows.table import RowTable
from evaluation.statistics.bootstrap import leave_one_out
from evaluation.statistics.gains import PairedGains, compute_gains, compute_recall_gains, gap
from evaluation.statistics.tests import PairwiseTest, TeamRisks, compare_signed_ranks, holm, kang

BOOTSTRAP: Final = "bootstrap_difference"
RECALLS: Final = "recall_difference"
TOO_FEW_DIFFER: Final = "too few patients differ to test"
TOO_FEW: Final = "too few patients to test: a class has only one"

# Values in the bootstrap replicates by (team, metric), each of shape (replicates,).
Draws: TypeAlias = Mapping[tuple[str, ...], Floats]


def compare_teams(results: TaskResults, values: Values, draws: Draws) -> dict[str, MetricTests]:
    """Test each team against every other team by every ranked metric.

    An entry's `difference` is positive if the team `team` is better than the team `than`. `sd`, `df` and the interval
    come from the classes of recalls (`RECALLS`) or, for other metrics, from the bootstrap replicates (`BOOTSTRAP`).
    They are in the metric's unit and null if infinite or undefined; the interval is clipped to the metric's range. If
    too few patients differ to test, `without_p` says so, and p and interval are null. If Wilcoxon's test decides, as
    for medians of distances, there is no interval. Entries of a second test have their own difference. `p_holm` is
    corrected over all ordered pairs of one test that have a p.

    Args:
        results: The ranked teams with their rows.
        values: Each metric in the whole cohort.
        draws: Each metric in the bootstrap replicates.

    Returns:
        By metric, the name of the deciding test, its entries for each ordered pair of teams, and further tests.
    """
    return {name: _compare_by_metric(name, results, values[name], draws) for name in results.profile.metrics}


def _compare_by_metric(name: str, results: TaskResults, values: Floats, draws: Draws) -> MetricTests:
    metric = results.profile.metrics[name]
    oriented = orient(metric, values)
    if metric.metric is not None and metric.metric.deciding_test == SIGNED_RANK:
        differences = {"difference": gap(oriented[:, None], oriented)}
        p = _test_signed_ranks(name, metric, results).p
        return MetricTests(test=SIGNED_RANK, pairs=_list_pairs(results, differences, p), other_tests={})
    gains = compute_recall_gains([metrics[name] for metrics in results.metrics.values()], oriented)
    test = RECALLS
    if gains is None:
        gains = _bootstrap_gains(name, metric, results, oriented, draws)
        test = BOOTSTRAP
    figures = {
        "difference": gains.difference,
        "sd": gains.sd,
        "df": gains.df,
        "ci95_low": np.clip(gains.ci95_low, -metric.span, metric.span),
        "ci95_high": np.clip(gains.ci95_high, -metric.span, metric.span),
    }
    second_tests = {
        second: _list_pairs(results, {"difference": pairwise.difference}, pairwise.p)
        for second, pairwise in _apply_second_test(name, metric, results).items()
    }
    return MetricTests(test=test, pairs=_list_pairs(results, figures, gains.p, gains), other_tests=second_tests)


def _list_pairs(
    results: TaskResults, figures: Mapping[str, Floats], p: Floats, gains: PairedGains | None = None
) -> list[TeamPair]:
    """Return the entries of all ordered pairs; `gains` explains why a p is NaN."""
    names = list(results.teams)
    pairs = list(permutations(range(len(names)), 2))
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    corrected = p[first, second]
    is_tested = ~np.isnan(corrected)
    corrected[is_tested] = holm(corrected[is_tested])
    columns = {name: _to_finite(values[first, second]) for name, values in {**figures, "p": p}.items()}
    columns["p_holm"] = _to_finite(corrected)
    entries = []
    for pair, is_pair_tested, numbers in zip(pairs, is_tested, zip(*columns.values(), strict=True), strict=True):
        optional: dict[str, Any] = dict(zip(columns, numbers, strict=True))
        if gains is not None and not is_pair_tested:
            optional["without_p"] = _explain_missing_p(gains, pair)
        entries.append(TeamPair(team=names[pair[0]], than=names[pair[1]], **optional))
    return entries


def _explain_missing_p(gains: PairedGains, pair: tuple[int, int]) -> str:
    """Return the reason why a pair of teams, given by their indices, has no p."""
    df = gains.df[pair]
    if df == 0:
        return TOO_FEW
    return f"{TOO_FEW_DIFFER}: {0.0 if np.isnan(df) else df:.1f} degrees of freedom"


def _to_finite(values: Floats) -> list[float | None]:
    """Return the values with None in place of infinite and undefined values."""
    # The sum with zero turns -0.0 into 0.0.
    return [value if math.isfinite(value) else None for value in (values + 0.0).tolist()]


def orient(metric: MetricProfile, values: Floats) -> Floats:
    """Return the values, negated if lower is better."""
    return values if metric.higher_is_better else -values


def _bootstrap_gains(
    name: str, metric: MetricProfile, results: TaskResults, oriented: Floats, draws: Draws
) -> PairedGains:
    """Compute the gains from the draws; `oriented` are the teams' values, negated if lower is better."""
    metrics = [of_team[name] for of_team in results.metrics.values()]
    return compute_gains(
        oriented,
        orient(metric, np.stack([draws[team, name] for team in results.teams])),
        orient(metric, np.stack([leave_one_out(function, len(results.cases)) for function in metrics])),
    )


def _apply_second_test(name: str, metric: MetricProfile, results: TaskResults) -> dict[str, PairwiseTest]:
    """Return the metric's second test by its name; empty if the metric has no second test."""
    declaration = metric.metric
    if declaration is None or not declaration.second_test:
        return {}
    if declaration.second_test == KANG:
        return {KANG: _test_c_index(results, metric.answer)}
    return {SIGNED_RANK: _test_signed_ranks(name, metric, results)}


def _test_signed_ranks(name: str, metric: MetricProfile, results: TaskResults) -> PairwiseTest:
    """Test each team against every other team by the signed ranks of their values in individual cases."""
    return compare_signed_ranks(orient(metric, compute_case_values(results, name)))


def compute_case_values(results: TaskResults, metric: str) -> Floats:
    """Compute a metric of each team in each case, shape (teams, cases)."""
    # Weighting only one case yields the metric of this case.
    single_cases = np.eye(len(results.cases))
    return np.stack([metrics[metric](single_cases) for metrics in results.metrics.values()])


def _test_c_index(results: TaskResults, answer: str) -> PairwiseTest:
    """Apply Kang's test to all teams at once, or to pairs of teams on their common cases if their cases differ."""
    rules = results.profile.answers[answer].rules
    if not isinstance(rules, RiskRules):
        raise TypeError("a C-index needs the rules of a risk")
    tables = [answers[answer].counted for answers in results.answers.values()]
    if all(table.cases == tables[0].cases for table in tables):
        return kang(_select_risks(tables, rules))
    shape = (len(tables), len(tables))
    test = PairwiseTest(np.zeros(shape), np.ones(shape))
    for a, b in combinations(range(len(tables)), 2):
        pair_test = kang(_select_risks((tables[a], tables[b]), rules))
        both = np.ix_((a, b), (a, b))
        test.difference[both] = pair_test.difference
        test.p[both] = pair_test.p
    return test


def _select_risks(tables: Sequence[RowTable], rules: RiskRules) -> TeamRisks:
    """Return the risks of teams on the cases that count for all of them."""
    common = set.intersection(*(set(table.cases) for table in tables))
    cohorts = [make_survival_cohort(table.select([case in common for case in table.cases]), rules) for table in tables]
    risks = np.stack([cohort.risks for cohort in cohorts])
    return TeamRisks(cohorts[0].times_days, cohorts[0].events, risks, MISSING_RISK_RULES[rules.missing_risk])
