"""Prediction heads as documents: linear heads, one linear head for each class, entrants' own, and ensembles of them.

A linear head is a weighted sum of standardised features, which serves a proportional-hazards risk and a logit alike. A
missing value takes the training median (`fill`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import numpy as np
from pydantic import Discriminator, Field, Tag, field_validator

from algorithm.heads import own
from algorithm.heads.own import OWN_HEADS, Cubes, Faults, OwnClassHead, OwnHead
from algorithm.heads.parts import Calibration, HeadDocument, Number, PositiveNumber, Survival
from contract.documents import Document, parse_document
from contract.errors import ModelPackageError

Features = own.Features
Floats = own.Floats
# Standardised features are clipped to this many standard deviations, so that one extreme value cannot decide alone.
CLIP_SD: Final = 4.0

Transform = Literal["identity", "log1p"]


class Term(Document):
    """One feature's contribution: `weight * clip((transform(value) - mean) / sd)`; `fill` replaces a missing value."""

    feature: str
    transform: Transform
    fill: Number
    mean: Number
    sd: PositiveNumber
    weight: Number

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


class LinearHead(HeadDocument):
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

    def score(self, features: Features, _cubes: Cubes | None = None, _faults: Faults | None = None) -> float:
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


class ClassHead(HeadDocument):
    """A linear head for each class, by the class's value as text."""

    classes: Annotated[dict[str, LinearHead], Field(min_length=2)]

    def scores(
        self, features: Features, _cubes: Cubes | None = None, _faults: Faults | None = None
    ) -> dict[str, float]:
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


def _is_own(content: Any) -> str:
    is_own = "hook" in content if isinstance(content, dict) else isinstance(content, OWN_HEADS)
    return "(own)" if is_own else "(linear)"


class _Expert(Document):
    """One head of an ensemble; `mean` and `sd` standardise its scores."""

    name: Annotated[str, Field(min_length=1)]
    mean: Number
    sd: PositiveNumber


class ScoreExpert(_Expert):
    """An expert with one score."""

    head: Annotated[Annotated[LinearHead, Tag("(linear)")] | Annotated[OwnHead, Tag("(own)")], Discriminator(_is_own)]


class ClassExpert(_Expert):
    """An expert with a score for each class."""

    head: Annotated[
        Annotated[ClassHead, Tag("(linear)")] | Annotated[OwnClassHead, Tag("(own)")], Discriminator(_is_own)
    ]


Expert = TypeVar("Expert", ScoreExpert, ClassExpert)
Result = TypeVar("Result")


class _Ensemble(HeadDocument, Generic[Expert]):
    """Several heads whose standardised scores are averaged."""

    experts: Annotated[tuple[Expert, ...], Field(min_length=1)]

    @field_validator("experts")
    @classmethod
    def _have_names(cls, experts: tuple[Expert, ...]) -> tuple[Expert, ...]:
        names = [expert.name for expert in experts]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"a different name for each expert, not {repeated!r} twice")
        return experts

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(name for expert in self.experts for name in expert.head.features))

    def available(self, features: Features) -> tuple[Expert, ...]:
        """The experts with at least one known feature; all experts if none has one."""
        return tuple(one for one in self.experts if _is_available(one.head.features, features)) or self.experts

    def _scores(
        self, features: Features, score: Callable[[Any], Result], faults: Faults | None
    ) -> list[tuple[Expert, Result]]:
        """The score of each available expert.

        An expert that fails, as an entrant's code may, is left out, and its fault is added to `faults`.

        Raises:
            ModelPackageError: no expert is left, or one fails without `faults`.
        """
        scores, problems = list[tuple[Expert, Result]](), list[ModelPackageError]()
        for expert in self.available(features):
            try:
                scores.append((expert, score(expert.head)))
            except ModelPackageError as problem:
                problems.append(problem)
        if problems and (faults is None or not scores):
            raise problems[0]
        if faults is not None:
            faults += problems
        return scores

    def unavailable(self, features: Features) -> tuple[str, ...]:
        """Names of the experts that the ensemble leaves out."""
        available = {expert.name for expert in self.available(features)}
        return tuple(expert.name for expert in self.experts if expert.name not in available)

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms of available experts whose feature is missing, each feature once."""
        terms = (term for expert in self.available(features) for term in expert.head.missing(features))
        return tuple({term.feature: term for term in terms}.values())


def _is_available(names: Collection[str], features: Features) -> bool:
    """False if every feature of a head is missing."""
    return not names or any(features.get(name) is not None for name in names)


class EnsembleHead(_Ensemble[ScoreExpert]):
    """The mean of the experts' standardised scores; the other parts are those of a linear head."""

    threshold: Number | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None

    def score(self, features: Features, cubes: Cubes | None = None, faults: Faults | None = None) -> float:
        """Mean of (score - mean) / sd over the available experts."""
        scores: list[tuple[ScoreExpert, float]]
        scores = self._scores(features, lambda head: head.score(features, cubes), faults)
        return sum((score - one.mean) / one.sd for one, score in scores) / len(scores)


class ClassEnsembleHead(_Ensemble[ClassExpert]):
    """The mean of the experts' standardised scores, class by class.

    All classes of an expert share its mean and standard deviation, so that the order of its classes stays as it is.
    """

    @field_validator("experts")
    @classmethod
    def _have_the_same_classes(cls, experts: tuple[ClassExpert, ...]) -> tuple[ClassExpert, ...]:
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

    def scores(self, features: Features, cubes: Cubes | None = None, faults: Faults | None = None) -> dict[str, float]:
        """Mean of (score - mean) / sd of each class over the available experts."""
        rows: list[tuple[ClassExpert, dict[str, float]]]
        rows = self._scores(features, lambda head: head.scores(features, cubes), faults)
        return {name: sum((row[name] - one.mean) / one.sd for one, row in rows) / len(rows) for name in self.classes}


ScoreHead = LinearHead | EnsembleHead | OwnHead
Head = ScoreHead | ClassHead | ClassEnsembleHead | OwnClassHead
# Heads with a score for each class.
CLASS_HEADS: Final = (ClassHead, ClassEnsembleHead, OwnClassHead)


def read_head(content: Any, name: str) -> Head:
    """Read a head from JSON: a linear head, `{"classes": {"T1": <linear head>, ...}}`, an entrant's (`{"hook": ...}`),
    or `{"experts": [...]}`.

    Raises:
        ModelPackageError: no head.
    """
    if not isinstance(content, dict):
        raise ModelPackageError(name, f"found {str(content)[:40]}", "a head: an object")
    model: type[Head] = LinearHead
    if "experts" in content:
        model = ClassEnsembleHead if _has_classes(content["experts"]) else EnsembleHead
    elif "hook" in content:
        model = OwnClassHead if "classes" in content else OwnHead
    elif "classes" in content:
        model = ClassHead
    return parse_document(content, model, name, error=ModelPackageError)


def _has_classes(experts: object) -> bool:
    """True if the first expert holds a head of classes."""
    first = experts[0] if isinstance(experts, list) and experts else None
    head = first.get("head") if isinstance(first, dict) else None
    return isinstance(head, dict) and "classes" in head
