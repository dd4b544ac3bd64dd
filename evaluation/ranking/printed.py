"""Tables that `hecktor rank` reads: printed values, for example from a paper, and descriptors of methods."""

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
from contract.io.tables import remove_apostrophes
from evaluation.editions.document import list_scheme_metrics
from evaluation.editions.profile import TaskProfile
from evaluation.inputs.tables import Table, parse_number, read_table, read_table_with
from evaluation.ranking.out_of_competition import OutOfCompetitionSource, UnrankedEntry, make_metrics_entry
from evaluation.results.documents import METRICS_FORMAT, CaseCounts, MetricFigures, MetricsJson, Provenance
from evaluation.results.task import TaskResults
from evaluation.results.teams import check_team_names
from evaluation.results.validation import check_ranges

TEAM: Final = "team"
REASON: Final = "out_of_competition"
WITHOUT_ROWS: Final = "printed values have no per-case rows, so significance is not tested either"


def read_printed(path: Path, profile: TaskProfile) -> tuple[TaskResults, list[UnrankedEntry], dict[str, str]]:
    """Read a table of printed values.

    The columns are `team`, the metrics, and optionally `out_of_competition`; other columns are not used, with a
    warning. The column of a metric has its name, its title, or `<name>_value` as in leaderboard.csv. Metrics without a
    column are left out, with the schemes that need them. An empty value leaves a team without a rank.

    Returns:
        The teams, the entries out of competition, and the table's name and checksum for the provenance.

    Raises:
        HecktorError: The column `team` or the column of a metric that decides is missing, or a value is impossible.
    """
    spellings = {name: (f"{name}_value", metric.title) for name, metric in profile.metrics.items()}
    table = read_table_with(path, {TEAM: (), REASON: (), **spellings}, HecktorError)
    shown = _select_columns(profile, table)
    rows = [(_read_name(row, table.locate(index)), row, table.locate(index)) for index, row in enumerate(table.rows)]
    check_team_names([name for name, *_ in rows])
    loaded = TaskResults(shown, {name: _make_metrics(row, shown, where) for name, row, where in rows})
    reasons = {name: row.get(REASON, "").strip() for name, row, _ in rows}
    outside = [
        make_metrics_entry(OutOfCompetitionSource(name, path, reason), loaded)
        for name, reason in reasons.items()
        if reason
    ]
    unused = [column for column in dict.fromkeys(table.header) if column not in {"", TEAM, REASON, *shown.metrics}]
    if unused:
        warning = Finding(table.name, f"columns {', '.join(unused)}", "metrics of the edition", "not used")
        sys.stderr.write(f"warning: {warning}\n")
    origin = {"table": table.name, "table_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return loaded.select([name for name, reason in reasons.items() if not reason]), outside, origin


def _read_name(row: Mapping[str, str], where: str) -> str:
    name = remove_apostrophes(row[TEAM].strip())
    if not name:
        raise HecktorError(where, "no team", "the name of the team")
    return name


def _make_metrics(row: Mapping[str, str], profile: TaskProfile, where: str) -> MetricsJson:
    """Return the values of a row as the results of a team without rows."""
    values = {metric: _parse_value(row[metric], f"{where}: {metric}") for metric in profile.metrics}
    figures = {metric: MetricFigures.from_values(value) for metric, value in values.items()}
    check_ranges(figures, profile, where)
    origin = Provenance(
        format=METRICS_FORMAT,
        version=find_version("hecktor"),
        task=profile.algorithm.name,
        edition=profile.edition,
        options={},
    )
    return MetricsJson(aggregates=figures, cases=CaseCounts(), warnings=[], provenance=origin)


def _select_columns(profile: TaskProfile, table: Table) -> TaskProfile:
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


def _parse_value(text: str, where: str) -> float | None:
    return math.inf if text.strip() == "inf" else parse_number(text, where, "a number", HecktorError)


def read_methods(path: Path, teams: Collection[str]) -> dict[str, dict[str, str]]:
    """Read the descriptors of each team's method by column, from a table with the column `team`.

    A missing descriptor is empty.

    Raises:
        HecktorError: The table does not have the column `team` and another column, or a team is listed twice or is not
            on the leaderboard.
    """
    descriptors = dict.fromkeys(filter(None, read_table(path, HecktorError, ()).header), ())
    table = read_table_with(path, {**descriptors, TEAM: ()}, HecktorError)
    columns = [column for column in dict.fromkeys(table.header) if column not in {TEAM, ""}]
    if TEAM not in table.header or not columns:
        raise HecktorError(table.name, f"columns {', '.join(table.header)[:200]}", "a column team and descriptors")
    names = [remove_apostrophes(row[TEAM].strip()) for row in table.rows]
    for index, name in enumerate(names):
        if name not in teams or name in names[:index]:
            actual = f"team {name!r:.100}{' twice' if name in teams else ''}"
            raise HecktorError(table.locate(index), actual, f"one row for each of {', '.join(teams)}"[:300])
    rows = dict(zip(names, table.rows, strict=True))
    return {team: {column: rows[team][column].strip() if team in rows else "" for column in columns} for team in teams}
