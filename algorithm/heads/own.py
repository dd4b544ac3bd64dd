"""An entrant's own heads as documents: the name of a class in their code, and the folder of its files.

`algorithm.heads.head_hook` calls the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, PrivateAttr, model_validator

from algorithm.heads.parts import Calibration, HeadDocument, Number, PositiveNumber, Survival
from contract.documents import Text
from contract.errors import ModelPackageError

Features = Mapping[str, float | None]
Floats = npt.NDArray[np.float64]
# Images around the tumours of the same patients by voxels and spacing: shape (patients, 4, z, y, x), NaN without one.
Cubes = Callable[[int, float], npt.NDArray[np.float32]]
Predict = Callable[[Sequence[Features], Cubes | None], Floats]
# Faults of experts that an ensemble goes without.
Faults = list[ModelPackageError]
# Score of a class without training patients, far below any other.
NEVER: Final = -1e6


class _OwnHead(HeadDocument):
    """A head of an entrant's code, with its files beside this document.

    Attributes:
        hook: the class, such as `my_model:Forest`.
        code_sha256: of the code that it was fitted with.
        folder: of its files, from the folder of the heads.
        files_sha256: of these files.
        features: the columns that it was fitted with; it is called with them in this order.
    """

    hook: Text
    code_sha256: str
    folder: Text
    files_sha256: str
    features: tuple[str, ...]
    _predict: Predict | None = PrivateAttr(None)

    def bound(self, predict: Predict | None) -> Self:
        """The head with the function that calls its code, None for none."""
        head = self.model_copy()
        head._predict = predict
        return head

    def of_rows(self, rows: Sequence[Features], cubes: Cubes | None = None) -> Floats:
        """What the code returns for patients. Raises `ModelPackageError` if it fails or is not there."""
        if self._predict is None:
            raise ModelPackageError(f"head {self.hook}", "its code is not loaded", "--code")
        return self._predict(rows, cubes)

    def missing(self, _features: Features) -> tuple[()]:
        """Nothing: the code gets missing values as NaN."""
        return ()


class OwnHead(_OwnHead):
    """An entrant's head with one score, standardised by `mean` and `sd`; the other parts are those of a linear head."""

    mean: Number = 0.0
    sd: PositiveNumber = 1.0
    threshold: Number | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None

    def scores_of_rows(self, rows: Sequence[Features], cubes: Cubes | None = None) -> Floats:
        """Standardised scores of patients, shape (patients,)."""
        return (self.of_rows(rows, cubes) - self.mean) / self.sd

    def score(self, features: Features, cubes: Cubes | None = None, _faults: Faults | None = None) -> float:
        """The standardised score."""
        return float(self.scores_of_rows([features], cubes)[0])


class OwnClassHead(_OwnHead):
    """An entrant's head with a score for each class of `fitted`; the other classes never win."""

    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    fitted: Annotated[tuple[str, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _is_fitted_to_classes(self) -> OwnClassHead:
        if not set(self.fitted) <= set(self.classes):
            raise ValueError(f"in fitted only classes of {', '.join(self.classes)}")
        return self

    def scores_of_rows(self, rows: Sequence[Features], cubes: Cubes | None = None) -> Floats:
        """Scores of patients, shape (patients, classes)."""
        scores = np.full((len(rows), len(self.classes)), NEVER)
        scores[:, [self.classes.index(name) for name in self.fitted]] = self.of_rows(rows, cubes)
        return scores

    def scores(self, features: Features, cubes: Cubes | None = None, _faults: Faults | None = None) -> dict[str, float]:
        """The score of each class; only their order has a meaning."""
        return dict(zip(self.classes, self.scores_of_rows([features], cubes)[0].tolist(), strict=True))


OWN_HEADS: Final = (OwnHead, OwnClassHead)
