"""The rows of one answer of all teams, aligned by case, and titles and figures that several analyses share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from contract.editions import AnswerSpec
from evaluation.metrics.classification import list_class_metrics, with_all_classes
from evaluation.metrics.masks import list_mask_metrics
from evaluation.metrics.overlap import Floats
from evaluation.metrics.rules import MaskRules, Metric, RiskRules, is_counted
from evaluation.metrics.survival import RISK_METRICS
from evaluation.results.board import Leaderboard
from evaluation.results.task import TaskResults
from evaluation.statistics.intervals import quartiles

# "dsc agg" comes before "dsc", which it contains, so that it is replaced first.
_ABBREVIATIONS: Final = {"borda": "Borda", "dsc agg": "aggregated DSC", "dsc": "DSC", "hd95": "HD95"}


def collect_metric_titles(results: TaskResults) -> dict[str, str]:
    """Return the title of every metric: first the ranked metrics with the leaderboard's titles, then the others."""
    ranked = results.board.metrics
    names = dict.fromkeys(name for metrics in results.teams.values() for name in metrics.aggregates)
    return ranked | {name: get_metric_title(name, results) for name in names if name not in ranked}


def get_metric_title(name: str, results: TaskResults) -> str:
    """Return the title of a metric that does not rank, or its name if the metric is unknown."""
    answer_and_metric = _find_metric(name, results)
    if answer_and_metric is None:
        return name
    answer, metric = answer_and_metric
    heading = f"{get_answer_title(answer)}: " if _get_prefix(results, answer) else ""
    return f"{heading}{metric.title}"


def is_in_mm(name: str, results: TaskResults) -> bool:
    """Return whether a metric is a distance in mm."""
    answer_and_metric = _find_metric(name, results)
    return answer_and_metric is not None and answer_and_metric[1].unit == "mm"


def get_scheme_title(name: str, board: Leaderboard) -> str:
    """Return the title of a ranking scheme: the title of its metric if it sorts by one, otherwise its name in words."""
    if name in board.metrics:
        return board.metrics[name]
    title = name.replace("_", " ")
    for abbreviation, text in _ABBREVIATIONS.items():
        title = title.replace(abbreviation, text)
    return title


def get_scored_answer(results: TaskResults, answer: AnswerSpec) -> AnswerSpec:
    """Return an answer with the direction by which its risks were scored; `--option direction` may have changed it."""
    rules = results.profile.answers[answer.name].rules
    return answer.model_copy(update={"direction": rules.direction}) if isinstance(rules, RiskRules) else answer


def get_answer_title(answer: AnswerSpec) -> str:
    """Return the name of an answer for a heading, such as `T stage`, and `Segmentation` for masks."""
    if answer.kind == "mask":
        return "Segmentation"
    first, *words = answer.socket.title.split()
    return " ".join([first, *(word.lower() if word.istitle() and len(word) > 1 else word for word in words)])


def _find_metric(name: str, results: TaskResults) -> tuple[AnswerSpec, Metric] | None:
    for answer in results.task.answers:
        prefix = _get_prefix(results, answer)
        for metric in _list_metrics(answer):
            if f"{prefix}{metric.name}" == name:
                return answer, metric
    return None


def _get_prefix(results: TaskResults, answer: AnswerSpec) -> str:
    """Return the prefix of the names of the answer's metrics; it is empty in a task with one answer."""
    return results.profile.answers[answer.name].prefix if results.profile.has_several_answers else ""


def _list_metrics(answer: AnswerSpec) -> tuple[Metric, ...]:
    """List the metrics of an answer under all possible rules."""
    if answer.kind == "mask":
        return list_mask_metrics("both")
    return (
        RISK_METRICS
        if answer.kind == "risk"
        else (*list_class_metrics(answer), *list_class_metrics(with_all_classes(answer)))
    )


Row: TypeAlias = Mapping[str, Any]
BOX_HEADINGS: Final = {
    "values": "Values",
    "low": "Lower whisker",
    "q1": "Lower quartile",
    "median": "Median",
    "q3": "Upper quartile",
    "high": "Upper whisker",
    "mean": "Mean",
    "outliers": "Outliers",
}
BOX_CHART: Final = {"kind": "boxes", **{name: name for name in BOX_HEADINGS if name != "values"}}
_DIGITS: Final = 4
_WHISKER: Final = 1.5


