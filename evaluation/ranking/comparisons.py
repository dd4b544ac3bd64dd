"""Every team against every other by each metric: one-sided paired tests, Holm-corrected over all ordered pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.editions.edge_cases import MISSING_RISK_RULES
from evaluation.editions.profile import TaskProfile
from evaluation.editions.rules import SurvivalRules
from evaluation.metrics.overlap import Floats
from evaluation.ranking.rank import TeamsTable
from evaluation.ranking.stability import Draws
from evaluation.results.stored import StoredCohort, StoredTeam
from evaluation.statistics.kang import PairedRisks, kang
from evaluation.statistics.tests import (
    Test,
    bootstrap_difference,
    holm,
    mcnemar,
    signed_rank,
)

SIGNED_RANK: Final = "wilcoxon_signed_rank"
BOOTSTRAP: Final = "bootstrap_difference"
KANG: Final = "kang"
MCNEMAR: Final = "mcnemar"

Compare: TypeAlias = Callable[[StoredTeam, StoredTeam], Test]

# Means and medians of per-case values. What is in no list here is an aggregate, compared by the bootstrap.
_PER_CASE: Final = frozenset(
    {
        "gtvp_dsc_mean",
        "gtvp_precision_mean",
        "gtvp_recall_mean",
        *(f"{label}_{name}" for label in ("gtvp", "gtvn") for name in ("hd95_median_mm", "asd_median_mm")),
        *(f"{label}_surface_dsc_mean" for label in ("gtvp", "gtvn")),
    }
)
# Which patients a metric of the predicted status looks at.
_PATIENTS: Final[dict[str, tuple[bool, ...]]] = {
    "balanced_accuracy": (True, False),
    "sensitivity": (True,),
    "specificity": (False,),
}


def method_of(metric: str) -> str:
    """The name of the test that compares teams by a metric."""
    if metric in _PER_CASE:
        return SIGNED_RANK
    if metric == "c_index":
        return KANG
    return MCNEMAR if metric in _PATIENTS else BOOTSTRAP


def comparisons(cohort: StoredCohort, table: TeamsTable, draws: Draws, profile: TaskProfile) -> dict[str, Any]:
    """By metric, the test's name and one entry for each ordered pair of teams: is `team` better than `than`?

    `difference` is positive where it is, in the metric's unit; null where it is infinite. `p_holm` is corrected
    over all ordered pairs of the metric.
    """
    found = {}
    for name in profile.metrics:
        compare = _comparison(name, cohort, table, draws)
        pairs = [(a, b) for a in cohort.teams for b in cohort.teams if a is not b]
        tests = [compare(a, b) for a, b in pairs]
        corrected = holm(np.array([test.p for test in tests]))
        entries = [_entry(a, b, test, p) for (a, b), test, p in zip(pairs, tests, corrected, strict=True)]
        found[name] = {"test": method_of(name), "pairs": entries}
    return found


def _entry(a: StoredTeam, b: StoredTeam, test: Test, corrected: float) -> dict[str, Any]:
    difference = test.difference if np.isfinite(test.difference) else None
    return {"team": a.team, "than": b.team, "difference": difference, "p": test.p, "p_holm": float(corrected)}


def _comparison(metric: str, cohort: StoredCohort, table: TeamsTable, draws: Draws) -> Compare:
    sign = 1.0 if table.profiles[metric].higher_is_better else -1.0
    test = method_of(metric)
    if test == KANG:
        return _by_kang(cohort)
    if test == MCNEMAR:
        return lambda a, b: mcnemar(_correct(a, b, metric), _correct(b, a, metric))
    if test == SIGNED_RANK:
        each = np.eye(len(cohort.cases))
        goodness = {team.team: sign * team.metrics[metric](each) for team in cohort.teams}
        return lambda a, b: signed_rank(goodness[a.team], goodness[b.team])
    values = {team: sign * table.values[metric][index] for index, team in enumerate(table.teams)}
    return lambda a, b: bootstrap_difference(
        float(_gap(np.array(values[a.team]), np.array(values[b.team]))),
        _gap(sign * draws[a.team, metric], sign * draws[b.team, metric]),
    )


def _gap(a: Floats, b: Floats) -> Floats:
    """Differences, 0 between two infinite values."""
    return np.subtract(a, b, out=np.zeros(a.shape), where=a != b)


def _common(team: StoredTeam, other: StoredTeam) -> list[Any]:
    """The rows of a team whose cases count for the other as well."""
    shared = set(other.places.tolist())
    return [row for row, place in zip(team.rows, team.places, strict=True) if int(place) in shared]


def _correct(team: StoredTeam, other: StoredTeam, metric: str) -> Any:
    rows = [row for row in _common(team, other) if row.hpv_positive in _PATIENTS[metric]]
    return np.array([row.predicted is row.hpv_positive for row in rows], dtype=np.bool_)


def _by_kang(cohort: StoredCohort) -> Compare:
    rules = cohort.rules
    if not isinstance(rules, SurvivalRules):
        raise TypeError("a C-index has the rules of survival")
    sign, missing = (1.0 if rules.direction == "risk" else -1.0), MISSING_RISK_RULES[rules.missing_risk]

    def compare(a: StoredTeam, b: StoredTeam) -> Test:
        mine, theirs = _common(a, b), _common(b, a)
        times = np.array([row.follow_up.rfs_days for row in mine], dtype=np.float64)
        events = np.array([row.follow_up.relapse for row in mine], dtype=np.bool_)
        risks_a, risks_b = (
            np.array([np.nan if row.risk is None else sign * row.risk for row in rows]) for rows in (mine, theirs)
        )
        return kang(PairedRisks(times, events, risks_a, risks_b, missing))

    return compare
