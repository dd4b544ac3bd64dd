"""Pairwise comparisons of teams by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.editions.document import MetricProfile
from evaluation.metrics.overlap import Booleans, Floats, WeightedSum, fractions_within, weighted_groups
from evaluation.metrics.rules import KANG, MISSING_RISK_RULES, SIGNED_RANK, Metric, RiskRules
from evaluation.ranking.rank import TeamsTable
from evaluation.results.scored import places_among
from evaluation.results.teams import StoredCohort
from evaluation.rows.classes import ClassRow
from evaluation.rows.risk import RiskRow, survival_cohort
from evaluation.statistics.bootstrap import leave_one_out
from evaluation.statistics.exchange import PairedExchange, missed_variance, paired_exchange
from evaluation.statistics.gains import PairedGains, paired_gains
from evaluation.statistics.tests import PairwiseTest, TeamRisks, holm, kang, mcnemar, signed_ranks

BOOTSTRAP: Final = "bootstrap_difference"
EXCHANGE: Final = "exact_exchange"

Draws: TypeAlias = Mapping[tuple[str, str], Floats]  # of bootstrap replicates, by (team, metric)


def comparisons(cohort: StoredCohort, table: TeamsTable, draws: Draws) -> dict[str, Any]:
    """By metric, the deciding test's name, one entry for each ordered pair of teams, and further tests.

    `difference` is positive if `team` is better `than` the other; `sd`, `df` and the interval are those of its
    bootstrap replicates, in the metric's unit and no wider than its range allows; null if infinite or undefined.
    `test` of a pair is the one that decides: the exact exchange where a class or the degrees of freedom are too few.
    Where Wilcoxon's test decides, about medians of distances, there is no interval, and the bootstrap stands beside it.
    Entries of a further test have its own difference. `p_holm` is corrected over all ordered pairs of one test.
    """
    by_metric: dict[str, Any] = {}
    for name, metric in cohort.profile.metrics.items():
        gains, exchange = _gains(name, metric, cohort, table, draws)
        figures: dict[str, Floats] = {part: getattr(gains, part) for part in ("difference", "sd", "df")}
        figures |= {
            part: np.clip(getattr(gains, part), -metric.span, metric.span) for part in ("ci95_low", "ci95_high")
        }
        further = _further_tests(name, metric, cohort)
        if exchange.exists_for_all:
            further[EXCHANGE] = PairwiseTest(gains.difference, exchange.p)
        others: dict[str, Any] = {
            test: _pairs(cohort, {"difference": one.difference}, one.p) for test, one in further.items()
        }
        if metric.metric is not None and metric.metric.deciding_test == SIGNED_RANK:
            undefined = np.full_like(gains.p, np.nan)
            without = {part: values if part == "difference" else undefined for part, values in figures.items()}
            decided = _pairs(cohort, without, _by_signed_ranks(name, metric, cohort).p)
            by_metric[name] = {
                "test": SIGNED_RANK,
                "pairs": [{**pair, "test": SIGNED_RANK} for pair in decided],
                "other_tests": {BOOTSTRAP: _pairs(cohort, figures, gains.p), **others},
            }
        else:
            pairs = _pairs(cohort, figures, gains.p, gains.exchanged)
            by_metric[name] = {"test": BOOTSTRAP, "pairs": pairs, "other_tests": others}
    return by_metric


def _pairs(
    cohort: StoredCohort, figures: Mapping[str, Floats], p: Floats, exchanged: Booleans | None = None
) -> list[dict[str, Any]]:
    """The entries of all ordered pairs; `exchanged` tells which of them the exact exchange decides."""
    names = [team.team for team in cohort.teams]
    places = list(permutations(range(len(names)), 2))
    corrected = holm(np.array([p[place] for place in places]))
    return [
        {
            "team": names[place[0]],
            "than": names[place[1]],
            **{part: _finite(values[place]) for part, values in figures.items()},
            "p": float(p[place]),
            "p_holm": float(p_holm),
            **({} if exchanged is None else {"test": EXCHANGE if exchanged[place] else BOOTSTRAP}),
        }
        for place, p_holm in zip(places, corrected, strict=True)
    ]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _gains(
    name: str, metric: MetricProfile, cohort: StoredCohort, table: TeamsTable, draws: Draws
) -> tuple[PairedGains, PairedExchange]:
    sign = 1.0 if metric.higher_is_better else -1.0
    values = dict(zip(table.teams, table.values[name], strict=True))
    gains = paired_gains(
        sign * np.array([values[team.team] for team in cohort.teams]),
        sign * np.stack([draws[team.team, name] for team in cohort.teams]),
        sign * np.stack([leave_one_out(team.metrics[name], len(cohort.cases)) for team in cohort.teams]),
        missed_variance([fractions_within(team.metrics[name]) for team in cohort.teams]),
    )
    groups = [weighted_groups(WeightedSum([(sign, team.metrics[name])])) for team in cohort.teams]
    exchange = paired_exchange(groups, gains.rests_on_few)
    return gains.decided_by(exchange), exchange


def _further_tests(name: str, metric: MetricProfile, cohort: StoredCohort) -> dict[str, PairwiseTest]:
    record = metric.metric
    if record is None or not record.second_test:
        return {}
    if record.second_test == KANG:
        return {KANG: _by_kang(cohort, metric.answer)}
    if record.second_test == SIGNED_RANK:
        return {SIGNED_RANK: _by_signed_ranks(name, metric, cohort)}
    return {record.second_test: _by_mcnemar(cohort, metric.answer, record)}


def _by_signed_ranks(name: str, metric: MetricProfile, cohort: StoredCohort) -> PairwiseTest:
    """Of per-case values; a sample of one case gives that case's value."""
    each = np.eye(len(cohort.cases))
    sign = 1.0 if metric.higher_is_better else -1.0
    return signed_ranks(sign * np.stack([team.metrics[name](each) for team in cohort.teams]))


