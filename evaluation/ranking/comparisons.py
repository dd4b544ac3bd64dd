"""Pairwise comparisons of teams by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

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
from evaluation.rows.risk import RiskRow, make_survival_cohort
from evaluation.statistics.bootstrap import leave_one_out
from evaluation.statistics.gains import PairedGains, compute_gains, gap, recall_gains
from evaluation.statistics.tests import PairwiseTest, TeamRisks, holm, kang, signed_rank_test

BOOTSTRAP: Final = "bootstrap_difference"
RECALLS: Final = "recall_difference"
TOO_FEW_DIFFER: Final = "too few patients differ to test"
TOO_FEW: Final = "too few patients to test: a class has only one"

Draws: TypeAlias = Mapping[tuple[str, str], Floats]  # of bootstrap replicates, by (team, metric)


def comparisons(results: TaskResults, values: Values, draws: Draws) -> dict[str, MetricTests]:
    """By metric, the deciding test's name, one entry for each ordered pair of teams, and further tests.

    `difference` is positive if `team` is better `than` the other; `sd`, `df` and the interval come from the classes of
    recalls (`RECALLS`) or from the bootstrap replicates of other metrics (`BOOTSTRAP`). They are in the metric's unit,
    the interval no wider than its range allows, and null if infinite or undefined. Where too few patients differ to
    test, `without_p` says so, and p and interval are null. Where Wilcoxon's test decides, about medians of distances,
    there is no interval. Entries of a further test have its own difference.
    `p_holm` is corrected over all ordered pairs of one test that have a p.
    """
    by_metric = {}
    for name, metric in results.profile.metrics.items():
        higher = _signed(metric, values[name])
        if metric.metric is not None and metric.metric.deciding_test == SIGNED_RANK:
            differences = {"difference": gap(higher[:, None], higher)}
            pairs = _pairs(results, differences, _by_signed_ranks(name, metric, results).p)
            by_metric[name] = MetricTests(test=SIGNED_RANK, pairs=pairs, other_tests={})
            continue
        gains = recall_gains([metrics[name] for metrics in results.metrics.values()], higher)
        test = BOOTSTRAP if gains is None else RECALLS
        if gains is None:
            gains = _bootstrap_gains(name, metric, results, higher, draws)
        figures: dict[str, Floats] = {part: getattr(gains, part) for part in ("difference", "sd", "df")}
        figures |= {
            part: np.clip(getattr(gains, part), -metric.span, metric.span) for part in ("ci95_low", "ci95_high")
        }
        others = {
            test: _pairs(results, {"difference": one.difference}, one.p)
            for test, one in _further_tests(name, metric, results).items()
        }
        pairs = _pairs(results, figures, gains.p, gains)
        by_metric[name] = MetricTests(test=test, pairs=pairs, other_tests=others)
    return by_metric


def _pairs(
    results: TaskResults, figures: Mapping[str, Floats], p: Floats, gains: PairedGains | None = None
) -> list[TeamPair]:
    """Return the entries of all ordered pairs; `gains` tells why a p is NaN."""
    names = list(results.teams)
    places = list(permutations(range(len(names)), 2))
    tested = [place for place in places if not np.isnan(p[place])]
    corrected = dict(zip(tested, holm(np.array([p[place] for place in tested])).tolist(), strict=True))
    entries = []
    for place in places:
        more: dict[str, Any] = {part: _finite(values[place]) for part, values in figures.items()}
        if gains is not None and place not in corrected:
            more["without_p"] = _why(gains, place)
        team, than = (names[index] for index in place)
        entries.append(TeamPair(team=team, than=than, p=_finite(p[place]), p_holm=corrected.get(place), **more))
    return entries


def _why(gains: PairedGains, place: tuple[int, int]) -> str:
    """Return the sentence on a pair without a p."""
    df = gains.df[place]
    if df == 0:
        return TOO_FEW
    return f"{TOO_FEW_DIFFER}: {0.0 if np.isnan(df) else df:.1f} degrees of freedom"


def _finite(value: float) -> float | None:
    # The sum with zero turns -0.0 into 0.0.
    return float(value) + 0.0 if np.isfinite(value) else None


def _signed(metric: MetricProfile, values: Floats) -> Floats:
    """Return the values, negated if lower is better."""
    return values if metric.higher_is_better else -values


def _bootstrap_gains(
    name: str, metric: MetricProfile, results: TaskResults, values: Floats, draws: Draws
) -> PairedGains:
    """Compute the gains from the draws; `values` are the teams' values so that higher is better."""
    metrics = [of_team[name] for of_team in results.metrics.values()]
    return compute_gains(
        values,
        _signed(metric, np.stack([draws[team, name] for team in results.teams])),
        _signed(metric, np.stack([leave_one_out(one, len(results.cases)) for one in metrics])),
    )


def _further_tests(name: str, metric: MetricProfile, results: TaskResults) -> dict[str, PairwiseTest]:
    record = metric.metric
    if record is None or not record.second_test:
        return {}
    if record.second_test == KANG:
        return {KANG: _by_kang(results, metric.answer)}
    return {SIGNED_RANK: _by_signed_ranks(name, metric, results)}


def _by_signed_ranks(name: str, metric: MetricProfile, results: TaskResults) -> PairwiseTest:
    """Test per-case values by signed ranks; a sample of one case gives the value of this case."""
    each = np.eye(len(results.cases))
    return signed_rank_test(_signed(metric, np.stack([of_team[name](each) for of_team in results.metrics.values()])))


def _by_kang(results: TaskResults, answer: str) -> PairwiseTest:
    """Apply Kang's test to all teams at once, or to each two on their common cases if teams have different cases."""
    rules = results.profile.answers[answer].rules
    if not isinstance(rules, RiskRules):
        raise TypeError("a C-index needs the rules of a risk")
    answers = [[row for row in of[answer].counted if isinstance(row, RiskRow)] for of in results.answers.values()]
    if all([row.case for row in one] == [row.case for row in answers[0]] for one in answers):
        return kang(_team_risks(answers, rules))
    shape = (len(answers), len(answers))
    test = PairwiseTest(np.zeros(shape), np.ones(shape))
    for a, b in combinations(range(len(answers)), 2):
        of_two, both = kang(_team_risks((answers[a], answers[b]), rules)), np.ix_((a, b), (a, b))
        test.difference[both], test.p[both] = of_two.difference, of_two.p
    return test


def _team_risks(answers: Sequence[Sequence[RiskRow]], rules: RiskRules) -> TeamRisks:
    """Return the risks of teams on the cases that count for all of them."""
    common = set.intersection(*({row.case for row in one} for one in answers))
    cohorts = [make_survival_cohort([row for row in one if row.case in common], rules) for one in answers]
    first, risks = cohorts[0], np.stack([one.risks for one in cohorts])
    return TeamRisks(first.times_days, first.events, risks, MISSING_RISK_RULES[rules.missing_risk])
