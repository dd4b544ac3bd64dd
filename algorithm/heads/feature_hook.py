"""An entrant's own features: named numbers, measured by the same code in training and in inference.

They are measured by a class in the entrant's code. It needs no import of ours (docs/own-model.md)::

    class Features:
        names = {"rim_suv": "SUV"}                     # name and unit of each feature
        def measure(self, mask, ct, pet, dose, spacing_mm, clinical): ...   # {"rim_suv": 3.2}

A feature enters the heads as `my_code:rim_suv`, so that its name cannot collide with that of another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import Features, Head
from algorithm.heads.features.intensity import dose_on
from algorithm.heads.parts import LARGEST_NUMBER
from contract.code import Code, check_spelling, failure_of
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

# Its name in a folder of code.
FEATURES: Final = "Features"
_KIND: Final = "features"
_SEPARATOR: Final = ":"
_NAMES: Final = 'names of features with units, such as {"rim_suv": "SUV"}'


@dataclass(frozen=True)
class FeatureImages:
    """The images and the patient that features are measured on.

    Attributes:
        mask: labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None without a usable PET.
        grid: the grid.
        dose: the planned dose in Gy on a grid of its own, or None.
        clinical: clinical features by name, None for a missing one.
    """

    mask: npt.NDArray[np.uint8]
    ct: npt.NDArray[np.float32]
    pet: npt.NDArray[np.float32] | None
    grid: Geometry
    dose: Volume | None
    clinical: Features


@dataclass(frozen=True)
class OwnFeatures:
    """The class `Features` in one folder of an entrant's code."""

    code: Code
    folder: str

    @property
    def reference(self) -> str:
        """The class, such as `my_code:Features`."""
        return f"{self.folder}{_SEPARATOR}{FEATURES}"

    @cached_property
    def units(self) -> dict[str, str]:
        """Units by the names that heads use. Raises `ModelPackageError` for a class that declares none."""
        hook = self.code.find(self.reference, _KIND)
        check_spelling(hook, ("names",), f"{_KIND} {self.reference}")
        names = getattr(hook, "names", None)
        if not isinstance(names, Mapping) or not names or not all(map(_is_declared, names.items())):
            raise ModelPackageError(f"{_KIND} {self.reference}", f"found names {names!r}", _NAMES)
        if not callable(getattr(hook, "measure", None)):
            raise ModelPackageError(f"{_KIND} {self.reference}", "no method measure", "measure")
        return {f"{self.folder}{_SEPARATOR}{name}": unit for name, unit in names.items()}

    def measured(self, images: FeatureImages) -> dict[str, float | None]:
        """The features of one patient by the names that heads use.

        The entrant's code gets copies, so that it changes no image of ours.

        Raises:
            ModelPackageError: it fails, or returns other names, or something else than finite numbers and None.
        """
        what, names = f"{_KIND} {self.reference}", [name.partition(_SEPARATOR)[2] for name in self.units]
        values = self._returned(images)
        if not isinstance(values, Mapping) or set(values) != set(names):
            found = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
            raise ModelPackageError(what, f"measure returns {found}", f"values of {', '.join(names)}")
        if bad := [name for name in names if not _is_value(values[name])]:
            raise ModelPackageError(what, f"{bad[0]} is {values[bad[0]]!r}", "a finite number, or None if missing")
        return {f"{self.folder}{_SEPARATOR}{name}": _as_float(values[name]) for name in names}

    def _returned(self, images: FeatureImages) -> Any:
        dose = None if images.dose is None else dose_on(images.dose, images.grid)
        arrays = [None if one is None else one.copy() for one in (images.mask, images.ct, images.pet, dose)]
        hook = self.code.find(self.reference, _KIND)
        try:
            return hook().measure(*arrays, images.grid.spacing_mm, dict(images.clinical))
        except MemoryError:
            raise
        except (Exception, SystemExit) as problem:
            raise ModelPackageError(
                f"{_KIND} {self.reference}: measure", f"found {failure_of(problem)}", "values"
            ) from problem


def _is_declared(pair: tuple[Any, Any]) -> bool:
    name, unit = pair
    return isinstance(name, str) and name.isidentifier() and isinstance(unit, str)


def _is_value(value: Any) -> bool:
    if value is None:
        return True
    number = _as_float(value)
    return number is not None and math.isfinite(number) and abs(number) < LARGEST_NUMBER


def _as_float(value: Any) -> float | None:
    """A number, also one of numpy or torch; None for anything else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def own_features(code: Code | None) -> list[OwnFeatures]:
    """The classes `Features` in the given code. Raises `ModelPackageError` if an import fails."""
    return [] if code is None else [OwnFeatures(code, name.partition(_SEPARATOR)[0]) for name in code.offered(FEATURES)]


def folders_of(heads: Iterable[Head]) -> list[str]:
    """The folders of code that measure the own features of these heads, sorted."""
    names = {name for head in heads for name in head.features if _SEPARATOR in name}
    return sorted({name.partition(_SEPARATOR)[0] for name in names})
