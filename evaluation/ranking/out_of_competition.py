"""Entries out of competition: baselines, withdrawn teams, ensembles, annotators, the mean of all teams.

An entry is shown in the place of its value, without a rank, and changes no rank, tau, Borda count or p-value.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.ranking.comparisons import Draws
from evaluation.ranking.rank import TeamsTable, scheme_ranks, table_of
from evaluation.results.board import file_in_folder
from evaluation.results.documents import MetricsJson, ObserversDocument, check_document
from evaluation.results.metrics_json import aggregates, estimate_of
from evaluation.results.teams import ComparableTeams
from evaluation.results.validation import check_ranges
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.intervals import interval

MEAN_OF_TEAMS: Final = "mean of all teams"
_SUFFIX: Final = ".json"
_NO_VALUE: Final = Estimate(None, None, None)


@dataclass(frozen=True)
class OutOfCompetitionSource:
    """Name, file (or its content) and reason of an entry out of competition; the reason may be empty."""

    team: str
    source: Path | Mapping[str, Any] | MetricsJson
    reason: str = ""

    @property
    def where(self) -> str:
        """The file in messages."""
        return file_in_folder(self.source) if isinstance(self.source, Path) else self.team


@dataclass(frozen=True)
class EntryOutOfCompetition:
    """An entry out of competition; `estimates` holds the ranked metrics for which it has a value.

    `without_rows` marks values of a metrics.json that could not be checked.
    """

    team: str
    reason: str
    estimates: Mapping[str, Estimate]
    without_rows: bool = False


def out_of_competition_source(text: str) -> OutOfCompetitionSource:
    """Read NAME=FILE.json[:REASON]; argparse.ArgumentTypeError for any other text.

    The reason begins after the first `.json:`, so that paths and reasons may hold colons.
    """
    name, _, rest = text.partition("=")
    stem, suffix, reason = rest.partition(f"{_SUFFIX}:")
    path = f"{stem}{_SUFFIX}" if suffix else rest
    if not name.strip() or not path.endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=FILE.json or NAME=FILE.json:REASON")
    return OutOfCompetitionSource(name.strip(), Path(path), reason.strip())


def entry_of_metrics(source: OutOfCompetitionSource, teams: ComparableTeams) -> EntryOutOfCompetition:
    """The entry of a metrics.json that is among `teams`, under its name."""
    (row,) = (team for team in teams.teams if team.team == source.team)
    values = {name: row.estimates[name] for name in teams.profile.metrics if name in row.estimates}
    return EntryOutOfCompetition(source.team, source.reason, values, without_rows=not row.rows)


def is_of_observers(content: Any) -> bool:
    """Whether this is the content of the observers.json of `hecktor study observers`."""
    return isinstance(content, Mapping) and content.get("study") == "observers"


def observers_entry(
    source: OutOfCompetitionSource, content: Mapping[str, Any], teams: ComparableTeams
) -> EntryOutOfCompetition:
    """The entry of an observers.json. Annotators have no reference of their own, so their cases are not compared.

    Raises HecktorError: the task has no masks, or an impossible figure.
    """
    profile, where = teams.profile, source.where
    masks = next((one for one in profile.answers.values() if one.answer.kind == "mask"), None)
    if masks is None:
        raise HecktorError(where, "agreement of annotators", f"a metrics.json of task {profile.algorithm.name}")
    document = check_document(content, ObserversDocument, where)
    options = teams.teams[0].provenance["options"]
    rules = options.get(masks.answer.name, {}) if profile.has_several_answers else options
    stated = {"volume_unit": "mm3"}
    same = {
        f"{masks.prefix}{name}": estimate_of(document.aggregates[name])
        for name, metric in masks.metrics.items()
        if name in document.aggregates and all(rules.get(rule) == stated.get(rule) for rule in metric.rules)
    }
    check_ranges(same, profile, where)
    values = {name: estimate for name, estimate in same.items() if name in profile.metrics}
    return EntryOutOfCompetition(source.team, source.reason, values)


def mean_entry(table: TeamsTable, draws: Draws | None) -> EntryOutOfCompetition:
    """The mean of the ranked teams by each metric, with the percentiles of that mean where there are `draws`."""
    estimates = {}
    for name, values in table.values.items():
        ends: tuple[float | None, float | None] = (None, None)
        if draws is not None:
            ends = interval(np.mean([draws[team, name] for team in table.teams], axis=0))
        estimates[name] = Estimate(float(np.mean(values)), *ends)
    return EntryOutOfCompetition(
        MEAN_OF_TEAMS, f"{len(table.teams)} ranked team{'s' * (len(table.teams) > 1)}", estimates
    )


def placed_entries(entries: Sequence[EntryOutOfCompetition], teams: ComparableTeams) -> list[dict[str, Any]]:
    """The entries for the leaderboard, the best first; `place` is the number of ranked teams above the entry."""
    metrics = teams.profile.metrics
    content = [
        {
            "team": entry.team,
            "reason": entry.reason,
            **({"without_rows": True} if entry.without_rows else {}),
            "metrics": aggregates({name: entry.estimates.get(name, _NO_VALUE) for name in metrics}),
            "place": place(entry, teams),
        }
        for entry in entries
    ]
    return sorted(content, key=lambda entry: int(str(entry["place"])))


def place(entry: EntryOutOfCompetition, teams: ComparableTeams) -> int:
    """The number of ranked teams above an entry when this entry alone joins the official ranking.

    Equal teams stand above it. An entry without a value for a metric that decides the ranking stands below all teams.
    """
    ranking, ranked = teams.profile.ranking, table_of(teams)
    values = {name: entry.estimates.get(name, _NO_VALUE).value for name in ranking.official_metrics}
    if None in values.values():
        return len(ranked.teams)
    columns = {name: np.append(ranked.values[name], float(value or 0)) for name, value in values.items()}
    table = TeamsTable((*ranked.teams, entry.team), columns, ranked.profiles)
    ranks = scheme_ranks(table, ranking.schemes[ranking.official], ranking.ties).ranks
    return int((ranks[:-1] <= ranks[-1]).sum())
