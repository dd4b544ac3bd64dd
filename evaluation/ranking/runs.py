"""The best of a team's runs, chosen by the ranking that orders the teams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.editions.task import TaskProfile
from evaluation.ranking.contest import contest
from evaluation.ranking.rank import rank_teams
from evaluation.results.metrics_json import TeamMetrics, aggregates, read_metrics
from evaluation.statistics.bootstrap import Estimates


@dataclass(frozen=True)
class ChosenRun:
    """The team's metrics by its best run, that run's name, and all runs from best to worst.

    Runs without a value for every ranked metric come last.
    """

    metrics: TeamMetrics
    chosen: str
    order: tuple[TeamMetrics, ...]

    def as_json(self) -> dict[str, Any]:
        """The run that counts, and the values of all runs, the best first."""
        values = [{"run": run.team, "metrics": aggregates(Estimates(run.estimates, 0))} for run in self.order]
        return {"chosen": self.chosen, "order": values}


def best_run(profile: TaskProfile, team: str, paths: Sequence[Path]) -> ChosenRun:
    """Choose a team's run by the edition's official ranking of the team's own runs; of equal runs the first one.

    If no run has a value for every ranked metric, the first run stands for the team, unranked.
    Source: HECKTOR 2021, which ranked a team's five runs by the Borda count of the edition.

    Raises:
        HecktorError: runs that cannot be compared.
    """
    # Equal runs are ordered by name; the numbers keep the order of the files.
    digits = len(str(len(paths)))
    runs = [read_metrics(path, f"{number:0{digits}d} {_short(path)}") for number, path in enumerate(paths, start=1)]
    of_runs = contest(profile, runs)
    places = rank_teams(of_runs.table, profile.ranking).order if of_runs.ranked else ()
    order = (*(of_runs.ranked[index] for index in places), *of_runs.unranked)
    return ChosenRun(replace(order[0], team=team), order[0].team, order)


def _short(path: Path) -> str:
    return f"{path.resolve().parent.name}/{path.name}"
