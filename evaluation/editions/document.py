"""The section `scoring` of an edition as models. A ranked metric is a measured metric or a weighted sum of metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from contract.documents import Document, Text, check_keys
from contract.editions import Edition
from contract.errors import HecktorError
from evaluation.metrics.rules import ClassRules, MaskRules, Metric, RiskRules

Ties = Literal["min", "average", "max", "dense"]
TIE_RULES: Final[tuple[Ties, ...]] = get_args(Ties)
# In a sum with larger weights, rounding would lose the terms with small weights.
Weight = Annotated[float, Field(gt=0, le=1e6)]


class Combination(Document):
    """Scheme that ranks teams by their ranks under several parts."""

    model_config = ConfigDict(populate_by_name=True)


class Borda(Combination):
    """Order of the teams by the sum of their ranks under each part; each rank is multiplied by the part's weight."""

    parts: Parts = Field(alias="borda")
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_weights(self) -> Borda:
        check_weights(self, self.parts, self.weights)
        return self


class MeanRank(Borda):
    """Order of the Borda count, reported as the mean of the ranks."""

    parts: Parts = Field(alias="mean_rank")


class MedianRank(Combination):
    """Order of the teams by the median of their ranks under each part."""

    parts: Parts = Field(alias="median_rank")


class Lexicographic(Combination):
    """Order of the teams by the first part; the following parts only break ties."""

    parts: Parts = Field(alias="lexicographic")


class RowScheme(Document):
    """Scheme that ranks teams by their values of one metric in individual cases, or by tests of the metric.

    It needs the rows of all teams.
    """

    model_config = ConfigDict(populate_by_name=True)

    metric: Text

    @property
    def figure(self) -> str:
        """The name of the scheme's figure, which is also its key in an edition."""
        return next(key for key, model in _SCHEME_OF_KEY.items() if type(self) is model)

    @property
    def column(self) -> str:
        """The name of the teams' figures; schemes with the same figures share it."""
        return f"{self.figure} of {self.metric}"


class MeanCaseRank(RowScheme):
    """Order of the teams by the mean of their ranks within individual cases."""

    metric: Text = Field(alias="mean_case_rank")


class MedianCaseRank(RowScheme):
    """Order of the teams by the median of their ranks within individual cases."""

    metric: Text = Field(alias="median_case_rank")


class WinRank(RowScheme):
    """Order of the teams by the number of teams that they are significantly better than.

    `test` is the test that decides about the metric, or Wilcoxon's signed-rank test of its values in individual cases.
    """

    metric: Text = Field(alias="significant_wins")
    test: Literal["deciding", "wilcoxon_signed_rank"] = "deciding"

    @property
    def column(self) -> str:
        return f"{super().column} by the test {self.test}"


_SCHEME_OF_KEY: Final[dict[str, type[Combination | RowScheme]]] = {
    "borda": Borda,
    "mean_rank": MeanRank,
    "median_rank": MedianRank,
    "lexicographic": Lexicographic,
    "mean_case_rank": MeanCaseRank,
    "median_case_rank": MedianCaseRank,
    "significant_wins": WinRank,
}


def check_weights(document: Document, parts: tuple[object, ...], weights: tuple[float, ...]) -> None:
    """Raise ValueError, as pydantic's validators do, unless each part has a weight or the document has no weights."""
    if "weights" in document.model_fields_set and len(weights) != len(parts):
        raise ValueError(f"{len(parts)} weights, one for each part")


def _find_scheme_tag(node: Any) -> str | None:
    """Return the tag of a scheme in JSON or as an object: `(metric)` for a name, otherwise its key in parentheses."""
    if isinstance(node, str):
        return "(metric)"
    if isinstance(node, Combination | RowScheme):
        return next(f"({key})" for key, model in _SCHEME_OF_KEY.items() if type(node) is model)
    keys = [key for key in _SCHEME_OF_KEY if isinstance(node, dict) and key in node]
    return f"({keys[0]})" if len(keys) == 1 else None


