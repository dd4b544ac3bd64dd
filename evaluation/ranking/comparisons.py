"""Pairwise comparisons of teams by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.editions.document import MetricProfile
from evaluation.metrics.overlap import Floats
from evaluation.metrics.rules import KANG, MISSING_RISK_RULES, SIGNED_RANK, RiskRules
from evaluation.ranking.rank import TeamsTable
from evaluation.results.teams import ComparableTeams
from evaluation.rows.risk import RiskRow, survival_cohort
from evaluation.statistics.bootstrap import leave_one_out
from evaluation.statistics.gains import LEAST_OF_A_CLASS, PairedGains, classes_suffice, gap, paired_gains
from evaluation.statistics.tests import PairwiseTest, TeamRisks, holm, kang, signed_ranks

BOOTSTRAP: Final = "bootstrap_difference"
TOO_FEW: Final = "too few patients differ to test"

Draws: TypeAlias = Mapping[tuple[str, str], Floats]  # of bootstrap replicates, by (team, metric)


def comparisons(teams: ComparableTeams, table: TeamsTable, draws: Draws) -> dict[str, Any]:
    """By metric, the deciding test's name, one entry for each ordered pair of teams, and further tests.

    `difference` is positive if `team` is better `than` the other; `sd`, `df` and the interval are those of its
    bootstrap replicates, in the metric's unit and no wider than its range allows; null if infinite or undefined.
    Where too few patients differ to test, `without_p` says so, and p and interval are null. Where Wilcoxon's test
    decides, about medians of distances, there is no interval. Entries of a further test have its own difference.
    `p_holm` is corrected over all ordered pairs of one test that have a p.
    """
    by_metric: dict[str, Any] = {}
    for name, metric in teams.profile.metrics.items():
        if metric.metric is not None and metric.metric.deciding_test == SIGNED_RANK:
            values = _values(name, metric, teams, table)
            differences = {"difference": gap(values[:, None], values)}
            pairs = _pairs(teams, differences, _by_signed_ranks(name, metric, teams).p)
            by_metric[name] = {"test": SIGNED_RANK, "pairs": pairs, "other_tests": {}}
            continue
        gains = _gains(name, metric, teams, table, draws)
        figures: dict[str, Floats] = {part: getattr(gains, part) for part in ("difference", "sd", "df")}
        figures |= {
            part: np.clip(getattr(gains, part), -metric.span, metric.span) for part in ("ci95_low", "ci95_high")
        }
        others = {
            test: _pairs(teams, {"difference": one.difference}, one.p)
            for test, one in _further_tests(name, metric, teams).items()
        }
        pairs = _pairs(teams, figures, gains.p, gains)
        by_metric[name] = {"test": BOOTSTRAP, "pairs": pairs, "other_tests": others}
    return by_metric


def _pairs(
    teams: ComparableTeams, figures: Mapping[str, Floats], p: Floats, gains: PairedGains | None = None
) -> list[dict[str, Any]]:
    """The entries of all ordered pairs; `gains` tells why a p is NaN."""
    names = [team.team for team in teams.teams]
    places = list(permutations(range(len(names)), 2))
    tested = [place for place in places if not np.isnan(p[place])]
    corrected = dict(zip(tested, holm(np.array([p[place] for place in tested])).tolist(), strict=True))
    return [
        {
            "team": names[place[0]],
            "than": names[place[1]],
            **{part: _finite(values[place]) for part, values in figures.items()},
            "p": _finite(p[place]),
            "p_holm": corrected.get(place),
            **({} if gains is None or place in corrected else {"without_p": _why(gains, place)}),
        }
        for place in places
    ]


def _why(gains: PairedGains, place: tuple[int, int]) -> str:
    """The sentence on a pair without a p."""
    if not gains.testable[place]:
        return f"{TOO_FEW}: no patient of a class differs, or a class has fewer than {LEAST_OF_A_CLASS} patients"
    df = gains.df[place]
    return f"{TOO_FEW}: {0.0 if np.isnan(df) else df:.1f} degrees of freedom"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _values(name: str, metric: MetricProfile, teams: ComparableTeams, table: TeamsTable) -> Floats:
    """Of the teams in their order, so that higher is better."""
    values = dict(zip(table.teams, table.values[name], strict=True))
    return _signed(metric, np.array([values[team.team] for team in teams.teams]))


def _signed(metric: MetricProfile, values: Floats) -> Floats:
    """The values so that higher is better."""
    return values if metric.higher_is_better else -values


def _gains(name: str, metric: MetricProfile, teams: ComparableTeams, table: TeamsTable, draws: Draws) -> PairedGains:
    metrics = [teams.metrics[team.team][name] for team in teams.teams]
    return paired_gains(
        _values(name, metric, teams, table),
        _signed(metric, np.stack([draws[team.team, name] for team in teams.teams])),
        _signed(metric, np.stack([leave_one_out(one, len(teams.cases)) for one in metrics])),
        classes_suffice(metrics),
    )


def _further_tests(name: str, metric: MetricProfile, teams: ComparableTeams) -> dict[str, PairwiseTest]:
    record = metric.metric
    if record is None or not record.second_test:
        return {}
    if record.second_test == KANG:
        return {KANG: _by_kang(teams, metric.answer)}
    return {SIGNED_RANK: _by_signed_ranks(name, metric, teams)}


def _by_signed_ranks(name: str, metric: MetricProfile, teams: ComparableTeams) -> PairwiseTest:
    """Of per-case values; a sample of one case gives that case's value."""
    each = np.eye(len(teams.cases))
    return signed_ranks(_signed(metric, np.stack([teams.metrics[team.team][name](each) for team in teams.teams])))


def _by_kang(teams: ComparableTeams, answer: str) -> PairwiseTest:
    """Kang's test of all teams at once, or of each two on their common cases if these are not those of all."""
    rules = teams.profile.answers[answer].rules
    if not isinstance(rules, RiskRules):
        raise TypeError("a C-index needs the rules of a risk")
    answers = [[row for row in team.answers[answer].counted if isinstance(row, RiskRow)] for team in teams.teams]
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
