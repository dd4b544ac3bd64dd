"""`hecktor study runs`: the best, the median and the worst of each team's runs, and their means over teams."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.options import add_edition_option, add_task_option, name_paths
from evaluation.editions import known_profiles
from evaluation.editions.profile import TaskProfile
from evaluation.results.metrics_json import TeamMetrics
from evaluation.results.teams import load_teams
from evaluation.studies.outputs import StudyResult, by_name

CHOICES: Final = ("best", "median", "worst")


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Summarise the runs of every team by every metric."""
    paths: Mapping[str, list[Path]] = by_name(options.teams, "team", 1)
    sources = [
        (f"{team}, run {number} ({path.name})", team, path)
        for team, files in paths.items()
        for number, path in enumerate(files, start=1)
    ]
    runs = load_teams([(name, path) for name, _, path in sources], task=options.task, edition=options.edition)
    profile, ranked = runs.profile, runs.require_ranked_teams().ranked
    team_of = {name: team for name, team, _ in sources}
    usable = [(team_of[metrics.team], metrics) for metrics in ranked]
    lines = [
        line
        for metric in profile.metrics
        for team in paths
        for line in summarised(team, [metrics for name, metrics in usable if name == team], metric, profile)
    ]
    means = {name: means_over_teams(lines, name) for name in profile.metrics}
    content: dict[str, Any] = {
        "task": profile.algorithm.name,
        "edition": profile.edition,
        "runs": len(runs.teams),
        "runs_without_a_value": [metrics.team for metrics in runs.unranked],
        "means_over_teams": means,
        "teams": lines,
    }
    summary = [f"{name:<20} " + ", ".join(f"{key} {mean[key]:.4f}" for key in CHOICES) for name, mean in means.items()]
    summary.append(f"{len(runs.teams)} runs of {len(paths)} teams; ")
    return StudyResult(content, lines, "\n".join(summary))


def summarised(team: str, runs: Sequence[TeamMetrics], metric: str, profile: TaskProfile) -> list[dict[str, Any]]:
    """One line with the best, median and worst value of a team's runs by one metric alone; none without runs.

    Of an even number the median is the mean of the middle two.
    """
    values = sorted(value for run in runs if (value := run.estimates[metric].value) is not None)
    if not values:
        return []
    worst, best = (values[0], values[-1]) if profile.metrics[metric].higher_is_better else (values[-1], values[0])
    figures = {"best": float(best), "median": float(np.median(values)), "worst": float(worst)}
    return [{"metric": metric, "team": team, "runs": len(values), **figures}]


def means_over_teams(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """The mean over teams of their best, of their median and of their worst runs."""
    of_metric = [line for line in lines if line["metric"] == metric]
    return {"teams": len(of_metric), **{key: float(np.mean([line[key] for line in of_metric])) for key in CHOICES}}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the task, the runs and the edition."""
    add_task_option(parser)
    parser.add_argument(
        "teams", type=name_paths, nargs="+", metavar="TEAM=FILE,FILE", help="metrics.json of each run of a team"
    )
    add_edition_option(parser, "that of the results", known_profiles())