Scheme: TypeAlias = Annotated[
    Annotated[Text, Tag("(metric)")]
    | Annotated[Borda, Tag("(borda)")]
    | Annotated[MeanRank, Tag("(mean_rank)")]
    | Annotated[MedianRank, Tag("(median_rank)")]
    | Annotated[Lexicographic, Tag("(lexicographic)")]
    | Annotated[MeanCaseRank, Tag("(mean_case_rank)")]
    | Annotated[MedianCaseRank, Tag("(median_case_rank)")]
    | Annotated[WinRank, Tag("(significant_wins)")],
    Discriminator(
        _find_scheme_tag,
        custom_error_type="scheme",
        custom_error_message=f"a metric's name or an object with one of {', '.join(_SCHEME_OF_KEY)}",
    ),
]
Parts: TypeAlias = Annotated[tuple[Scheme, ...], Field(min_length=1)]
for _model in _SCHEME_OF_KEY.values():
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
    """Return the metrics of a scheme, in its order."""
    if isinstance(scheme, str):
        return [scheme]
    if isinstance(scheme, RowScheme):
        return [scheme.metric]
    return [name for part in scheme.parts for name in list_scheme_metrics(part)]


def list_row_schemes(scheme: Scheme) -> list[RowScheme]:
    """Return the schemes that need rows: the scheme itself or its parts."""
    if isinstance(scheme, RowScheme):
        return [scheme]
    parts = () if isinstance(scheme, str) else scheme.parts
    return [row_scheme for part in parts for row_scheme in list_row_schemes(part)]


def _find_rules_tag(rules: Any) -> str:
    """Return the tag of the rules of an answer; each kind of answer has a key that no other kind has."""
    keys = rules if isinstance(rules, dict) else type(rules).model_fields
    return "(risk)" if "missing_risk" in keys else "(mask)" if "geometry" in keys else "(class)"


AnyRules = Annotated[
    Annotated[MaskRules, Tag("(mask)")] | Annotated[RiskRules, Tag("(risk)")] | Annotated[ClassRules, Tag("(class)")],
    Discriminator(_find_rules_tag),
]


class RankedMetric(Document):
    """Ranked metric: a measured metric, or the weighted sum of metrics."""

    title: Text
    higher_is_better: bool
    weighted_sum: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_sum(self) -> RankedMetric:
        if self.weighted_sum is None:
            check_keys(self, ("title", "higher_is_better"))
        else:
            check_keys(self, ("title", "higher_is_better", "weighted_sum", "weights"))
            check_weights(self, self.weighted_sum, self.weights)
        return self


class AnswerRules(Document):
    """Rules of one answer; the prefix precedes the names of its metrics."""

    rules: AnyRules
    prefix: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_-]*)?$")] | None = None


class TaskScoring(Document):
    """Scoring of a task: the rules of its answers, its ranked metrics and their ranking."""

    metrics: Annotated[dict[Text, RankedMetric], Field(min_length=1)]
    ranking: RankingProfile
    answers: dict[Text, AnswerRules]


class Scoring(Document):
    """Section `scoring` of an edition: each scored task by name."""

    scoring: Mapping[str, TaskScoring]


class ScoredEdition(Edition):
    """Edition of a challenge: inputs and answers of its algorithms, and how the answers are scored and ranked."""

    model_config = ConfigDict(title="Edition")

    scoring: Annotated[Mapping[str, TaskScoring], Field(min_length=1)]


@dataclass(frozen=True)
class MeasuredMetric:
    """Metric that the rules of an answer measure."""

    answer: str
    metric: Metric


# Metrics by full name, with the prefix of the answer.
MeasuredMetrics: TypeAlias = Mapping[str, MeasuredMetric]


@dataclass(frozen=True)
class MetricProfile:
    """Ranked metric.

    Attributes:
        title: Name that tables and figures show.
        higher_is_better: Whether a larger value is better.
        answer: Name of the answer of a measured metric, empty for a weighted sum.
        metric: The measured metric, None for a weighted sum.
        terms: Weights of the measured metrics in a weighted sum, by full name.
        span: Largest difference that two teams can have.
    """

    title: str
    higher_is_better: bool
    answer: str = ""
    metric: Metric | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    span: float = math.inf


