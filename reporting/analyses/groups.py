"""Groups of patients, by centre or by a column of a table, and the ranked metrics of each group."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from contract.errors import HecktorError
from contract.patient import format_names
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.results.documents import CentreBlock
from evaluation.results.metrics_json import compute_group_blocks
from evaluation.results.scored import collect_sum_weights, join_metrics, list_counted_cases
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.sources import list_entries
from reporting.analyses.tables import is_in_mm, round_figure

CENTRE: Final = "centre"
ALL_CASES: Final = "all"
MEAN: Final = "mean of all teams"
NO_P: Final = (
    "No p-values, as in the HECKTOR 2021 overview: groups also differ in tumour volume, follow-up and scanner, and a "
    "test could not separate these effects from the effect of the group."
)
MAX_GROUPS: Final = 12
# A group of a single patient is not compared.
MIN_CASES: Final = 2
# The path of a table, and the name of one of its columns or several names joined by commas.
TableColumn: TypeAlias = tuple[Path, str]


@dataclass(frozen=True)
class Grouping:
    """Groups of cases with their metrics.

    Attributes:
        title: The table's column, or "centre".
        group_by_case: The group of each case; a case without a group is absent.
        blocks: The metrics of each group by team, as metrics.json stores the metrics of centres.
    """

    title: str
    group_by_case: Mapping[str, str]
    blocks: Mapping[str, Mapping[str, CentreBlock]]

    @property
    def key(self) -> str:
        """Key of the groups in the rows of an analysis."""
        return CENTRE if self.title == CENTRE else "group"

    @property
    def heading(self) -> str:
        """Heading of the groups in tables."""
        return f"{self.title[0].upper()}{self.title[1:]}"

    @property
    def name(self) -> str:
        """Name of the analyses of metrics by group."""
        return "centres" if self.title == CENTRE else f"by-{make_slug(self.title)}"


def make_slug(title: str) -> str:
    """Make a part of a file name from a title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "group"


def add_groups(results: Sequence[TaskResults], columns: Sequence[TableColumn]) -> list[TaskResults]:
    """Add the groups of cases by columns of tables with `PatientID`. A case with an empty cell has no group.

    Column names joined by commas are combined: each combination of the columns' values is a group.

    Raises:
        HecktorError: The results have no rows, or two groupings have the same name, or a table does not have the
            column, names a case twice, contains no case of the results, or does not have 2 to 12 groups.
    """
    cases = {case for task in results for case in task.scored_cases}
    if columns and not cases:
        raise HecktorError("--groups", "results without rows", "metrics.json files written without --no-rows")
    groups = {column: _read_groups(path, column, cases) for path, column in columns}
    _check_unique_names([column for _, column in columns])
    return [replace(task, groups=groups) for task in results]


def _check_unique_names(columns: Sequence[str]) -> None:
    """Raise `HecktorError` if two columns give their analyses the same name, or if a column is called "centre"."""
    slugs = [make_slug(column) for column in columns]
    # The distances of a grouping are a separate analysis, so the columns "Age" and "Age distances" would share a name.
    names = [CENTRE, *slugs, *(f"{slug}-distances" for slug in slugs)]
    if len(set(names)) < len(names):
        raise HecktorError("--groups", f"columns {', '.join(columns)}", "different columns, none of them called centre")


def _read_groups(path: Path, column: str, cases: set[str]) -> dict[str, str]:
    """Read the group of each case from the columns that `column` names.

    Args:
        path: The table.
        column: Name of a column or, if the table has no such column, several names separated by commas. Each
            combination of the columns' values is a group.
        cases: The scored cases; other patients of the table are left out.
    """
    parts = [part.strip() for part in column.split(",")]
    table = read_table_with(path, dict.fromkeys((column, *parts), ()), HecktorError)
    columns = [column] if column in table.header else parts
    for name in (ID_COLUMN, *columns):
        if name not in table.header:
            raise HecktorError(table.name, f"columns {', '.join(table.header)[:200]}", f"a column {name}")
    values_by_case: dict[str, list[str]] = {}
    for index, row in enumerate(table.rows):
        case = row[ID_COLUMN].strip()
        if case in values_by_case:
            raise HecktorError(table.locate(index), f"{case} twice", "one row per patient")
        values_by_case[case] = [row[name].strip() for name in columns]
    if not cases & set(values_by_case):
        actual = f"patients {format_names(sorted(values_by_case))}"
        raise HecktorError(table.name, actual, f"some of {format_names(sorted(cases))}")
    grouped = {case: values for case, values in values_by_case.items() if case in cases and all(values)}
    for index, name in enumerate(columns):
        _check_groups(table.name, name, {values[index] for values in grouped.values()})
    return {case: ", ".join(values) for case, values in grouped.items()}


def _check_groups(table: str, column: str, groups: set[str]) -> None:
    """Raise `HecktorError` if a column does not have 2 to 12 groups, or if the name of a group is reserved."""
    if ALL_CASES in groups:
        raise HecktorError(
            table, f"the group {ALL_CASES!r} of {column}", "another name: this one is reserved for all cases"
        )
    if not 2 <= len(groups) <= MAX_GROUPS:
        actual = f"{len(groups)} different value{'s' * (len(groups) != 1)} of {column} among the scored cases"
        raise HecktorError(table, actual, f"2 to {MAX_GROUPS} groups")


def create_grouping(results: TaskResults, column: str, group_by_case: Mapping[str, str]) -> Grouping:
    """Group the cases by a column and compute the metrics of each group for every team that has rows."""
    sum_weights = collect_sum_weights(results.profile.metrics)
    blocks = {}
    for team, answers in results.answers.items():
        cases = list_counted_cases(answers.values())
        metrics = join_metrics(cases, answers.values(), sum_weights)
        blocks[team] = compute_group_blocks(cases, group_by_case, metrics)
    return Grouping(column, group_by_case, blocks)


