"""Teams or runs whose results may be compared: same task, edition, rules and cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.profile import EvaluationProfile, known_profiles, load_profile
from evaluation.editions.task import TaskProfile
from evaluation.ranking.rank import TeamsTable, rank_teams
from evaluation.results.metrics_json import TeamMetrics, aggregates, read_metrics
from evaluation.results.recount import Recount, check_ranges, recount
from evaluation.results.stored import StoredCohort, check_same_reference, joined
from evaluation.statistics.bootstrap import Estimates

MUST_AGREE = ("task", "edition", "options", "case_set_sha256")


@dataclass(frozen=True)
class Contest:
    """Comparable teams: those with a value for every ranked metric, and the others.

    `recounts` are those of the teams with rows.
    """

    profile: TaskProfile
    ranked: tuple[TeamMetrics, ...]
    unranked: tuple[TeamMetrics, ...]
    recounts: tuple[Recount, ...]

    @property
    def table(self) -> TeamsTable:
        """The metrics of the ranked teams."""
        values = {
            name: np.array([team.estimates[name].value for team in self.ranked], dtype=float)
            for name in self.profile.metrics
        }
        return TeamsTable(tuple(team.team for team in self.ranked), values, self.profile.metrics)

    @property
    def cohort(self) -> StoredCohort:
        """The ranked teams over their common cases, if all of them have rows."""
        return joined([one for one in self.recounts if one.team in self.ranked])

    def require_ranked_teams(self) -> Contest:
        """This contest. Raises HecktorError if no team has a value for every ranked metric."""
        if not self.ranked:
            raise HecktorError("rank", "no team has a value for every ranked metric")
        return self


def profile_of(teams: Sequence[TeamMetrics], edition: str | None) -> EvaluationProfile:
    """The profile at the path `edition`, or the one of the package that the first team's results name."""
    if not teams:
        raise HecktorError("rank", "no metrics.json given", "one a team, or --runs")
    name = str(teams[0].provenance["edition"])
    # A path in the results could name a profile of the team's own.
    if edition is None and name not in known_profiles():
        known = ", ".join(known_profiles())
        raise HecktorError(
            teams[0].source, f"edition {name!r:.60}", f"one of {known}, or its profile.json as --edition"
        )
    return load_profile(edition or name)


def contest(profile: TaskProfile, teams: Sequence[TeamMetrics]) -> Contest:
    """Check that the results are possible and may be compared.

    Raises:
        HecktorError: a figure that cannot be or does not follow from the rows, naming its file and case; or results
            that differ in task, edition, rules, cases or reference, naming the difference.
    """
    _check_comparable(profile, teams)
    for team in teams:
        check_ranges(team.estimates, profile, team.source)
    recounts = tuple(recount(team, profile) for team in teams if team.rows)
    check_same_reference(recounts)
    ranked = tuple(team for team in teams if not absent_metrics(team, profile))
    return Contest(profile, ranked, tuple(team for team in teams if absent_metrics(team, profile)), recounts)


def require_rows(teams: Sequence[TeamMetrics]) -> None:
    """Raise HecktorError for a team whose metrics.json holds no rows, so that nothing in it can be checked."""
    lacking = [team.source for team in teams if not team.rows]
    if lacking:
        raise HecktorError(lacking[0], "no per-case rows", "rows to check its values, or --without-rows")


def absent_metrics(team: TeamMetrics, profile: TaskProfile) -> list[str]:
    """Ranked metrics for which a team has no value."""
    return [name for name in profile.metrics if name not in team.estimates or team.estimates[name].value is None]


def _check_comparable(profile: TaskProfile, teams: Sequence[TeamMetrics]) -> None:
    first, task = teams[0], profile.algorithm.name
    if first.provenance.get("task") != task:
        raise HecktorError(f"{first.team}", f"metrics of task {first.provenance.get('task')!r}", f"{task!r}")
    # A profile of one's own may rank any results, an edition of the package none of another one's.
    edition = first.provenance.get("edition")
    if edition != profile.edition and {edition, profile.edition} <= set(known_profiles()):
        raise HecktorError(f"{first.team}", f"metrics of edition {edition!r}", f"{profile.edition!r}")
    for team in teams[1:]:
        for key in MUST_AGREE:
            mine, theirs = first.provenance.get(key), team.provenance.get(key)
            if key == "options":
                mine, theirs = profile.completed(mine), profile.completed(theirs)
            if mine != theirs:
                mine, theirs = _differences(mine, theirs)
                raise HecktorError(
                    f"{first.team} and {team.team}", f"{key} differ ({mine} and {theirs})", "one for all teams"
                )


def _differences(mine: object, theirs: object) -> tuple[object, object]:
    if not (isinstance(mine, dict) and isinstance(theirs, dict)):
        return mine, theirs
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    inner = {name: _differences(mine.get(name), theirs.get(name)) for name in names}
    return {name: one for name, (one, _) in inner.items()}, {name: other for name, (_, other) in inner.items()}


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
    runs = [
        read_metrics(path, f"{number:0{digits}d} {path.resolve().parent.name}/{path.name}")
        for number, path in enumerate(paths, start=1)
    ]
    of_runs = contest(profile, runs)
    places = rank_teams(of_runs.table, profile.ranking).order if of_runs.ranked else ()
    order = (*(of_runs.ranked[index] for index in places), *of_runs.unranked)
    return ChosenRun(replace(order[0], team=team), order[0].team, order)
