"""Prediction heads as documents: linear models, forests, custom heads, and ensembles of these.

A head gives each patient one score, such as a log partial hazard or a logit, or one score for each of its classes. Only
the order of the scores of classes has a meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from algorithm.heads.parts import MAX_TREES, Calibration, Forest, Number, PositiveNumber, Survival, Tree
from contract.documents import Document, Text, check_texts, parse_document
from contract.errors import ModelPackageError

Features = Mapping[str, float | None]
Floats = npt.NDArray[np.float64]
# Cuts the cubes around the tumours of patients, from the number of voxels per side and their size in mm. The shape is
# (patients, 4, z, y, x); a patient without a cube has NaN.
Cubes = Callable[[int, float], npt.NDArray[np.float32]]
# Errors of experts that an ensemble has left out.
Faults = list[ModelPackageError]
Transform = Literal["identity", "log1p"]
# Standardised features are clipped to this many standard deviations, so that a single extreme value cannot decide.
CLIP_SD: Final = 4.0
# Score of a class without training patients, far below any other score.
NEVER: Final = -1e6


class Patients(Protocol):
    """Patients in a fixed order, with features and cubes around their tumours; `cubes` is None without images."""

    @property
    def cubes(self) -> Cubes | None:
        """Return the function that cuts the cubes around the tumours; None without images."""

    def values(self, features: Sequence[str]) -> Floats:
        """Return the features as columns, shape (patients, features); NaN for a missing value."""


@dataclass(frozen=True)
class SinglePatient:
    """`Patients` of one case."""

    features: Features
    cubes: Cubes | None = None

    def values(self, features: Sequence[str]) -> Floats:
        return np.array([[self.features.get(name) for name in features]], dtype=np.float64)


class ScaledFeature(Document):
    """Standardisation of a feature: `clip((transform(value) - mean) / sd)`, with mean and SD of the training.

    `fill`, the median of the training before the transform, replaces a missing value.
    """

    feature: str
    transform: Transform
    fill: Number
    mean: Number
    sd: PositiveNumber

    def standardise(self, values: Floats) -> Floats:
        """Standardise values of the feature, shape (n,); NaN is a missing value. The result has no NaN."""
        known = np.where(np.isfinite(values), values, self.fill)
        return np.clip((transform_values(known, self.transform) - self.mean) / self.sd, -CLIP_SD, CLIP_SD)


class Term(ScaledFeature):
    """The term of one feature in a linear head: its standardised value times a weight.

    `weights` has one weight for each score of the head.
    """

    weights: Annotated[tuple[Number, ...], Field(min_length=1)]


def standardise_features(features: Sequence[ScaledFeature], patients: Patients) -> Floats:
    """Make the matrix of standardised values, shape (patients, features)."""
    values = patients.values([feature.feature for feature in features])
    columns = [feature.standardise(column) for feature, column in zip(features, values.T, strict=True)]
    return np.asarray(columns, dtype=np.float64).reshape(len(features), len(values)).T


def transform_values(values: Floats, transform: Transform) -> Floats:
    """Return `values`, shape (n,), or for `log1p` log(1 + value), where a negative value counts as 0.

    The logarithm is the C library's, because NumPy's differs in the last bit between processors.
    """
    if transform == "identity":
        return values
    return np.array([math.log1p(max(value, 0.0)) for value in values.tolist()], dtype=np.float64)


class _Head(Document):
    """Parts that heads of all kinds may have; absent parts are not written to JSON.

    Attributes:
        threshold: Minimum score for the second of two classes.
        calibration: Converts a score to the probability of the second of two classes.
        survival: Converts a score to days.
    """

    kind: str
    threshold: Number | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None

    @model_serializer(mode="wrap")
    def _drop_absent_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        last = {key: content.pop(key) for key in ("threshold", "calibration", "survival")}
        written = {key: value for key, value in content.items() if value or key not in ("classes", "fitted")}
        return written | {key: value for key, value in last.items() if value is not None}

    def as_json(self) -> dict[str, Any]:
        """Return the head as plain data, which `read_head` reads."""
        return self.model_dump(mode="json")

    def list_missing_features(self, _features: Features) -> tuple[ScaledFeature, ...]:
        """Return the features whose value is missing, so that their `fill` is used; each feature once."""
        return ()

    def list_unavailable_experts(self, _features: Features) -> tuple[str, ...]:
        """Return the names of the experts of an ensemble that are left out because all their features are missing."""
        return ()


class LinearHead(_Head):
    """A linear model: `intercepts` plus the sum of the terms gives one score, or one for each of `classes`.

    `scale` names the quantity of the score, such as a log partial hazard or a logit.
    """

    kind: Literal["linear"] = "linear"
    scale: Text
    classes: tuple[str, ...] = ()
    intercepts: tuple[Number, ...]
    terms: tuple[Term, ...]

    @model_validator(mode="after")
    def _check_number_of_scores(self) -> Self:
        _check_classes(self.classes)
        scores = max(1, len(self.classes))
        if any(len(numbers) != scores for numbers in (self.intercepts, *(term.weights for term in self.terms))):
            raise ValueError(f"{scores} of intercepts and of each term's weights")
        return self

    def scores(self, patients: Patients, _faults: Faults | None = None) -> Floats:
        """Return the linear predictors, shape (patients,) or (patients, classes), always finite."""
        values = patients.values([term.feature for term in self.terms])
        total = np.tile(np.array(self.intercepts), (len(values), 1))
        for term, column in zip(self.terms, values.T, strict=True):
            total += np.multiply.outer(term.standardise(column), term.weights)
        return total if self.classes else total[:, 0]

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features, each once."""
        return tuple(dict.fromkeys(term.feature for term in self.terms))

    def list_missing_features(self, features: Features) -> tuple[ScaledFeature, ...]:
        return tuple({term.feature: term for term in self.terms if features.get(term.feature) is None}.values())


