"""Titles of metrics, ranked or not, for tables and charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contract.editions import Answer
from evaluation.analyses.sources import TaskResults
from evaluation.metrics.metric import Metric
from evaluation.rows.kinds import find_metric

_WORDS: Final = {"borda": "Borda", "dsc agg": "aggregated DSC", "dsc": "DSC", "hd95": "HD95"}


def metric_titles(results: TaskResults) -> dict[str, str]:
    """The title of every metric of any team, the ranked ones first and under the leaderboard's titles."""
    ranked = {str(name): str(title) for name, title in results.board["metrics"].items()}
    names = dict.fromkeys(name for team in results.teams for name in team.estimates)
    return ranked | {name: title_of(name, results) for name in names if name not in ranked}


def title_of(name: str, results: TaskResults) -> str:
    """The title of a metric that does not rank; its name if it is unknown."""
    measured = _measured(name, results)
    if measured is None:
        return name
    answer, metric = measured
    heading = f"{answer_title(answer)}: " if results.prefixes.get(answer.name) else ""
    return f"{heading}{metric.title}"


def scheme_title(name: str, board: Mapping[str, Any]) -> str:
    """The title of a ranking: that of the metric it sorts by, else its name in words."""
    words = name.replace("_", " ")
    for short, title in _WORDS.items():
        words = words.replace(short, title)
    return str(board["metrics"].get(name, words))


def answer_title(answer: Answer) -> str:
    """The answer within a heading, such as `T stage`: masks are those of the segmentation."""
    if answer.kind == "mask":
        return "Segmentation"
    first, *others = answer.socket.title.split()
    return " ".join([first, *(word.lower() if word.istitle() and len(word) > 1 else word for word in others)])


def answer_of(name: str, results: TaskResults) -> Answer | None:
    """The answer that a metric is measured for; None for a weighted sum over answers and for an unknown metric."""
    measured = _measured(name, results)
    return None if measured is None else measured[0]


def _measured(name: str, results: TaskResults) -> tuple[Answer, Metric] | None:
    for answer in results.task.answers:
        prefix = results.prefixes.get(answer.name, "")
        metric = find_metric(answer, name.removeprefix(prefix)) if name.startswith(prefix) else None
        if metric is not None:
            return answer, metric
    return None
