"""Call custom heads; an error in their code is reported in one line and removes only that expert.

A head is a class in user code, which need not import this project (docs/own-model.md)::

    class Head:
        kinds = ("risk",)                              # optional: kinds of answers, "risk", "class" or both
        def __init__(self, target): ...                # a HeadTarget
        def fit(self, features, outcomes, rng): ...    # two DataFrames, and a numpy.random.Generator
        def predict(self, features): ...               # (patients,) or (patients, classes)
        def save(self, folder): ...
        @classmethod
        def load(cls, folder): ...

With `cube = (48, 2.0)`, voxels per side and their size in mm, `fit` and `predict` also receive the cubes around the
tumours of the same patients as their last argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from algorithm.heads.documents import Cubes, CustomHead, EnsembleHead, Floats, Head, Patients
from contract.code import Code, call_code, split_reference
from contract.errors import ModelPackageError

# Name of the class in a folder of user code.
HEAD: Final = "Head"
METHODS: Final = ("fit", "predict", "save", "load")
_MAX_CUBE_VOXELS: Final = 256
# Scores below this size have finite sums of squares and finite standardised values.
_MAX_ABS_SCORE: Final = 1e50


@dataclass(frozen=True)
class HeadTarget:
    """The target of a custom head.

    Attributes:
        name: Name of the answer, such as "rfs".
        kind: "risk" or "class".
        classes: Names of the classes that the training patients have, in the order of the scores; empty for a risk.
    """

    name: str
    kind: Literal["risk", "class"]
    classes: tuple[str, ...] = ()

    @property
    def scores(self) -> int:
        """Return the number of scores for each patient: one for a risk and for two classes."""
        return len(self.classes) if len(self.classes) > 2 else 1


def find_head(code: Code, reference: str) -> Any:
    """Return the class of a custom head.

    Raises:
        ModelPackageError: The class does not exist, has not all methods or has an invalid `cube`.
    """
    actual = code.find(reference, "head")
    check_cube(actual, f"head {reference}")
    if absent := [name for name in METHODS if not callable(getattr(actual, name, None))]:
        raise ModelPackageError(f"head {reference}", f"no method {absent[0]}", ", ".join(METHODS))
    return actual


def check_cube(hook: Any, what: str) -> None:
    """Check the attribute `cube` of a class, if it has one; raise `ModelPackageError` if it is invalid."""
    cube = getattr(hook, "cube", (1, 1.0))
    is_pair = (
        isinstance(cube, tuple | list) and len(cube) == 2 and all(isinstance(value, int | float) for value in cube)
    )
    if not is_pair or not isinstance(cube[0], int) or not 0 < cube[0] <= _MAX_CUBE_VOXELS or not 0.1 <= cube[1] <= 20:
        expected = f"voxels per side, at most {_MAX_CUBE_VOXELS}, and their size in mm, such as (48, 2.0)"
        raise ModelPackageError(what, f"cube {cube!r}", expected)


def make_cube_arguments(model: Any, reference: str, cubes: Cubes | None) -> tuple[Any, ...]:
    """Return the additional argument for a head whose class has a `cube`; an empty tuple for other heads.

    Raises:
        ModelPackageError: The head needs images, but there is only a table of features.
    """
    if (size := getattr(type(model), "cube", None)) is None:
        return ()
    if cubes is None:
        raise ModelPackageError(f"head {reference}", "needs images, but there are no images", "a head without cube")
    return (cubes(*size),)


def call_head(reference: str, step: str, function: Callable[..., Any], *values: Any) -> Any:
    """Call a function of the custom head. Raises `ModelPackageError` if it fails."""
    return call_code(f"head {reference}: {step}", "an answer", function, *values)


def make_feature_frame(patients: Patients, features: Sequence[str]) -> Any:
    """Return the features of patients as a DataFrame, one row for each patient; NaN for a missing value."""
    import pandas as pd  # only a custom head needs it

    return pd.DataFrame(patients.values(features), columns=list(features))


def compute_predictions(reference: str, model: Any, frame: Any, scores: int, cubes: Cubes | None) -> Floats:
    """Compute the predictions of a custom head, shape (patients,), or (patients, scores) for several scores.

    Raises:
        ModelPackageError: The code fails, or returns another shape, NaN, infinity or something other than numbers.
    """
    what, shape = f"head {reference}: predict", (len(frame), scores) if scores > 1 else (len(frame),)
    values = call_head(reference, "predict", model.predict, frame, *make_cube_arguments(model, reference, cubes))
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelPackageError(what, f"found a {type(values).__name__}", f"numbers of shape {shape}") from None
    if array.shape != shape:
        raise ModelPackageError(what, f"found shape {array.shape}", f"{shape}")
    usable = (np.abs(array) < _MAX_ABS_SCORE).reshape(len(frame), -1).all(1)
    if not usable.all():
        actual = (
            f"found NaN, infinity or numbers of {_MAX_ABS_SCORE:g} for {int((~usable).sum())} of {len(frame)} patients"
        )
        raise ModelPackageError(what, actual, "finite numbers")
    return array


class NotAskedError(ModelPackageError):
    """The answer needs user code, which runs only in the last attempt."""


class _Predictor:
    """Function that loads a custom head at its first call, and predicts with it.

    A lack of memory is an error of the head, like an error of its code.
    """

    def __init__(self, head: CustomHead, code: Code, folder: Path) -> None:
        self._reference, self._features = head.hook, head.features
        self._scores = len(head.fitted) if len(head.fitted) > 2 else 1
        self._code, self._folder, self._model = code, folder / head.folder, None

    def __call__(self, patients: Patients) -> Floats:
        try:
            if self._model is None:
                head = find_head(self._code, self._reference)
                self._model = call_head(self._reference, "load", head.load, self._folder)
            frame = make_feature_frame(patients, self._features)
            return compute_predictions(self._reference, self._model, frame, self._scores, patients.cubes)
        except MemoryError:
            raise ModelPackageError(f"head {self._reference}", "too little memory", "an answer") from None


def list_custom_heads(head: Head) -> list[CustomHead]:
    """Return the head itself if it is custom, or the custom heads among the experts of an ensemble."""
    parts = [expert.head for expert in head.experts] if isinstance(head, EnsembleHead) else [head]
    return [part for part in parts if isinstance(part, CustomHead)]


def replace_custom(head: Head, change: Callable[[CustomHead], CustomHead]) -> Head:
    """Return the head with every custom head replaced by what `change` returns for it."""
    if isinstance(head, CustomHead):
        return change(head)
    if isinstance(head, EnsembleHead) and list_custom_heads(head):
        parts = [change(expert.head) if isinstance(expert.head, CustomHead) else expert.head for expert in head.experts]
        pairs = zip(head.experts, parts, strict=True)
        return head.model_copy(
            update={"experts": tuple(expert.model_copy(update={"head": part}) for expert, part in pairs)}
        )
    return head


def bind_code(head: Head, code: Code, folder: Path) -> Head:
    """Return the head with its user code from `code`, and the files of custom heads below `folder`.

    No user code is imported before the head predicts.
    """
    return replace_custom(head, lambda custom: custom.with_predict(_Predictor(custom, code, folder)))


def disable_user_code(head: Head) -> Head:
    """Return the head with user code disabled: each custom head raises `NotAskedError` instead of predicting."""

    def fail(hook: str, _patients: Patients) -> Floats:
        raise NotAskedError(f"head {hook}", "has not answered yet")

    return replace_custom(head, lambda custom: custom.with_predict(partial(fail, custom.hook)))


def list_head_folders(heads: Iterable[Head]) -> list[str]:
    """Return the names of the folders of code that the custom heads need, sorted."""
    return sorted({split_reference(custom.hook, "head")[0] for head in heads for custom in list_custom_heads(head)})


def check_custom_heads(heads: Iterable[Head], code: Code) -> None:
    """Check that the class of each custom head exists in the code; raise `ModelPackageError` if one does not."""
    for hook in dict.fromkeys(custom.hook for head in heads for custom in list_custom_heads(head)):
        find_head(code, hook)
