"""The section `scoring` of an edition as models; its ranked metrics are measured ones or weighted sums of others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from contract.documents import Document, Text, expect_keys
from contract.editions import Edition
from contract.errors import HecktorError
from evaluation.metrics.rules import ClassRules, MaskRules, Metric, RiskRules

Ties = Literal["min", "average", "max", "dense"]
TIE_RULES: Final[tuple[Ties, ...]] = get_args(Ties)
# Larger weights would lose the smaller ones of a sum in rounding.
Weight = Annotated[float, Field(gt=0, le=1e6)]


class Combination(Document):
    """Ranks teams by their ranks under several parts."""

    model_config = ConfigDict(populate_by_name=True)


class Borda(Combination):
    """Order teams by the sum of their ranks under each part, each rank times the part's weight if weights are given."""

    parts: Parts = Field(alias="borda")
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_weights(self) -> Borda:
        check_weights(self, self.parts, self.weights)
        return self


class MeanRank(Borda):
    """The order of the Borda count, reported as the mean of the ranks."""

    parts: Parts = Field(alias="mean_rank")


class MedianRank(Combination):
    """Order teams by the median of their ranks under each part."""

    parts: Parts = Field(alias="median_rank")


class Lexicographic(Combination):
    """Order teams by the first part; the following ones only break ties."""

    parts: Parts = Field(alias="lexicographic")


_WORDS: Final[dict[str, type[Combination]]] = {
    "borda": Borda,
    "mean_rank": MeanRank,
    "median_rank": MedianRank,
    "lexicographic": Lexicographic,
}


def check_weights(document: Document, parts: tuple[object, ...], weights: tuple[float, ...]) -> None:
    """Raise ValueError, as pydantic's validators do, unless there is one weight for each part or none at all."""
    if "weights" in document.model_fields_set and len(weights) != len(parts):
        raise ValueError(f"{len(parts)} weights, one for each part")


def _kind(node: Any) -> str | None:
    """The tag of a scheme in JSON or as an object: `(metric)` for a name, or the word of its combination."""
    if isinstance(node, str):
        return "(metric)"
    if isinstance(node, Combination):
        return next(f"({word})" for word, model in _WORDS.items() if type(node) is model)
    words = [word for word in _WORDS if isinstance(node, dict) and word in node]
    return f"({words[0]})" if len(words) == 1 else None


Scheme: TypeAlias = Annotated[
    Annotated[Text, Tag("(metric)")]
    | Annotated[Borda, Tag("(borda)")]
    | Annotated[MeanRank, Tag("(mean_rank)")]
    | Annotated[MedianRank, Tag("(median_rank)")]
    | Annotated[Lexicographic, Tag("(lexicographic)")],
    Discriminator(
        _kind,
        custom_error_type="scheme",
        custom_error_message=f"a metric's name or an object with one of {', '.join(_WORDS)}",
    ),
]
Parts: TypeAlias = Annotated[tuple[Scheme, ...], Field(min_length=1)]
for _model in _WORDS.values():
    _model.model_rebuild()


class RankingProfile(Document):
    """The official ranking (a key of `schemes`), further rankings that are shown, and the rule for ties."""

    official: Text
    ties: Ties
    schemes: Annotated[dict[Text, Scheme], Field(min_length=1)]

    @property
    def official_metrics(self) -> tuple[str, ...]:
        """The metrics that decide the official ranking, in the scheme's order."""
        return tuple(dict.fromkeys(list_scheme_metrics(self.schemes[self.official])))


def list_scheme_metrics(scheme: Scheme) -> list[str]:
    """The metrics of a scheme, in its order."""
    return (
        [scheme] if isinstance(scheme, str) else [name for part in scheme.parts for name in list_scheme_metrics(part)]
    )


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


class TaskScoring(Document):
    """Scoring of a task: the rules of its answers, its ranked metrics and their ranking."""

    metrics: Annotated[dict[Text, RankedMetric], Field(min_length=1)]
    ranking: RankingProfile
    answers: dict[Text, AnswerRules]


class Scoring(Document):
    """The section `scoring` of an edition: each scored task by name."""

    scoring: Mapping[str, TaskScoring]


class ScoredEdition(Edition):
    """An edition of a challenge: what its algorithms read and answer, and how the answers are scored and ranked."""

    model_config = ConfigDict(title="Edition")

    scoring: Annotated[Mapping[str, TaskScoring], Field(min_length=1)]


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


def resolve_metrics(entries: Mapping[str, RankedMetric], known: Known, where: str) -> dict[str, MetricProfile]:
    """The ranked metrics of a task from its scoring, `where` in messages."""
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
        raise HecktorError(
            where, f"{metric.name} has its optimum at {metric.best:g} and cannot rank teams", "another metric"
        )


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