@dataclass(frozen=True)
class AnswerRows:
    """Rows of one answer: teams in the leaderboard's order, cases in alphabetical order.

    Attributes:
        answer: The declared answer, with the direction by which risks were scored.
        heading: Start of each title, empty for a task with one answer.
        names: The teams that have rows; results written with `--no-rows` have no rows.
        cases: Every case that has a row of at least one team.
        rows: The rows of each team; None for a case without a row of the team, or that does not count for the team.
        centres: The centre of each case whose centre is known.
        mask_rules: The rules of the masks' evaluation, None for other answers.
    """

    answer: AnswerSpec
    heading: str
    names: tuple[str, ...]
    cases: tuple[str, ...]
    rows: tuple[tuple[Row | None, ...], ...]
    centres: Mapping[str, str]
    mask_rules: MaskRules | None = None

    def make_case_cells(self, case: str) -> dict[str, str | None]:
        """Make the cells of a case and, if centres are known, of its centre. A reader filters the page by them."""
        return {"case": case, **({"centre": self.centres.get(case)} if self.centres else {})}

    @property
    def case_headings(self) -> dict[str, str]:
        """Headings of the cells that `make_case_cells` makes."""
        return {"case": "Case", **({"centre": "Centre"} if self.centres else {})}

    def make_name(self, name: str) -> str:
        """Make the name of an analysis of this answer, which is unique within the task."""
        return f"{self.answer.name}-{name}" if self.heading else name

    def make_title(self, text: str) -> str:
        """Make the title of an analysis of this answer."""
        return f"{self.heading}{text}"

    def get_numbers(self, key: str) -> Floats:
        """Return one figure of every row, shape (teams, cases). It is NaN where it is absent or null."""
        values = [[None if row is None else row.get(key) for row in rows] for rows in self.rows]
        # NumPy reads None as NaN.
        return np.array(values, dtype=np.float64).reshape(len(self.names), len(self.cases))

    def get_reference(self, key: str) -> Floats:
        """Return a figure of the reference, which all teams share, shape (cases,). It is NaN where no team has it."""
        values = np.full(len(self.cases), np.nan)
        for rows in self.rows:
            for index in np.flatnonzero(np.isnan(values)):
                values[index] = _read_number(rows[index], key)
        return values


def _read_number(row: Row | None, key: str) -> float:
    value = None if row is None else row.get(key)
    return math.nan if value is None else float(value)


def collect_rows(results: TaskResults, answer: AnswerSpec) -> AnswerRows:
    """Collect the counted rows of one answer. Under the rule missing=skip, rows without a prediction do not count."""
    counted_rows = {team: _select_counted_rows(results, team, answer) for team in results.teams}
    rows_by_team = {team: {row["case"]: row for row in rows} for team, rows in counted_rows.items() if rows}
    cases = sorted({case for rows in rows_by_team.values() for case in rows})
    rules = results.profile.answers[answer.name].rules
    return AnswerRows(
        answer=get_scored_answer(results, answer),
        heading=f"{get_answer_title(answer)}: " if results.profile.has_several_answers else "",
        names=tuple(rows_by_team),
        cases=tuple(cases),
        rows=tuple(tuple(rows.get(case) for case in cases) for rows in rows_by_team.values()),
        centres=results.centres,
        mask_rules=rules if isinstance(rules, MaskRules) else None,
    )


def _select_counted_rows(results: TaskResults, team: str, answer: AnswerSpec) -> list[Row]:
    rows = results.get_rows(team, answer.name)
    missing = results.get_options(team, answer.name).get("missing")
    return [row for row in rows if is_counted(row.get("error"), missing)]


def describe_absent_teams(reason: str, teams: Iterable[str], shown: set[str]) -> tuple[str, ...]:
    """Return a note on the teams that a figure does not show. There is no note if it shows all teams."""
    absent = [team for team in teams if team not in shown]
    return (f"{reason}: {', '.join(absent)}.",) if absent else ()


def round_figure(value: float | None) -> float | None:
    """Round to four significant digits. The result is None if the value is not a finite number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:z.{_DIGITS}g}")


def summarise_box(values: Iterable[float]) -> dict[str, Any]:
    """Compute quartiles, Tukey's whiskers, mean and number of values. NaN does not count. Infinite figures are None.

    Whiskers end at the outermost values within 1.5 interquartile ranges of the box; beyond an infinite quartile they
    end at the extremes. Outliers are the finite values beyond the whiskers, each as often as it occurs.
    """
    ordered = sorted(float(value) for value in values if not math.isnan(value))
    if not ordered:
        return {**dict.fromkeys(BOX_HEADINGS), "values": 0, "outliers": []}
    q1, median, q3 = quartiles(ordered)
    max_distance = _WHISKER * (q3 - q1) if math.isfinite(q3) else math.inf
    low = ordered[0] if math.isinf(max_distance) else next(value for value in ordered if value >= q1 - max_distance)
    high = next(value for value in reversed(ordered) if value <= q3 + max_distance)
    figures = {"low": low, "q1": q1, "median": median, "q3": q3, "high": high, "mean": sum(ordered) / len(ordered)}
    outliers = [round_figure(value) for value in ordered if not low <= value <= high and math.isfinite(value)]
    return {
        "values": len(ordered),
        **{name: round_figure(value) for name, value in figures.items()},
        "outliers": outliers,
    }
