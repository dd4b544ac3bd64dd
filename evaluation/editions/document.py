"""The JSON file of an evaluation profile, and its ranked metrics: measured for an answer, or a weighted sum of others.

Format 1 holds one answer for each task of HECKTOR 2025; format 2 names its declaration and holds rules for each answer
of a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from contract.documents import Document, Text, Word, expect_keys
from contract.editions.declaration import Kind
from contract.errors import HecktorError
from evaluation.editions.schemes import RankingProfile, Weight, check_weights
from evaluation.metrics.metric import Metric
from evaluation.metrics.rules import ClassRules, MaskRules, RiskRules

# The kinds of answers as format 1 spells them.
KINDS_OF_FORMAT_1: Final[dict[str, Kind]] = {"segmentation": "mask", "survival": "risk", "classification": "class"}


def _kind_of(rules: Any) -> str:
    """The tag of rules, by the keys that only one kind has."""
    keys = rules if isinstance(rules, dict) else type(rules).model_fields
    return "(risk)" if "missing_risk" in keys else "(mask)" if "geometry" in keys else "(class)"


AnyRules = Annotated[
    Annotated[MaskRules, Tag("(mask)")] | Annotated[RiskRules, Tag("(risk)")] | Annotated[ClassRules, Tag("(class)")],
    Discriminator(_kind_of),
]


class RankedMetric(Document):
    """A ranked metric: a measured one, or the weighted sum of others."""

    title: Text
    higher_is_better: bool
    weighted_sum: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_sum(self) -> RankedMetric:
        if self.weighted_sum is None:
            expect_keys(self, ("title", "higher_is_better"))
        else:
            expect_keys(self, ("title", "higher_is_better", "weighted_sum", "weights"))
            check_weights(self, self.weighted_sum, self.weights)
        return self


class AnswerRules(Document):
    """The rules of one answer; the prefix precedes the names of its metrics."""

    rules: AnyRules
    prefix: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_-]*)?$")] | None = None


class ProfileTask(Document):
    """A task: format 1 has the kind and rules of its answer, format 2 its answers.

    `aliases` are further values of `--task`, lower-case, such as the numbers of the challenge's own tasks.
    """

    metrics: Annotated[dict[Text, RankedMetric], Field(min_length=1)]
    ranking: RankingProfile
    kind: Literal["segmentation", "survival", "classification"] | None = None
    rules: AnyRules | None = None
    answers: dict[Text, AnswerRules] | None = None
    public_digits: Annotated[int, Field(ge=1, le=6)] | None = None
    aliases: tuple[Word, ...] = ()


class ProfileDocument(Document):
    """An evaluation profile: metrics, rules and ranking of each task of an edition.

    `citation` is what a report asks its readers to cite; `$schema` is for editors.
    """

    format: Annotated[int, Field(ge=1, le=2)]
    name: Text
    title: Text
    citation: str = ""
    declaration: Text | None = None
    editor_schema: Text | None = Field(default=None, alias="$schema")
    tasks: Annotated[dict[Text, ProfileTask], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_format(self) -> ProfileDocument:
        own = ("kind", "rules") if self.format == 1 else ("answers",)
        optional = ("citation", "editor_schema", *(() if self.format == 1 else ("declaration",)))
        expect_keys(self, ("format", "name", "title", "tasks"), optional)
        for task in self.tasks.values():
            expect_keys(task, (*own, "metrics", "ranking"), ("public_digits", "aliases"))
        aliases = [alias for task in self.tasks.values() for alias in task.aliases]
        if len({*aliases, *self.tasks}) < len(aliases) + len(self.tasks):
            raise ValueError("each name or alias of a task once")
        return self


Known: TypeAlias = Mapping[str, tuple[str, Metric]]  # answer and record of each measured metric, by its full name


@dataclass(frozen=True)
class MetricProfile:
    """A ranked metric: a measured one has an `answer` and a record, a weighted sum the weights of measured metrics.

    `terms` are by the metrics' full names. `span` is the largest difference that two teams can have.
    """

    title: str
    higher_is_better: bool
    answer: str = ""
    metric: Metric | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    span: float = math.inf


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
        return MetricProfile(entry.title, entry.higher_is_better, answer, metric, span=metric.span)
    if name in known:
        raise HecktorError(place, "found the name of a measured metric", "a name of its own")
    terms = _terms(name, entries, known, where, ())
    metrics = [known[term][1] for term in terms]
    if not all(metric.can_rank for metric in metrics) or len({metric.higher_is_better for metric in metrics}) > 1:
        raise HecktorError(place, f"found {', '.join(terms)}", "metrics that are all best at the same end")
    _check_direction(entry, metrics[0], place)
    span = sum(abs(weight) * metric.span for weight, metric in zip(terms.values(), metrics, strict=True))
    return MetricProfile(entry.title, entry.higher_is_better, terms=terms, span=span)


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
