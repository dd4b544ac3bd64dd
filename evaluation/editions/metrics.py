"""The ranked metrics of a task: measured for an answer, or a weighted sum of other metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contract.errors import HecktorError
from evaluation.editions.checks import choice, object_with, text
from evaluation.editions.schemes import parse_weights
from evaluation.metrics.metric import Metric

WEIGHTED_SUM: Final = "weighted_sum"
Known: TypeAlias = Mapping[str, tuple[str, Metric]]  # answer and record of each measured metric, by its full name


@dataclass(frozen=True)
class MetricProfile:
    """A ranked metric.

    Attributes:
        title: display name.
        higher_is_better: direction.
        answer: name of the answer that a measured metric belongs to; empty for a weighted sum.
        metric: the record of a measured metric; None for a weighted sum.
        terms: of a weighted sum, the weight of each measured metric by its full name.
    """

    title: str
    higher_is_better: bool
    answer: str = ""
    metric: Metric | None = None
    terms: Mapping[str, float] = field(default_factory=dict)


def parse_metrics(raw: Mapping[str, Any], known: Known, where: str) -> dict[str, MetricProfile]:
    """Check the ranked metrics of a task.

    Args:
        raw: the profile's `metrics`.
        known: answer and record of each measured metric, by its full name.
        where: place of `metrics`, for messages.
    """
    metrics = {}
    for name, value in raw.items():
        is_sum = isinstance(value, dict) and WEIGHTED_SUM in value
        metrics[name] = (_weighted_sum if is_sum else _measured)(name, raw, known, where)
    return metrics


def check_measured(metrics: Mapping[str, MetricProfile], known: Known, where: str) -> None:
    """Raise HecktorError if a ranked metric, or a term of one, is not among the `known` ones."""
    for name, metric in metrics.items():
        for measured in metric.terms or (name,):
            _check_known(measured, known, where)


def _check_known(name: str, known: Mapping[str, Any], where: str) -> None:
    if name not in known:
        raise HecktorError(where, f"{name!r} is not measured under these rules", f"some of {', '.join(known)}")


def _measured(name: str, raw: Mapping[str, Any], known: Known, where: str) -> MetricProfile:
    _check_known(name, known, where)
    place, (answer, metric) = f"{where}.{name}", known[name]
    content = object_with(raw[name], place, ("title", "higher_is_better"))
    require_rankable(metric, place)
    higher = choice(content, "higher_is_better", (metric.higher_is_better,), place)
    return MetricProfile(text(content, "title", place), higher, answer, metric)


def require_rankable(metric: Metric, where: str) -> None:
    """Raise HecktorError for a metric whose optimum lies between its bounds."""
    if not metric.can_rank:
        raise HecktorError(where, f"{metric.name} has its optimum at {metric.best:g}", "a metric that can rank teams")


def _weighted_sum(name: str, raw: Mapping[str, Any], known: Known, where: str) -> MetricProfile:
    place = f"{where}.{name}"
    content = object_with(raw[name], place, ("title", "higher_is_better", WEIGHTED_SUM, "weights"))
    if name in known:
        raise HecktorError(place, "found the name of a measured metric", "a name of its own")
    terms = _terms(name, raw, known, where, ())
    metrics = [known[term][1] for term in terms]
    if not all(metric.can_rank for metric in metrics) or len({metric.higher_is_better for metric in metrics}) > 1:
        raise HecktorError(place, f"found {', '.join(terms)}", "metrics that are all best at the same end")
    higher = choice(content, "higher_is_better", (metrics[0].higher_is_better,), place)
    return MetricProfile(text(content, "title", place), higher, terms=terms)


def _terms(
    name: str, raw: Mapping[str, Any], known: Mapping[str, Any], where: str, parents: tuple[str, ...]
) -> dict[str, float]:
    """Weights of the measured metrics in the sum `name`, whose parts may be sums themselves."""
    content, place = raw[name], f"{where}.{name}"
    parts = content[WEIGHTED_SUM]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise HecktorError(f"{place}.{WEIGHTED_SUM}", "expected a list of metrics")
    terms: dict[str, float] = {}
    for part, weight in zip(parts, parse_weights(content.get("weights"), len(parts), place), strict=True):
        if part in (*parents, name):
            raise HecktorError(f"{place}.{WEIGHTED_SUM}", f"found {part!r} inside itself", "other metrics")
        is_sum = isinstance(raw.get(part), dict) and WEIGHTED_SUM in raw[part]
        if not is_sum:
            _check_known(part, known, f"{place}.{WEIGHTED_SUM}")
        inner = _terms(part, raw, known, where, (*parents, name)) if is_sum else {part: 1.0}
        for measured, share in inner.items():
            terms[measured] = terms.get(measured, 0.0) + weight * share
    return terms
