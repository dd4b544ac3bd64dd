"""Survival by predicted risk: Kaplan-Meier curves, numbers at risk and the log-rank test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.tables import AnswerRows, rounded, teams_note
from evaluation.metrics.overlap import Booleans, Floats
from evaluation.metrics.survival import DAYS_A_YEAR, StepCurve, kaplan_meier, log_rank_p

_YEARS: Final = (0, 1, 2, 3, 4, 5)
_GROUPS: Final = ("higher risk", "lower risk")


@dataclass(frozen=True)
class _Split:
    """Follow-up of the patients with a risk, and whether the risk is above the team's median."""

    team: str
    days: Floats
    relapse: Booleans
    is_high: Booleans

    def members(self, group: str) -> Booleans:
        return self.is_high if group == _GROUPS[0] else ~self.is_high


def survival_by_risk(table: AnswerRows) -> list[Analysis]:
    """Patients above a team's median risk against the others; a patient without a risk belongs to neither group."""
    splits = _splits(table)
    if not splits:
        return []
    return [_curves(table, splits), _at_risk(table, splits)]


def _splits(table: AnswerRows) -> list[_Split]:
    risks = table.numbers("risk") * (-1.0 if table.answer.direction == "time" else 1.0)
    days, relapse = table.numbers("rfs_days"), table.numbers("relapse")
    splits = []
    for place, team in enumerate(table.names):
        known = ~np.isnan(risks[place])
        if known.any():
            risk = risks[place][known]
            splits.append(_Split(team, days[place][known], relapse[place][known] == 1.0, risk > np.median(risk)))
    return splits


def _curves(table: AnswerRows, splits: list[_Split]) -> Analysis:
    rows: list[dict[str, Any]] = []
    for split in splits:
        for group in _GROUPS:
            members = split.members(group)
            curve = kaplan_meier(split.days[members], split.relapse[members])
            shared = {"team": split.team, "group": group}
            rows += [
                {**shared, "years": rounded(float(days / DAYS_A_YEAR)), "free": rounded(float(free))}
                for days, free in curve_corners(curve)
            ]
    return Analysis(
        name=table.name("survival"),
        title=table.title("Survival by predicted risk"),
        caption=(
            "Kaplan-Meier estimate of being free of recurrence, for patients with a predicted risk above each team's "
            "median and for the others."
        ),
        columns={"team": "Team", "group": "Predicted", "years": "Years", "free": "Free of recurrence"},
        rows=rows,
        chart={
            "kind": "lines",
            "x": "years",
            "y": "free",
            "series": "group",
            "facet": "team",
            "step": True,
            "domain": [0, 1],
        },
        notes=teams_note("Without a risk for any patient", table.names, {split.team for split in splits}),
    )


def curve_corners(curve: StepCurve) -> list[tuple[float, float]]:
    """The start of a curve, every time at which it falls, and its end."""
    falls = np.flatnonzero(np.diff(curve.survival) < 0) + 1
    places = sorted({0, *falls.tolist(), curve.times_days.size - 1})
    return [(float(curve.times_days[place]), float(curve.survival[place])) for place in places]


def _at_risk(table: AnswerRows, splits: list[_Split]) -> Analysis:
    rows: list[dict[str, Any]] = []
    for split in splits:
        p = rounded(log_rank_p(split.days, split.relapse, split.is_high))
        for group in _GROUPS:
            members = split.members(group)
            days = split.days[members]
            counts = {f"at_risk_{year}y": int((days >= year * DAYS_A_YEAR).sum()) for year in _YEARS}
            recurred = int(split.relapse[members].sum())
            rows.append(
                {"team": split.team, "group": group, "patients": days.size, "recurred": recurred, "p": p, **counts}
            )
    return Analysis(
        name=table.name("numbers-at-risk"),
        title=table.title("Numbers at risk and log-rank test"),
        caption=(
            "Patients still followed and free of recurrence after each number of years, by predicted group, and the "
            "two-sided p of the log-rank test between a team's two groups."
        ),
        columns={
            "team": "Team",
            "group": "Predicted",
            "patients": "Patients",
            "recurred": "Recurrences",
            "p": "Log-rank p",
            **{f"at_risk_{year}y": f"At risk after {year} year{'s' * (year != 1)}" for year in _YEARS},
        },
        rows=rows,
    )
