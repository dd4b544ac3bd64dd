"""Entries out of competition: baselines, withdrawn teams, ensembles, annotators, the mean of all teams.

An entry is shown without a rank at the position of its value, and changes no rank, tau, Borda count or p-value.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.document import list_row_schemes
from evaluation.ranking.rank import Values, collect_values, rank_by_scheme
from evaluation.ranking.scheme_values import RankingValues, collect_ranking_values
from evaluation.results.board import OutOfCompetitionEntry, describe_file
from evaluation.results.documents import MetricFigures, MetricsJson, ObserversDocument, check_document
from evaluation.results.task import TaskResults
from evaluation.results.validation import check_ranges
from evaluation.statistics.intervals import percentile_interval

MEAN_OF_TEAMS: Final = "mean of all teams"
_SUFFIX: Final = ".json"


@dataclass(frozen=True)
class OutOfCompetitionSource:
    """Name, file (or its content) and reason of an entry out of competition; the reason may be empty."""

    team: str
    source: Path | Mapping[str, Any] | MetricsJson
    reason: str = ""

    @property
    def where(self) -> str:
        """Name of the file in messages, or of the entry if it has no file."""
        return describe_file(self.source) if isinstance(self.source, Path) else self.team


@dataclass(frozen=True)
class UnrankedEntry:
    """An entry out of competition.

    Attributes:
        team: Name on the leaderboard.
        reason: Why it is not ranked; may be empty.
        figures: The ranked metrics for which it has a value.
        without_rows: Whether its values come from a metrics.json without rows and could not be checked.
        results: Its own results, if they have rows.
    """

    team: str
    reason: str
    figures: Mapping[str, MetricFigures]
    without_rows: bool = False
    results: TaskResults | None = None


def parse_source(text: str) -> OutOfCompetitionSource:
    """Parse NAME=FILE.json[:REASON]. The reason begins after the first `.json:`, so path and reason may contain colons.

    Raises:
        argparse.ArgumentTypeError: The text has another form.
    """
    name, _, rest = text.partition("=")
    stem, suffix, reason = rest.partition(f"{_SUFFIX}:")
    path = f"{stem}{_SUFFIX}" if suffix else rest
    if not name.strip() or not path.endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=FILE.json or NAME=FILE.json:REASON")
    return OutOfCompetitionSource(name.strip(), Path(path), reason.strip())


def make_metrics_entry(source: OutOfCompetitionSource, results: TaskResults) -> UnrankedEntry:
    """Return the entry of a metrics.json that is among the `results`, under its name."""
    metrics = results.teams[source.team]
    figures = {name: metrics.aggregates[name] for name in results.profile.metrics if name in metrics.aggregates}
    own = results.select([source.team]) if source.team in results.answers else None
    return UnrankedEntry(source.team, source.reason, figures, without_rows=not metrics.results, results=own)


def is_observers_document(content: Any) -> bool:
    """Return whether this is the content of the observers.json of `hecktor study observers`."""
    return isinstance(content, Mapping) and content.get("study") == "observers"


def make_observers_entry(
    source: OutOfCompetitionSource, content: Mapping[str, Any], results: TaskResults
) -> UnrankedEntry:
    """Return the entry of an observers.json. Annotators have no reference, so their cases are not compared.

    Raises:
        HecktorError: The task has no masks, or a figure is impossible.
    """
    profile, where = results.profile, source.where
    masks = next((answer for answer in profile.answers.values() if answer.answer.kind == "mask"), None)
    if masks is None:
        raise HecktorError(where, "agreement of annotators", f"a metrics.json of task {profile.algorithm.name}")
    document = check_document(content, ObserversDocument, where)
    rules = results.get_options(next(iter(results.teams)), masks.answer.name)
    stated = {"volume_unit": "mm3"}
    comparable = {
        f"{masks.prefix}{name}": document.aggregates[name]
        for name, metric in masks.metrics.items()
        if name in document.aggregates and all(rules.get(rule) == stated.get(rule) for rule in metric.rules)
    }
    check_ranges(comparable, profile, where)
    ranked = {name: figures for name, figures in comparable.items() if name in profile.metrics}
    return UnrankedEntry(source.team, source.reason, ranked)


def make_mean_entry(ranked: TaskResults, values: RankingValues) -> UnrankedEntry:
    """Compute the mean of the ranked teams by each metric, with its percentiles if there are replicates."""
    means = {}
    for name in ranked.profile.metrics:
        ends: tuple[float | None, float | None] = (None, None)
        if values.draws is not None:
            ends = percentile_interval(np.mean([values.draws[team, name] for team in ranked.teams], axis=0))
        means[name] = MetricFigures.from_values(float(np.mean(values.cohort[name])), *ends)
    count = len(ranked.teams)
    return UnrankedEntry(MEAN_OF_TEAMS, f"{count} ranked team{'s' * (count > 1)}", means)


def place_entries(
    entries: Sequence[UnrankedEntry], ranked: TaskResults, bootstraps: int, seed: int | None
) -> list[OutOfCompetitionEntry]:
    """Return the entries for the leaderboard, the best first; `place` is the number of ranked teams above an entry."""
    placed = [
        OutOfCompetitionEntry(
            team=entry.team,
            reason=entry.reason,
            **({"without_rows": True} if entry.without_rows else {}),
            metrics={
                name: MetricFigures.from_values(*entry.figures[name].figures if name in entry.figures else (None,))
                for name in ranked.profile.metrics
            },
            place=count_teams_above(entry, ranked, bootstraps, seed),
        )
        for entry in entries
    ]
    return sorted(placed, key=lambda entry: entry.place)


def count_teams_above(entry: UnrankedEntry, ranked: TaskResults, bootstraps: int = 0, seed: int | None = None) -> int:
    """Count the teams that the official ranking would place above an entry if only this entry joined it.

    Teams with the same rank as the entry are above it. All teams are above an entry without a value for a metric that
    decides the ranking, or without rows that the ranking needs.
    """
    profile = ranked.profile
    official = profile.ranking.schemes[profile.ranking.official]
    values: dict[str, float] = {}
    for name in profile.ranking.official_metrics:
        value = entry.figures[name].figure() if name in entry.figures else None
        if value is None:
            return len(ranked.teams)
        values[name] = value
    if not list_row_schemes(official):
        of_teams = collect_values(ranked)
        joined: Values = {name: np.append(of_teams[name], value) for name, value in values.items()}
    elif entry.results is None:
        return len(ranked.teams)
    else:
        teams = {**ranked.teams, **entry.results.teams}
        answers = {**ranked.answers, **entry.results.answers}
        results = TaskResults(profile.select_official(), teams, answers)
        joined = collect_ranking_values(results, bootstraps, seed).cohort
    ranks = rank_by_scheme(joined, profile.metrics, official, profile.ranking.ties).ranks
    return int((ranks[:-1] <= ranks[-1]).sum())
