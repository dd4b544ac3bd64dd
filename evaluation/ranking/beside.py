"""Rows out of competition: baselines, withdrawn teams, ensembles, annotators, the mean of all teams.

A row is shown in the place of its value, without a rank, and changes no rank, tau, Borda count or p-value.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.files import read_json
from evaluation.editions.task import TaskProfile
from evaluation.ranking.comparisons import Draws
from evaluation.ranking.contest import Contest, contest, require_rows
from evaluation.ranking.rank import TeamsTable, standing
from evaluation.results.metrics_json import MAX_METRICS_BYTES, TeamMetrics, aggregates, estimate_of, parse_metrics
from evaluation.results.recount import check_ranges
from evaluation.results.shape import check_figures
from evaluation.statistics.bootstrap import Estimate, Estimates, interval

MEAN_OF_TEAMS: Final = "mean of all teams"
_SUFFIX: Final = ".json"
_NO_VALUE: Final = Estimate(None, None, None)
# Aggregates of `study observers` that mean the same as the metric of a task, with the rules that both must share.
_SAME_MEANING: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gtvp_dsc_agg", "gtvn_dsc_agg", "dsc_agg_mean"), ("volume_unit",)),
    **dict.fromkeys(("gtvp_hd95_median_mm", "gtvn_hd95_median_mm"), ("hd95", "surface_weights")),
    **dict.fromkeys(("gtvp_asd_median_mm", "gtvn_asd_median_mm"), ("surface_weights",)),
}
_RULES_OF_OBSERVERS: Final = {"volume_unit": "mm3", "surface_weights": "voxel"}  # unless the file states others


@dataclass(frozen=True)
class BesideFile:
    """What `--beside NAME=FILE[:REASON]` names; the reason may be empty."""

    team: str
    path: Path
    reason: str = ""


@dataclass(frozen=True)
class BesideContent:
    """The content of such a file; `where` names it in errors."""

    team: str
    content: Any
    where: str
    reason: str = ""


@dataclass(frozen=True)
class BesideRow:
    """A row out of competition; `estimates` holds the ranked metrics for which it has a value.

    `without_rows` marks values of a metrics.json that could not be checked.
    """

    team: str
    reason: str
    estimates: Mapping[str, Estimate]
    without_rows: bool = False


def beside_file(text: str) -> BesideFile:
    """Read NAME=FILE.json[:REASON]; argparse.ArgumentTypeError for any other text.

    The reason begins after the first `.json:`, so that paths and reasons may hold colons.
    """
    name, _, rest = text.partition("=")
    stem, suffix, reason = rest.partition(f"{_SUFFIX}:")
    path = f"{stem}{_SUFFIX}" if suffix else rest
    if not name.strip() or not path.endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=FILE.json or NAME=FILE.json:REASON")
    return BesideFile(name.strip(), Path(path), reason.strip())


def read_beside(file: BesideFile, profile: TaskProfile, first: TeamMetrics, *, without_rows: bool = False) -> BesideRow:
    """The row of a metrics.json, or of the observers.json of `hecktor study observers`.

    `first` is one of the ranked teams, with rows if any has them. `without_rows` accepts a metrics.json whose values
    cannot be checked. Annotators have no reference of their own, so their cases are not compared.

    Raises:
        HecktorError: no such file, or results of another task, edition, rules, set of cases or reference.
    """
    content = read_json(file.path, error=HecktorError, max_bytes=MAX_METRICS_BYTES)
    source = BesideContent(file.team, content, f"{file.path.parent.name}/{file.path.name}", file.reason)
    return beside_row(source, profile, first, without_rows=without_rows)


def beside_row(
    source: BesideContent, profile: TaskProfile, first: TeamMetrics, *, without_rows: bool = False
) -> BesideRow:
    """`read_beside` for the content of such a file."""
    content, where = source.content, source.where
    if isinstance(content, dict) and content.get("study") == "observers":
        return BesideRow(source.team, source.reason, _of_observers(content, where, profile, first))
    row = parse_metrics(content, where, source.team)
    if not without_rows:
        require_rows([row])
    contest(profile, [first, row])
    known = {name: row.estimates[name] for name in profile.metrics if name in row.estimates}
    return BesideRow(source.team, source.reason, known, without_rows=not row.rows)


def check_team_names(names: Sequence[str]) -> None:
    """Raise HecktorError if a name stands for two rows of a leaderboard."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} stands twice, expected a name for each team (--names)")


def _of_observers(
    content: Mapping[str, Any], where: str, profile: TaskProfile, first: TeamMetrics
) -> dict[str, Estimate]:
    masks = next((one for one in profile.answers.values() if one.answer.kind == "mask"), None)
    figures = content.get("aggregates")
    if masks is None or not isinstance(figures, dict):
        raise HecktorError(where, "agreement of annotators", f"a metrics.json of task {profile.algorithm.name}")
    options = profile.completed(first.provenance.get("options"))
    rules = options.get(masks.answer.name, {}) if profile.has_several_answers else options
    stated = {**_RULES_OF_OBSERVERS, **content}
    same = {}
    for name, shared in _SAME_MEANING.items():
        if name in figures and all(rules.get(rule) == stated.get(rule) for rule in shared):
            check_figures(figures[name], f"{where}: {name}")
            same[f"{masks.prefix}{name}"] = estimate_of(figures[name])
    check_ranges(same, profile, where)
    return {name: estimate for name, estimate in same.items() if name in profile.metrics}


def mean_row(table: TeamsTable, draws: Draws | None) -> BesideRow:
    """The mean of the ranked teams by each metric, with the interval of that mean where there are `draws`."""
    estimates = {}
    for name, values in table.values.items():
        ends: tuple[float | None, float | None] = (None, None)
        if draws is not None:
            ends = interval(np.mean([draws[team, name] for team in table.teams], axis=0))
        estimates[name] = Estimate(float(np.mean(values)), *ends)
    return BesideRow(MEAN_OF_TEAMS, f"{len(table.teams)} ranked team{'s' * (len(table.teams) > 1)}", estimates)


def beside_entries(rows: Sequence[BesideRow], entrants: Contest) -> list[dict[str, Any]]:
    """The rows for the leaderboard, the best first; `place` is the number of ranked teams above the row."""
    metrics = entrants.profile.metrics
    entries = [
        {
            "team": row.team,
            "reason": row.reason,
            **({"without_rows": True} if row.without_rows else {}),
            "metrics": aggregates(Estimates({name: row.estimates.get(name, _NO_VALUE) for name in metrics}, 0)),
            "place": place(row, entrants),
        }
        for row in rows
    ]
    return sorted(entries, key=lambda entry: entry["place"])


def place(row: BesideRow, entrants: Contest) -> int:
    """The number of ranked teams above a row when this row alone joins the official ranking.

    Equal teams stand above it. A row without a value for a metric that decides the ranking stands below all teams.
    """
    ranking = entrants.profile.ranking
    values = {name: row.estimates.get(name, _NO_VALUE).value for name in ranking.official_metrics}
    if None in values.values():
        return len(entrants.ranked)
    columns = {name: np.append(entrants.table.values[name], float(value or 0)) for name, value in values.items()}
    table = TeamsTable((*entrants.table.teams, row.team), columns, entrants.profile.metrics)
    ranks = standing(table, ranking.schemes[ranking.official], ranking.ties).ranks
    return int((ranks[:-1] <= ranks[-1]).sum())
