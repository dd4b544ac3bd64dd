"""Prediction heads as documents: linear heads, one linear head for each class, and ensembles of either.

A linear head is a weighted sum of standardised features, which serves a proportional-hazards risk and a logit alike. A
missing value takes the training median (`fill`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from contract.documents import Document, parse_document
from contract.errors import ModelPackageError

Features = Mapping[str, float | None]
Floats = npt.NDArray[np.float64]

# Standardised features are clipped to this many standard deviations, so that one extreme value cannot decide alone.
CLIP_SD: Final = 4.0
# Sums of terms of this size are still finite.
LARGEST_NUMBER: Final = 1e100
# The logistic function is 0 or 1 to double precision beyond this.
LARGEST_LOGIT: Final = 700.0
MOST_STEPS: Final = 64
# The hazard ratio exp(score) and its products with any hazard that a head may hold stay finite.
LARGEST_SCORE: Final = 300.0
# Earlier versions measured the network's encoder. A head that needs it would use training medians alone.
ENCODER_FEATURE: Final = "encoder_"


def _bounded(value: float) -> float:
    if abs(value) >= LARGEST_NUMBER:
        raise ValueError(f"a number below {LARGEST_NUMBER:g}")
    return value


Number = Annotated[float, AfterValidator(_bounded)]
PositiveNumber = Annotated[Number, Field(gt=0)]
Transform = Literal["identity", "log1p"]


class Term(Document):
    """One feature's contribution: `weight * clip((transform(value) - mean) / sd)`; `fill` replaces a missing value."""

    feature: str
    transform: Transform
    fill: Number
    mean: Number
    sd: PositiveNumber
    weight: Number

    @field_validator("feature")
    @classmethod
    def _is_measured(cls, feature: str) -> str:
        if feature.startswith(ENCODER_FEATURE):
            raise ValueError(
                "a feature of docs/features.md: encoder features are no longer measured (fit the heads again)"
            )
        return feature

    def standardised(self, values: Floats) -> Floats:
        """Values of the feature, shape (n,), NaN where missing, in training standard deviations, clipped to +-4."""
        known = np.where(np.isfinite(values), values, self.fill)
        return np.clip((transformed(known, self.transform) - self.mean) / self.sd, -CLIP_SD, CLIP_SD)


def transformed(values: Floats, transform: Transform) -> Floats:
    """`values`, shape (n,), or log(1 + value), where negative values count as 0.

    The logarithm is the C library's: numpy's differs in the last bit between processors.
    """
    if transform == "identity":
        return values
    return np.array([math.log1p(max(value, 0.0)) for value in values.tolist()], dtype=np.float64)


class Calibration(Document):
    """From a score to a probability: the logistic function of `slope * score + offset` (Platt 1999)."""

    slope: Number
    offset: Number

    def probability(self, score: float) -> float:
        logit = self.slope * score + self.offset
        return 1 / (1 + math.exp(-max(-LARGEST_LOGIT, min(LARGEST_LOGIT, logit))))