def _by_mcnemar(cohort: StoredCohort, answer: str, metric: Metric) -> PairwiseTest:
    shape = (len(cohort.teams), len(cohort.cases))
    correct, counted = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for number, team in enumerate(cohort.teams):
        rows = [row for row in team.rows[answer] if isinstance(row, ClassRow)]
        places = places_among(cohort.cases, rows)
        correct[number, places] = [row.correct for row in rows]
        counted[number, places] = [metric.includes(row) for row in rows]
    return mcnemar(correct, counted)


def _by_kang(cohort: StoredCohort, answer: str) -> PairwiseTest:
    """Kang's test of all teams at once, or of each two on their common cases if these are not those of all."""
    rules = cohort.profile.answers[answer].rules
    if not isinstance(rules, RiskRules):
        raise TypeError("a C-index needs the rules of a risk")
    answers = [[row for row in team.rows[answer] if isinstance(row, RiskRow)] for team in cohort.teams]
    if all([row.case for row in one] == [row.case for row in answers[0]] for one in answers):
        return kang(_team_risks(answers, rules))
    shape = (len(answers), len(answers))
    test = PairwiseTest(np.zeros(shape), np.ones(shape))
    for a, b in combinations(range(len(answers)), 2):
        of_two, both = kang(_team_risks((answers[a], answers[b]), rules)), np.ix_((a, b), (a, b))
        test.difference[both], test.p[both] = of_two.difference, of_two.p
    return test


def _team_risks(answers: Sequence[Sequence[RiskRow]], rules: RiskRules) -> TeamRisks:
    """The risks of teams on the cases that count for all of them."""
    common = set.intersection(*({row.case for row in one} for one in answers))
    cohorts = [survival_cohort([row for row in one if row.case in common], rules) for one in answers]
    first, risks = cohorts[0], np.stack([one.risks for one in cohorts])
    return TeamRisks(first.times_days, first.events, risks, MISSING_RISK_RULES[rules.missing_risk])
