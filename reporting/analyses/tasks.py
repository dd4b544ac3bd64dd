"""Teams across tasks: correlation of their ranks, spread of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import BOX_CHART, BOX_HEADS, round_figure, summarise_box

MIN_TEAMS: Final = 3
OFFICIAL: Final = "Official rank"


@dataclass(frozen=True)
class _Ranks:
    """Each team's rank in one task; `by` says what is ranked."""

    title: str
    by: str
    of_team: Mapping[str, float]


def compare_tasks(results: Sequence[TaskResults]) -> list[Analysis]:
    """Correlation by the official rank and by each metric that two tasks share; spread of shared metrics."""
    official = [_Ranks(_task_title(one), OFFICIAL, _ranks(one, None)) for one in results]
    by_metric = [
        _Ranks(_task_title(one), title, _ranks(one, name))
        for one in results
        for name, title in one.board.metrics.items()
    ]
    columns = [*official, *by_metric]
    pairs = [(a, b) for a, b in combinations(columns, 2) if a.by == b.by and a.title != b.title]
    if len(results) < 2:
        return []
    return [*_correlation(pairs), *_spread(results)]


def _task_title(results: TaskResults) -> str:
    return f"Task {results.task.number}: {results.task.title}"


def _ranks(results: TaskResults, metric: str | None) -> dict[str, float]:
    """Official ranks, or those by one metric alone."""
    teams = results.board.teams
    return {one.team: float((one if metric is None else one.metrics[metric]).rank) for one in teams}


def _correlation(pairs: Iterable[tuple[_Ranks, _Ranks]]) -> list[Analysis]:
    rows = []
    for first, second in pairs:
        common = [team for team in first.of_team if team in second.of_team]
        if len(common) >= MIN_TEAMS:
            ranks = [np.array([one.of_team[team] for team in common]) for one in (first, second)]
            tau, p = compute_tau(*ranks)
            row = {"first": first.title, "second": second.title, "by": first.by, "teams": len(common)}
            rows.append({**row, "tau": round_figure(tau), "p": round_figure(p)})
    analysis = Analysis(
        name="correlation-between-tasks",
        title="Correlation between tasks",
        caption=(
            "Kendall's tau-b between the ranks in two tasks, over the teams that both rank, and its two-sided p: exact "
            "for a few teams without ties, otherwise from the normal approximation (scipy)."
        ),
        columns={"first": "First", "second": "Second", "by": "By", "teams": "Teams", "tau": "Tau", "p": "p"},
        rows=rows,
        source="HNTS-MRG 2024 overview, correlation of both tasks",
    )
    return [analysis] if rows else []


def compute_tau(first: Floats, second: Floats) -> tuple[float | None, float | None]:
    """Kendall's tau-b and its two-sided p, exact without ties; both None if one side ties all teams."""
    from scipy.stats import kendalltau  # takes a second to import, which `study boards --help` would wait for

    test = kendalltau(first, second)
    return (None, None) if np.isnan(test.statistic) else (float(test.statistic), float(test.pvalue))


def _spread(results: Sequence[TaskResults]) -> list[Analysis]:
    """Values over the teams, by task, of each metric that several tasks rank."""
    titles = [title for one in results for title in one.board.metrics.values()]
    rows = []
    for shared in dict.fromkeys(title for title in titles if titles.count(title) > 1):
        for one in results:
            names = [name for name, title in one.board.metrics.items() if title == shared]
            values = [entry.metrics[name].value for entry in one.board.teams for name in names]
            summary = summarise_box([np.inf if value is None else value for value in values])
            if not summary["values"]:
                continue
            place = {"metric": shared, "task": _task_title(one)}
            rows.append({**place, **summary})
            # The chart marks the rows out of competition beside the boxes, which hold the ranked teams alone.
            others = [
                (entry.team, entry.metrics[name].value) for entry in one.board.out_of_competition for name in names
            ]
            rows += [
                {**place, "team": team, "value": round_figure(value)} for team, value in others if value is not None
            ]
    analysis = Analysis(
        name="spread-over-teams",
        title="Results of all teams by task",
        caption=(
            "Values of all ranked teams for each metric that several tasks share; entries out of competition are shown "
            "beside them."
        ),
        columns={
            "metric": "Metric",
            "task": "Task",
            **BOX_HEADS,
            "values": "Teams",
            **({"team": "Out of competition", "value": "Its value"} if any("team" in row for row in rows) else {}),
        },
        rows=rows,
        chart={**BOX_CHART, "category": "task", "facet": "metric", "mark": "value", "name": "team"},
        source="HNTS-MRG 2024 overview, Fig. 9",
    )
    return [analysis] if rows else []