class Survival(Document):
    """Baseline cumulative hazard of a patient with score 0, from 0 on day 0 to the last day, the horizon.

    `days` ascend from above 0; `cumulative_hazard` holds the hazard on each of them and is linear between them.
    """

    days: Annotated[tuple[Number, ...], Field(min_length=1, max_length=MOST_STEPS)]
    cumulative_hazard: tuple[Number, ...]

    @model_validator(mode="after")
    def _rises(self) -> Survival:
        days, hazard = self.days, self.cumulative_hazard
        if len(days) != len(hazard):
            raise ValueError(f"as many values of cumulative_hazard ({len(hazard)}) as days ({len(days)})")
        is_rising = hazard[0] > 0 and all(low <= high for low, high in pairwise(hazard))
        if not is_rising or any(low >= high for low, high in pairwise((0.0, *days))):
            raise ValueError("ascending days and hazards above 0")
        return self

    @property
    def horizon_days(self) -> float:
        """The longest time that an answer can be."""
        return self.days[-1]

    def restricted_mean(self, score: float) -> float:
        """Expected recurrence-free days within the horizon, always finite and above 0.

        The integral of exp(-H0(t) exp(score)) over t from 0 to the horizon, which falls strictly in the score as long
        as it differs from its limits, 0 and the horizon, in double precision.
        """
        ratio = _hazard_ratio(score)
        return sum(
            (end - start) * _mean_survival(ratio * low, ratio * high) for (start, low), (end, high) in self._steps()
        )

    def median(self, score: float) -> float | None:
        """Day by which half of the patients with this score have a recurrence, None if that is after the horizon."""
        half = math.log(2) / _hazard_ratio(score)
        for (start, low), (end, high) in self._steps():
            if high >= half:
                return start + (end - start) * (half - low) / (high - low)
        return None

    def _steps(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Start and end of each linear part, each as day and hazard."""
        return pairwise(zip((0.0, *self.days), (0.0, *self.cumulative_hazard), strict=True))


def _hazard_ratio(score: float) -> float:
    return math.exp(max(-LARGEST_SCORE, min(LARGEST_SCORE, score)))


def _mean_survival(low: float, high: float) -> float:
    """Mean of exp(-h) for h from `low` to `high`."""
    growth = high - low
    return math.exp(-low) * (-math.expm1(-growth) / growth if growth > 0 else 1.0)


class _Head(Document):
    """Shared by heads of every kind: an absent calibration or survival is not written."""

    @model_serializer(mode="wrap")
    def _without_absent_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        parts = ("calibration", "survival")
        return {key: value for key, value in handler(self).items() if value is not None or key not in parts}

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class LinearHead(_Head):
    """`intercept` plus the sum of the terms: a log partial hazard, or the logit of the second of two classes.

    Optional parts: `threshold` splits the score into two classes, `calibration` turns it into a probability, and
    `survival` turns it into days.
    """

    kind: str
    intercept: Number
    threshold: Number | None = None
    terms: tuple[Term, ...]
    calibration: Calibration | None = None
    survival: Survival | None = None

    def score(self, features: Features) -> float:
        """The linear predictor, always finite; an absent feature counts as missing."""
        values = [np.array([features.get(term.feature)], dtype=np.float64) for term in self.terms]
        parts = zip(self.terms, values, strict=True)
        return self.intercept + sum(term.weight * float(term.standardised(value)[0]) for term, value in parts)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(term.feature for term in self.terms))

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms whose feature is missing, so that their `fill` is used; each feature once."""
        return tuple({term.feature: term for term in self.terms if features.get(term.feature) is None}.values())


class ClassHead(_Head):
    """A linear head for each class, by the class's value as text."""

    classes: Annotated[dict[str, LinearHead], Field(min_length=2)]

    def scores(self, features: Features) -> dict[str, float]:
        """The linear predictor of each class; only their order has a meaning."""
        return {name: head.score(features) for name, head in self.classes.items()}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(name for head in self.classes.values() for name in head.features))

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms whose feature is missing, each feature once."""
        terms = {term.feature: term for head in self.classes.values() for term in head.missing(features)}
        return tuple(terms.values())


SingleHead = TypeVar("SingleHead", LinearHead, ClassHead)


class Expert(Document, Generic[SingleHead]):
    """One head of an ensemble; `mean` and `sd` standardise its scores."""

    name: Annotated[str, Field(min_length=1)]
    mean: Number
    sd: PositiveNumber
    head: SingleHead

    def is_available(self, features: Features) -> bool:
        """False if every feature of the head is missing."""
        names = self.head.features
        return not names or any(features.get(name) is not None for name in names)


class _Ensemble(_Head, Generic[SingleHead]):
    """Several heads whose standardised scores are averaged."""

    experts: Annotated[tuple[Expert[SingleHead], ...], Field(min_length=1)]

    @field_validator("experts")
    @classmethod
    def _have_names(cls, experts: tuple[Expert[SingleHead], ...]) -> tuple[Expert[SingleHead], ...]:
        names = [expert.name for expert in experts]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"a different name for each expert, not {repeated!r} twice")
        return experts

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(name for expert in self.experts for name in expert.head.features))

    def available(self, features: Features) -> tuple[Expert[SingleHead], ...]:
        """The experts with at least one known feature; all experts if none has one."""
        return tuple(expert for expert in self.experts if expert.is_available(features)) or self.experts

    def unavailable(self, features: Features) -> tuple[str, ...]:
        """Names of the experts that the ensemble leaves out."""
        available = {expert.name for expert in self.available(features)}
        return tuple(expert.name for expert in self.experts if expert.name not in available)

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms of available experts whose feature is missing, each feature once."""
        terms = (term for expert in self.available(features) for term in expert.head.missing(features))
        return tuple({term.feature: term for term in terms}.values())


