"""Tables that `hecktor rank` reads: printed values, such as those of a paper, and descriptors of methods."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from contract.documents import find_version
from contract.errors import Finding, HecktorError
from contract.io.files import remove_apostrophes
from evaluation.editions.document import list_scheme_metrics
from evaluation.editions.profile import TaskProfile
from evaluation.inputs.tables import Table, parse_number, read_table, read_table_with
from evaluation.ranking.out_of_competition import OutOfCompetitionSource, UnrankedEntry, entry_of_metrics
from evaluation.results.documents import METRICS_FORMAT, CaseCounts, MetricFigures, MetricsJson, Provenance
from evaluation.results.task import TaskResults
from evaluation.results.teams import check_team_names
from evaluation.results.validation import check_ranges

TEAM: Final = "team"
REASON: Final = "out_of_competition"
WITHOUT_ROWS: Final = "printed values have no per-case rows, so significance is not tested either"


def read_printed(path: Path, profile: TaskProfile) -> tuple[TaskResults, list[UnrankedEntry], dict[str, str]]:
    """Read the teams of a table of printed values, its rows out of competition, and its name and checksum.

    The columns are `team`, the metrics, and optionally `out_of_competition`; others are not used, with a warning.
    The column of a metric has its name, its title, or `<name>_value` as in leaderboard.csv. Metrics without a column
    are left out, with the schemes that need them. An empty value leaves a team without a rank.

    Raises HecktorError: no column `team`, none of a metric that the official ranking needs, or an impossible value.
    """
    spellings = {name: (f"{name}_value", metric.title) for name, metric in profile.metrics.items()}
    table = read_table_with(path, {TEAM: (), REASON: (), **spellings}, HecktorError)
    shown = _of_columns(profile, table)
    rows = [(_name(row, table.locate(index)), row, table.locate(index)) for index, row in enumerate(table.rows)]
    check_team_names([name for name, *_ in rows])
    reasons = {name: row.get(REASON, "").strip() for name, row, _ in rows}
    loaded = TaskResults(shown, {name: _metrics(row, shown, where) for name, row, where in rows})
    beside = [entry_of_metrics(OutOfCompetitionSource(name, path, why), loaded) for name, why in reasons.items() if why]
    unused = [column for column in dict.fromkeys(table.header) if column not in {"", TEAM, REASON, *shown.metrics}]
    if unused:
        warning = Finding(table.name, f"columns {', '.join(unused)}", "metrics of the edition", "not used")
        sys.stderr.write(f"warning: {warning}\n")
    origin = {"table": table.name, "table_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return loaded.select([name for name, why in reasons.items() if not why]), beside, origin


def _name(row: Mapping[str, str], where: str) -> str:
    name = remove_apostrophes(row[TEAM].strip())
    if not name:
        raise HecktorError(where, "no team", "its name")
    return name


def _metrics(row: Mapping[str, str], profile: TaskProfile, where: str) -> MetricsJson:
    values = {metric: _value(row[metric], f"{where}: {metric}") for metric in profile.metrics}
    figures = {metric: MetricFigures.of(value) for metric, value in values.items()}
    check_ranges(figures, profile, where)
    origin = Provenance(
        format=METRICS_FORMAT,
        version=find_version("hecktor"),
        task=profile.algorithm.name,
        edition=profile.edition,
        options={},
    )
    return MetricsJson(aggregates=figures, cases=CaseCounts(), warnings=[], provenance=origin)


def _of_columns(profile: TaskProfile, table: Table) -> TaskProfile:
    """Reduce the profile to the metrics of the table and the ranking schemes that need only these."""
    for column in (TEAM, *profile.ranking.official_metrics):
        if column not in table.header:
            title = f' or "{profile.metrics[column].title}"' if column in profile.metrics else ""
            raise HecktorError(table.name, f"columns {', '.join(table.header)[:200]}", f"a column {column}{title}")
    metrics = {name: metric for name, metric in profile.metrics.items() if name in table.header}
    schemes = {
        name: scheme
        for name, scheme in profile.ranking.schemes.items()
        if set(list_scheme_metrics(scheme)) <= set(metrics)
    }
    return replace(profile, metrics=metrics, ranking=profile.ranking.model_copy(update={"schemes": schemes}))


def _value(text: str, where: str) -> float | None:
    return math.inf if text.strip() == "inf" else parse_number(text, where, "a number", HecktorError)


def read_methods(path: Path, teams: Collection[str]) -> dict[str, dict[str, str]]:
    """Read the descriptors of each team's method by column, from a table with the column `team`.

    A descriptor that a team lacks is empty.

    Raises HecktorError: no such column or no other one, a team twice, or one that is not on the leaderboard.
    """
    descriptors = dict.fromkeys(filter(None, read_table(path, HecktorError, ()).header), ())
    table = read_table_with(path, {**descriptors, TEAM: ()}, HecktorError)
    columns = [column for column in dict.fromkeys(table.header) if column not in {TEAM, ""}]
    if TEAM not in table.header or not columns:
        raise HecktorError(table.name, f"columns {', '.join(table.header)[:200]}", "a column team and descriptors")
    names = [remove_apostrophes(row[TEAM].strip()) for row in table.rows]
    for index, name in enumerate(names):
        if name not in teams or name in names[:index]:
            found = f"team {name!r:.100}{' twice' if name in teams else ''}"
            raise HecktorError(table.locate(index), found, f"one row for each of {', '.join(teams)}"[:300])
    rows = dict(zip(names, table.rows, strict=True))
    return {team: {column: rows[team][column].strip() if team in rows else "" for column in columns} for team in teams}