def analyse_groups(results: TaskResults) -> list[Analysis]:
    """Compare the ranked metrics of the centres, and of the groups of each further grouping.

    Distances have separate analyses. A grouping without a group of at least two cases is left out.
    """
    by_centre = Grouping(
        CENTRE, results.centres, {team: metrics.centres for team, metrics in results.all_results.items()}
    )
    groupings = [by_centre, *(create_grouping(results, column, groups) for column, groups in results.groups.items())]
    return [analysis for grouping in groupings for analysis in _analyse_grouping(results, grouping)]


def _analyse_grouping(results: TaskResults, grouping: Grouping) -> list[Analysis]:
    """Compare the groups of one grouping by metrics without a unit and by distances; empty analyses are left out."""
    team_blocks = [grouping.blocks.get(team, {}) for team in results.teams]
    # Where missing answers are left out, teams have different numbers of cases.
    names = sorted({name for blocks in team_blocks for name in blocks})
    sizes = {name: max(blocks[name].cases for blocks in team_blocks if name in blocks) for name in names}
    groups = {name: count for name, count in sizes.items() if count >= MIN_CASES}
    if not groups:
        return []
    analyses = []
    for suffix in ("", "-distances"):
        titles = results.board.metrics.items()
        metrics = {name: title for name, title in titles if is_in_mm(name, results) == bool(suffix)}
        analyses.append(_compare_groups(results, grouping, groups, suffix, metrics))
    return [analysis for analysis in analyses if analysis.rows]


def _compare_groups(
    results: TaskResults, grouping: Grouping, groups: Mapping[str, int], suffix: str, metrics: Mapping[str, str]
) -> Analysis:
    """List the metrics of all teams in each group and in all cases. `suffix` is `-distances` for distances."""
    ranked = results.board.order
    unranked = [team for team in results.out_of_competition if grouping.blocks.get(team)]
    names = {team: f"{team} (first)" if team == ranked[0] else team for team in (*ranked, *unranked)}
    rows: list[dict[str, Any]] = []
    for metric, title in metrics.items():
        for group, cases in {**groups, ALL_CASES: results.teams[ranked[0]].cases.used}.items():
            shared = {"metric": title, grouping.key: group, "cases": cases}
            values = {team: _get_value(results, grouping, team, group, metric) for team in names}
            for team, name in names.items():
                value = values[team]
                rows.append(
                    {**shared, "of": name, "team": team, "value": round_figure(value), "teams": int(value is not None)}
                )
            rows.append({**shared, "of": MEAN, **_summarise_values([values[team] for team in ranked])})
    # Other metrics keep a row for each group, so that all panels show the same.
    known = {row["metric"] for row in rows if row["value"] is not None}
    return Analysis(
        name=f"{grouping.name}{suffix}",
        title=f"{'Distances' if suffix else 'Metrics'} by {grouping.title}",
        caption=(
            f"Each ranked metric by {grouping.key}: a point for each team and entry out of competition, and the mean "
            "of all ranked teams with a line from the lowest to the highest of their values. Infinite and undefined "
            "values have no point and are left out of the mean. Groups of a single case are left out."
        ),
        columns={
            "metric": "Metric",
            grouping.key: grouping.heading,
            "cases": "Cases",
            "of": "Of",
            "team": "Team",
            "value": "Value",
            "low": "Lowest of the teams",
            "high": "Highest",
            "teams": "Teams with a value",
        },
        rows=[row for row in rows if row["metric"] in known],
        chart={"kind": "intervals", "y": grouping.key, "x": "value", "low": "low", "high": "high", "facet": "metric"},
        notes=(NO_P, *_describe_absent_groups(results, grouping)),
        source="HECKTOR 2021 overview, Table 4",
    )


def _summarise_values(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the mean, the lowest and the highest of the known values, and their number."""
    known = [value for value in values if value is not None]
    if not known:
        return {"value": None, "low": None, "high": None, "teams": 0}
    mean = sum(known) / len(known)
    return {
        "value": round_figure(mean),
        "low": round_figure(min(known)),
        "high": round_figure(max(known)),
        "teams": len(known),
    }


def _get_value(results: TaskResults, grouping: Grouping, team: str, group: str, metric: str) -> float | None:
    """Return a metric of one group's cases or of all cases; None if it is undefined, infinite or absent."""
    if group == ALL_CASES:
        value = results.value(team, metric)
    else:
        block = grouping.blocks.get(team, {}).get(group)
        figures = None if block is None else block.aggregates.get(metric)
        value = None if figures is None else figures.value
    return value if value is not None and math.isfinite(value) else None


def _describe_absent_groups(results: TaskResults, grouping: Grouping) -> list[str]:
    """Describe the teams without values by group, and the scored cases without a group."""
    known = {team for team, blocks in grouping.blocks.items() if blocks}
    without_values = [name for name in list_entries([results]) if name not in {*known, MEAN}]
    reason = "their metrics.json with centres is absent" if grouping.title == CENTRE else "they have no rows"
    lines = (
        [f"Without values by {grouping.title}, because {reason}: {', '.join(without_values)}."]
        if without_values
        else []
    )
    cases = results.scored_cases - set(grouping.group_by_case)
    without = f"No {grouping.title}: {len(cases)} case{'s' * (len(cases) != 1)}."
    return [*lines, without] if cases and grouping.group_by_case else lines