class EnsembleHead(_Ensemble[LinearHead]):
    """The mean of the experts' standardised scores; the other parts are those of a linear head."""

    threshold: Number | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None

    def score(self, features: Features) -> float:
        """Mean of (score - mean) / sd over the available experts."""
        experts = self.available(features)
        return sum((expert.head.score(features) - expert.mean) / expert.sd for expert in experts) / len(experts)


class ClassEnsembleHead(_Ensemble[ClassHead]):
    """The mean of the experts' standardised scores, class by class.

    All classes of an expert share its mean and standard deviation, so that the order of its classes stays as it is.
    """

    @field_validator("experts")
    @classmethod
    def _have_the_same_classes(cls, experts: tuple[Expert[ClassHead], ...]) -> tuple[Expert[ClassHead], ...]:
        first = experts[0].head.classes
        for expert in experts:
            if set(expert.head.classes) != set(first):
                names = ", ".join(expert.head.classes)
                raise ValueError(f"the classes of the first expert, {', '.join(first)}, in {expert.name!r}: {names}")
        return experts

    @property
    def classes(self) -> Collection[str]:
        """Names of the classes."""
        return self.experts[0].head.classes

    def scores(self, features: Features) -> dict[str, float]:
        """Mean of (score - mean) / sd of each class over the available experts."""
        rows = [(expert, expert.head.scores(features)) for expert in self.available(features)]
        return {name: sum((row[name] - one.mean) / one.sd for one, row in rows) / len(rows) for name in self.classes}


ScoreHead = LinearHead | EnsembleHead
Head = ScoreHead | ClassHead | ClassEnsembleHead
# Heads with a score for each class.
CLASS_HEADS: Final = (ClassHead, ClassEnsembleHead)


def read_head(content: Any, name: str) -> Head:
    """Read a head from JSON: a linear head, `{"classes": {"T1": <linear head>, ...}}`, or `{"experts": [...]}`.

    Raises:
        ModelPackageError: no head; one of boosted trees or with centre shifts, which earlier versions could fit.
    """
    if not isinstance(content, dict):
        raise ModelPackageError(name, f"found {str(content)[:40]}", "a head: an object")
    _refuse_removed_kinds(content, name)
    model: type[Head] = LinearHead
    if "experts" in content:
        model = ClassEnsembleHead if _has_classes(content["experts"]) else EnsembleHead
    elif "classes" in content:
        model = ClassHead
    return parse_document(content, model, name, error=ModelPackageError)


def _has_classes(experts: object) -> bool:
    """True if the first expert holds a head of classes."""
    first = experts[0] if isinstance(experts, list) and experts else None
    head = first.get("head") if isinstance(first, dict) else None
    return isinstance(head, dict) and "classes" in head


def _refuse_removed_kinds(content: object, name: str) -> None:
    """Refuse heads that only earlier versions could compute, anywhere in the content."""
    if isinstance(content, dict):
        if "trees" in content:
            raise ModelPackageError(name, "found boosted trees", "linear heads (fit the heads again)")
        if "feature" in content and content.get("centres"):
            raise ModelPackageError(name, "found a centre's shift (ComBat)", "a head without (fit the heads again)")
    values = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for value in values:
        _refuse_removed_kinds(value, name)
