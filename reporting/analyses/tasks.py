"""Compare tasks: the correlation of the teams' ranks, and the spread of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import BOX_CHART, BOX_HEADINGS, round_figure, summarise_box

MIN_TEAMS: Final = 3
OFFICIAL: Final = "Official rank"


@dataclass(frozen=True)
class _Ranks:
    """Each team's rank in one task by a quantity, such as a metric's title."""

    title: str
    quantity: str
    rank_by_team: Mapping[str, float]


def compare_tasks(results: Sequence[TaskResults]) -> list[Analysis]:
    """Compute the correlation of ranks between tasks, and the spread of the metrics that several tasks share.

    Ranks are official ranks and ranks by each metric that two tasks share.
    """
    if len(results) < 2:
        return []
    ranks = [_Ranks(_get_title(task), OFFICIAL, _list_ranks(task, None)) for task in results]
    ranks += [
        _Ranks(_get_title(task), title, _list_ranks(task, name))
        for task in results
        for name, title in task.board.metrics.items()
    ]
    pairs = [
        (first, second)
        for first, second in combinations(ranks, 2)
        if first.quantity == second.quantity and first.title != second.title
    ]
    return [*_correlate_ranks(pairs), *_summarise_metrics(results)]


def _get_title(results: TaskResults) -> str:
    return f"Task {results.task.number}: {results.task.title}"


def _list_ranks(results: TaskResults, metric: str | None) -> dict[str, float]:
    """List the official rank of each team or, with a metric, the rank by this metric."""
    return {
        entry.team: float(entry.rank if metric is None else entry.metrics[metric].rank) for entry in results.board.teams
    }


def _correlate_ranks(pairs: Iterable[tuple[_Ranks, _Ranks]]) -> list[Analysis]:
    rows = []
    for first, second in pairs:
        common = [team for team in first.rank_by_team if team in second.rank_by_team]
        if len(common) >= MIN_TEAMS:
            first_ranks = np.array([first.rank_by_team[team] for team in common])
            second_ranks = np.array([second.rank_by_team[team] for team in common])
            tau, p = compute_tau(first_ranks, second_ranks)
            row = {"first": first.title, "second": second.title, "by": first.quantity, "teams": len(common)}
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
    """Compute Kendall's tau-b and its two-sided p, exact without ties. Both are None if one side ties all teams."""
    from scipy.stats import kendalltau  # takes a second to import, which `study boards --help` would wait for

    test = kendalltau(first, second)
    return (None, None) if np.isnan(test.statistic) else (float(test.statistic), float(test.pvalue))


def _summarise_metrics(results: Sequence[TaskResults]) -> list[Analysis]:
    """Summarise the values of all teams by task for each metric that several tasks rank."""
    titles = [title for task in results for title in task.board.metrics.values()]
    rows = []
    for shared_title in dict.fromkeys(title for title in titles if titles.count(title) > 1):
        for task in results:
            board = task.board
            names = [name for name, title in board.metrics.items() if title == shared_title]
            values = [entry.metrics[name].value for entry in board.teams for name in names]
            summary = summarise_box([np.inf if value is None else value for value in values])
            if not summary["values"]:
                continue
            shared = {"metric": shared_title, "task": _get_title(task)}
            rows.append({**shared, **summary})
            # Boxes contain only ranked teams. The chart marks each entry out of competition next to the box.
            for entry in board.out_of_competition:
                values = [entry.metrics[name].value for name in names]
                cells = [round_figure(value) for value in values if value is not None]
                rows += [{**shared, "team": entry.team, "value": cell} for cell in cells]
    analysis = Analysis(
        name="spread-over-teams",
        title="Results of all teams by task",
        caption=(
            "Values of all ranked teams for each metric that several tasks share; entries out of competition are shown "
            "next to them."
        ),
        columns={
            "metric": "Metric",
            "task": "Task",
            **BOX_HEADINGS,
            "values": "Teams",
            **({"team": "Out of competition", "value": "Its value"} if any("team" in row for row in rows) else {}),
        },
        rows=rows,
        chart={**BOX_CHART, "category": "task", "facet": "metric", "mark": "value", "name": "team"},
        source="HNTS-MRG 2024 overview, Fig. 9",
    )
    return [analysis] if rows else []