class ForestHead(_Head):
    """The mean of decision trees on standardised features, one score.

    Attributes:
        scale: Quantity of the score, such as a martingale residual.
        inputs: The features, in the order of their indices in the trees.
        trees: The trees.
    """

    kind: Literal["forest"] = "forest"
    scale: Text
    inputs: Annotated[tuple[ScaledFeature, ...], Field(min_length=1)]
    trees: Annotated[tuple[Tree, ...], Field(min_length=1, max_length=MAX_TREES)]

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        highest = max(max(tree.features) for tree in self.trees)
        if highest >= len(self.inputs):
            raise ValueError(f"numbers of the {len(self.inputs)} inputs in the trees, not {highest}")
        if len(set(self.features)) < len(self.inputs):
            raise ValueError("different features in the inputs")
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """Return no classes: a forest has one score."""
        return ()

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features."""
        return tuple(scaled.feature for scaled in self.inputs)

    def scores(self, patients: Patients, _faults: Faults | None = None) -> Floats:
        """Return the means of the trees, shape (patients,), always finite."""
        return self._forest.predict(standardise_features(self.inputs, patients))

    @cached_property
    def _forest(self) -> Forest:
        return Forest.from_trees(self.trees)

    def list_missing_features(self, features: Features) -> tuple[ScaledFeature, ...]:
        return tuple(scaled for scaled in self.inputs if features.get(scaled.feature) is None)


class CustomHead(_Head):
    """A head of user code, whose files are stored next to this document; `algorithm.heads.head_hook` calls it.

    A single score is standardised by `mean` and `sd`, also if it is the score of the second of two `fitted` classes.
    Classes that are not `fitted` never win.

    Attributes:
        hook: The class, such as `my_model:Forest`.
        folder: Folder of its files, relative to the folder of the heads.
        features: The columns of the fit, in the order in which the code receives them.
        classes: The classes of the answer; empty for a risk.
        fitted: The classes with training patients.
    """

    kind: Literal["custom"] = "custom"
    hook: Text
    folder: Text
    features: tuple[str, ...]
    classes: tuple[str, ...] = ()
    fitted: tuple[str, ...] = ()
    mean: Number = 0.0
    sd: PositiveNumber = 1.0
    _predict: Callable[[Patients], Floats] | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_fitted_classes(self) -> Self:
        _check_classes(self.classes)
        if not set(self.fitted) <= set(self.classes) or bool(self.classes) != (len(self.fitted) > 1):
            raise ValueError(f"in fitted at least two of the classes {', '.join(self.classes) or 'none'}")
        return self

    def with_predict(self, predict: Callable[[Patients], Floats] | None) -> Self:
        """Return a copy of the head whose scores come from `predict`, which calls the user code; None removes it."""
        head = self.model_copy()
        head._predict = predict
        return head

    def scores(self, patients: Patients, _faults: Faults | None = None) -> Floats:
        """Return the scores of the user code, shape (patients,) or (patients, classes).

        Raises:
            ModelPackageError: The code fails or is not loaded.
        """
        if self._predict is None:
            raise ModelPackageError(f"head {self.hook}", "its code is not loaded", "--code")
        values = self._predict(patients)
        if values.ndim == 1:
            values = (values - self.mean) / self.sd
        if not self.classes:
            return values
        scores = np.full((len(values), len(self.classes)), NEVER)
        by_class = np.column_stack([np.zeros(len(values)), values]) if values.ndim == 1 else values
        scores[:, [self.classes.index(name) for name in self.fitted]] = by_class
        return scores


def _check_classes(classes: Sequence[str]) -> None:
    if len(classes) == 1 or len(set(classes)) < len(classes):
        raise ValueError("two different classes or more")


class Expert(Document):
    """One head of an ensemble, with its weight; `mean` and `sd` standardise its scores.

    Older packages store no weights; their experts have equal weights.
    """

    name: Annotated[str, Field(min_length=1)]
    mean: Number
    sd: PositiveNumber
    weight: PositiveNumber = 1.0
    head: Annotated[LinearHead | ForestHead | CustomHead, Field(discriminator="kind")]


class EnsembleHead(_Head):
    """Several heads; the score is the weighted mean of their standardised scores, for each class if there are classes.

    All classes of an expert share one mean and one standard deviation, which keeps the order of its classes.
    """

    kind: Literal["ensemble"] = "ensemble"
    experts: Annotated[tuple[Expert, ...], Field(min_length=1)]

    @field_validator("experts")
    @classmethod
    def _check_experts(cls, experts: tuple[Expert, ...]) -> tuple[Expert, ...]:
        names = [expert.name for expert in experts]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"a different name for each expert, not {repeated!r} twice")
        classes = experts[0].head.classes
        odd = next((expert for expert in experts if expert.head.classes != classes), None)
        if odd is not None:
            actual, first = (", ".join(names) or "none" for names in (odd.head.classes, classes))
            raise ValueError(f"the classes of the first expert, {first}, in {odd.name!r}: {actual}")
        return experts

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes that all experts share; empty for one score."""
        return self.experts[0].head.classes

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features, each once."""
        return tuple(dict.fromkeys(name for expert in self.experts for name in expert.head.features))

    def scores(self, patients: Patients, faults: Faults | None = None) -> Floats:
        """Return the weighted mean of (score - mean) / sd over the available experts.

        An expert that fails, as user code may, is left out, and its error is added to `faults`.

        Returns:
            Scores of shape (patients,), or (patients, classes) for several classes.

        Raises:
            ModelPackageError: No expert is left for a patient, or an expert fails and `faults` is None.
        """
        used, problems = self._available(patients), list[ModelPackageError]()
        total: Any = 0.0
        for expert, is_used in zip(self.experts, used, strict=True):
            if is_used.any():
                try:
                    values = (expert.head.scores(patients) - expert.mean) / expert.sd
                except ModelPackageError as problem:
                    problems.append(problem)
                    is_used[:] = False
                else:
                    is_added = is_used[:, None] if self.classes else is_used
                    total = total + np.where(is_added, expert.weight * values, 0.0)
        if problems and (faults is None or not used.any(0).all()):
            raise problems[0]
        if faults is not None:
            faults += problems
        weight = np.array([expert.weight for expert in self.experts]) @ used
        return np.asarray(total / (weight[:, None] if self.classes else weight), dtype=np.float64)

    def _available(self, patients: Patients) -> npt.NDArray[np.bool_]:
        """Return which experts can score each patient, shape (experts, patients).

        An expert needs at least one known feature, unless it uses no features. If no expert has one, all are available.
        """
        known = [np.isfinite(patients.values(expert.head.features)) for expert in self.experts]
        used = np.array([values.any(1) if values.shape[1] else np.ones(len(values), np.bool_) for values in known])
        return np.asarray(used | ~used.any(0))

    def list_unavailable_experts(self, features: Features) -> tuple[str, ...]:
        used = self._available(SinglePatient(features))[:, 0]
        return tuple(expert.name for expert, is_used in zip(self.experts, used, strict=True) if not is_used)

    def list_missing_features(self, features: Features) -> tuple[ScaledFeature, ...]:
        left_out = self.list_unavailable_experts(features)
        experts = [expert for expert in self.experts if expert.name not in left_out]
        return tuple(
            {term.feature: term for expert in experts for term in expert.head.list_missing_features(features)}.values()
        )


Head = Annotated[LinearHead | ForestHead | CustomHead | EnsembleHead, Field(discriminator="kind")]
_MODELS: Final = {"linear": LinearHead, "forest": ForestHead, "custom": CustomHead, "ensemble": EnsembleHead}


def read_head(content: Any, name: str) -> Head:
    """Parse a head from the content of its JSON file; `name` is the name of the file in messages.

    Raises:
        ModelPackageError: The content is not a head.
    """
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in _MODELS:
        actual = f"found kind {kind!r:.40}" if isinstance(content, dict) else f"found {content!r:.40}"
        raise ModelPackageError(name, actual, "a head of kind linear, forest, custom or ensemble")
    check_texts(content, name, ModelPackageError)
    model: Any = _MODELS[kind]
    head: Head = parse_document(content, model, name, error=ModelPackageError)
    return head
