"""The ranked metrics of a task: measured for an answer, or a weighted sum of other metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from contract.errors import HecktorError
from evaluation.editions.document import RankedMetric
from evaluation.metrics.metric import Metric

Known: TypeAlias = Mapping[str, tuple[str, Metric]]  # answer and record of each measured metric, by its full name


@dataclass(frozen=True)
class MetricProfile:
    """A ranked metric: a measured one has an `answer` and a record, a weighted sum the weights of measured metrics.

    `terms` are by the metrics' full names.
    """

    title: str
    higher_is_better: bool
    answer: str = ""
    metric: Metric | None = None
    terms: Mapping[str, float] = field(default_factory=dict)


def ranked_metrics(entries: Mapping[str, RankedMetric], known: Known, where: str) -> dict[str, MetricProfile]:
    """The ranked metrics of a task from its profile, `where` in messages."""
    return {name: _profile_of(name, entries, known, where) for name in entries}


def _profile_of(name: str, entries: Mapping[str, RankedMetric], known: Known, where: str) -> MetricProfile:
    entry, place = entries[name], f"{where}.{name}"
    if entry.weighted_sum is None:
        _check_known(name, known, where)
        answer, metric = known[name]
        require_rankable(metric, place)
        _check_direction(entry, metric, place)
        return MetricProfile(entry.title, entry.higher_is_better, answer, metric)
    if name in known:
        raise HecktorError(place, "found the name of a measured metric", "a name of its own")
    terms = _terms(name, entries, known, where, ())
    metrics = [known[term][1] for term in terms]
    if not all(metric.can_rank for metric in metrics) or len({metric.higher_is_better for metric in metrics}) > 1:
        raise HecktorError(place, f"found {', '.join(terms)}", "metrics that are all best at the same end")
    _check_direction(entry, metrics[0], place)
    return MetricProfile(entry.title, entry.higher_is_better, terms=terms)


def require_rankable(metric: Metric, where: str) -> None:
    """Raise HecktorError for a metric whose optimum lies between its bounds."""
    if not metric.can_rank:
        raise HecktorError(where, f"{metric.name} has its optimum at {metric.best:g}", "a metric that can rank teams")


def check_measured(metrics: Mapping[str, MetricProfile], known: Known, where: str) -> None:
    """Raise HecktorError if a ranked metric, or a term of one, is not among the `known` ones."""
    for name, metric in metrics.items():
        for measured in metric.terms or (name,):
            _check_known(measured, known, where)


def _check_known(name: str, known: Mapping[str, Any], where: str) -> None:
    if name not in known:
        raise HecktorError(where, f"{name!r} is not measured under these rules", f"some of {', '.join(known)}")


def _check_direction(entry: RankedMetric, metric: Metric, where: str) -> None:
    if entry.higher_is_better != metric.higher_is_better:
        words = [str(value).lower() for value in (entry.higher_is_better, metric.higher_is_better)]
        raise HecktorError(f"{where}.higher_is_better", f"found {words[0]}", words[1])


def _terms(
    name: str, entries: Mapping[str, RankedMetric], known: Known, where: str, parents: tuple[str, ...]
) -> dict[str, float]:
    """Weights of the measured metrics in the sum `name`, whose parts may be sums themselves."""
    entry, place = entries[name], f"{where}.{name}.weighted_sum"
    terms: dict[str, float] = {}
    for part, weight in zip(entry.weighted_sum or (), entry.weights, strict=True):
        if part in (*parents, name):
            raise HecktorError(place, f"found {part!r} inside itself", "other metrics")
        is_sum = part in entries and entries[part].weighted_sum is not None
        if not is_sum:
            _check_known(part, known, place)
        inner = _terms(part, entries, known, where, (*parents, name)) if is_sum else {part: 1.0}
        for measured, share in inner.items():
            terms[measured] = terms.get(measured, 0.0) + weight * share
    return terms
