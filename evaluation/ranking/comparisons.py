"""Pairwise comparisons of teams by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.editions.edge_cases import MISSING_RISK_RULES
from evaluation.editions.metrics import MetricProfile
from evaluation.editions.rules import RECALL_PREFIX, RiskRules
from evaluation.metrics.overlap import Floats
from evaluation.ranking.rank import TeamsTable
from evaluation.results.stored import StoredCohort, StoredTeam
from evaluation.rows.classes import ClassRow
from evaluation.rows.risk import RiskRow, survival_cohort
from evaluation.statistics.kang import PairedRisks, kang
from evaluation.statistics.tests import Test, bootstrap_difference, holm, mcnemar, signed_rank

SIGNED_RANK: Final = "wilcoxon_signed_rank"
BOOTSTRAP: Final = "bootstrap_difference"
KANG: Final = "kang"
MCNEMAR: Final = "mcnemar"

Compare: TypeAlias = Callable[[StoredTeam, StoredTeam], Test]
Draws: TypeAlias = Mapping[tuple[str, str], Floats]  # of bootstrap replicates, by (team, metric)

# Means and medians of per-case values. All metrics without a test of their own are compared by the bootstrap.
_PER_CASE: Final = frozenset(
    {"gtvn_dsc_mean", *(f"gtvp_{name}_mean" for name in ("dsc", "precision", "recall"))}
    | {
        f"{label}_{name}"
        for label in ("gtvp", "gtvn")
        for name in ("hd95_median_mm", "asd_median_mm", "surface_dsc_mean")
    }
)
_OF_CLASSES: Final = frozenset({"balanced_accuracy", "accuracy", "sensitivity", "specificity"})


def method_of(measure: str) -> str:
    """The name of the test that compares teams by a metric, without the answer's prefix."""
    if measure in _PER_CASE:
        return SIGNED_RANK
    if measure == "c_index":
        return KANG
    return MCNEMAR if measure in _OF_CLASSES or measure.startswith(RECALL_PREFIX) else BOOTSTRAP


def comparisons(cohort: StoredCohort, table: TeamsTable, draws: Draws) -> dict[str, Any]:
    """By metric, the test's name and one entry for each ordered pair of teams: is `team` better than `than`?

    `difference`, in the metric's unit, is positive if the team is better and null if infinite. `p_holm` is corrected
    over all ordered pairs of the metric.
    """
    by_metric = {}
    for name, metric in cohort.profile.metrics.items():
        compare = _comparison(name, metric, cohort, table, draws)
        tests = [(a.team, b.team, compare(a, b)) for a, b in permutations(cohort.teams, 2)]
        entries = []
        for (team, than, test), p_holm in zip(tests, holm(np.array([test.p for *_, test in tests])), strict=True):
            difference = test.difference if np.isfinite(test.difference) else None
            entries.append({"team": team, "than": than, "difference": difference, "p": test.p, "p_holm": float(p_holm)})
        by_metric[name] = {"test": method_of(metric.measure), "pairs": entries}
    return by_metric


def _comparison(name: str, metric: MetricProfile, cohort: StoredCohort, table: TeamsTable, draws: Draws) -> Compare:
    sign = 1.0 if metric.higher_is_better else -1.0
    test = method_of(metric.measure)
    if test == KANG:
        return _by_kang(cohort, metric.answer)
    if test == MCNEMAR:
        return lambda a, b: mcnemar(_correct(a, b, metric), _correct(b, a, metric))
    if test == SIGNED_RANK:
        each = np.eye(len(cohort.cases))
        goodness = {team.team: sign * team.metrics[name](each) for team in cohort.teams}
        return lambda a, b: signed_rank(goodness[a.team], goodness[b.team])
    values = {team: sign * table.values[name][index] for index, team in enumerate(table.teams)}
    return lambda a, b: bootstrap_difference(
        float(_gap(np.array(values[a.team]), np.array(values[b.team]))),
        _gap(sign * draws[a.team, name], sign * draws[b.team, name]),
    )


def _gap(a: Floats, b: Floats) -> Floats:
    """Differences, 0 between two infinite values."""
    return np.subtract(a, b, out=np.zeros(a.shape), where=a != b)


def _common(team: StoredTeam, other: StoredTeam, answer: str) -> list[Any]:
    """The rows of a team whose cases count for the other team as well."""
    mine, shared = team.answers[answer], set(other.answers[answer].places.tolist())
    return [row for row, place in zip(mine.rows, mine.places, strict=True) if int(place) in shared]


def _correct(team: StoredTeam, other: StoredTeam, metric: MetricProfile) -> Any:
    rows: list[ClassRow] = _common(team, other, metric.answer)
    return np.array([row.correct for row in rows if _counts_for(metric.measure, row)], dtype=np.bool_)


def _counts_for(measure: str, row: ClassRow) -> bool:
    """Whether a metric of classes takes this patient into account, by the class in the reference."""
    if measure == "sensitivity":
        return row.actual == row.answer.classes[1]
    if measure == "specificity":
        return row.actual == row.answer.classes[0]
    return not measure.startswith(RECALL_PREFIX) or measure == f"{RECALL_PREFIX}{row.actual}"


def _by_kang(cohort: StoredCohort, answer: str) -> Compare:
    rules = cohort.profile.answers[answer].rules
    if not isinstance(rules, RiskRules):
        raise TypeError("a C-index needs the rules of a risk")
    missing = MISSING_RISK_RULES[rules.missing_risk]

    def compare(a: StoredTeam, b: StoredTeam) -> Test:
        mine: list[RiskRow] = _common(a, b, answer)
        theirs: list[RiskRow] = _common(b, a, answer)
        first, second = survival_cohort(mine, rules), survival_cohort(theirs, rules)
        return kang(PairedRisks(first.times_days, first.events, first.risks, second.risks, missing))

    return compare