def resolve_metrics(
    entries: Mapping[str, RankedMetric], measured: MeasuredMetrics, where: str
) -> dict[str, MetricProfile]:
    """Return the ranked metrics of a task; `where` is the place of `entries` in messages."""
    return {
        name: _resolve_measured(name, entry, measured, where)
        if entry.weighted_sum is None
        else _resolve_sum(name, entries, measured, where)
        for name, entry in entries.items()
    }


def _resolve_measured(name: str, entry: RankedMetric, measured: MeasuredMetrics, where: str) -> MetricProfile:
    place = f"{where}.{name}"
    _check_measured(name, measured, where)
    metric = measured[name].metric
    require_rankable(metric, place)
    _check_direction(entry, metric, place)
    return MetricProfile(entry.title, entry.higher_is_better, measured[name].answer, metric, span=metric.span)


def _resolve_sum(
    name: str, entries: Mapping[str, RankedMetric], measured: MeasuredMetrics, where: str
) -> MetricProfile:
    entry = entries[name]
    place = f"{where}.{name}"
    if name in measured:
        raise HecktorError(place, "found the name of a measured metric", "a different name")
    terms = _compute_terms(name, entries, measured, where)
    metrics = [measured[term].metric for term in terms]
    if not all(metric.can_rank for metric in metrics) or len({metric.higher_is_better for metric in metrics}) > 1:
        raise HecktorError(
            place,
            f"found {', '.join(terms)}",
            "only metrics for which higher is better, or only metrics for which lower is better",
        )
    _check_direction(entry, metrics[0], place)
    span = sum(abs(weight) * metric.span for weight, metric in zip(terms.values(), metrics, strict=True))
    return MetricProfile(entry.title, entry.higher_is_better, terms=terms, span=span)


def _compute_terms(
    name: str,
    entries: Mapping[str, RankedMetric],
    measured: MeasuredMetrics,
    where: str,
    parents: tuple[str, ...] = (),
) -> dict[str, float]:
    """Return the weights of the measured metrics in the sum `name`; `parents` are the sums that contain it."""
    entry = entries[name]
    place = f"{where}.{name}.weighted_sum"
    terms: dict[str, float] = {}
    for part, weight in zip(entry.weighted_sum or (), entry.weights, strict=True):
        if part in (*parents, name):
            raise HecktorError(place, f"found {part!r} inside itself", "a sum that does not contain itself")
        if part in entries and entries[part].weighted_sum is not None:
            part_terms = _compute_terms(part, entries, measured, where, (*parents, name))
        else:
            _check_measured(part, measured, place)
            part_terms = {part: 1.0}
        for metric, factor in part_terms.items():
            terms[metric] = terms.get(metric, 0.0) + weight * factor
    return terms


def require_rankable(metric: Metric, where: str) -> None:
    """Raise `HecktorError` for a metric whose optimum lies between its bounds."""
    if not metric.can_rank:
        raise HecktorError(
            where, f"{metric.name} has its optimum at {metric.best:g} and cannot rank teams", "another metric"
        )


def check_measured(metrics: Mapping[str, MetricProfile], measured: MeasuredMetrics, where: str) -> None:
    """Raise `HecktorError` if a ranked metric, or a term of a weighted sum, is not measured."""
    for name, metric in metrics.items():
        for term in metric.terms or (name,):
            _check_measured(term, measured, where)


def _check_measured(name: str, measured: MeasuredMetrics, where: str) -> None:
    if name not in measured:
        rankable = ", ".join(name for name, metric in measured.items() if metric.metric.can_rank)
        raise HecktorError(where, f"{name!r} is not measured under these rules", f"some of {rankable}")


def _check_direction(entry: RankedMetric, metric: Metric, where: str) -> None:
    if entry.higher_is_better != metric.higher_is_better:
        actual, expected = (str(value).lower() for value in (entry.higher_is_better, metric.higher_is_better))
        raise HecktorError(f"{where}.higher_is_better", f"found {actual}", expected)
