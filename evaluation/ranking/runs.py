"""A team's best of several runs, chosen among them by the same ranking that orders the teams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.tasks import Task
from evaluation.ranking.leaderboard import RankOptions, contest
from evaluation.ranking.rank import rank_teams
from evaluation.results.metrics_json import TeamMetrics, aggregates, read_metrics
from evaluation.statistics.bootstrap import Estimates


@dataclass(frozen=True)
class ChosenRun:
    """The team's metrics by its best run, that run's file, and all runs from the best to the worst.

    Runs without a value for every ranked metric stand last.
    """

    metrics: TeamMetrics
    chosen: str
    order: tuple[TeamMetrics, ...]

    def as_json(self) -> dict[str, Any]:
        """Which run counts, and the values of each, the best first."""
        values = [{"run": run.team, "metrics": aggregates(Estimates(run.estimates, 0))} for run in self.order]
        return {"chosen": self.chosen, "order": values}


def best_run(task: Task, team: str, paths: Sequence[Path], options: RankOptions) -> ChosenRun:
    """Choose a team's run by the edition's official ranking of the team's own runs; of equal ones the first given.

    Source: HECKTOR 2021, where a team's five runs were ranked by the Borda count of the edition.

    A team none of whose runs has a value for every ranked metric stands by its first run, unranked.

    Raises:
        HecktorError: runs that cannot be compared.
    """
    # Equal runs stand in the order of their names, which the numbers make that of the files.
    digits = len(str(len(paths)))
    runs = [read_metrics(path, f"{number:0{digits}d} {_short(path)}") for number, path in enumerate(paths, start=1)]
    found = contest(task, runs, options)
    places = rank_teams(found.table, found.profile.ranking).order if found.ranked else ()
    order = (*(found.ranked[index] for index in places), *found.unranked)
    return ChosenRun(replace(order[0], team=team), order[0].team, order)


def _short(path: Path) -> str:
    return f"{path.resolve().parent.name}/{path.name}"
