"""Features by a hook: named numbers, measured by the same code in training and in inference.

They are measured by a class in user code. It needs no import of ours (docs/own-model.md)::

    class Features:
        names = {"rim_suv": "SUV"}                     # name and unit of each feature
        def measure(self, mask, ct, pet, dose, spacing_mm, clinical): ...   # {"rim_suv": 3.2}

With `cube`, voxels per side and their size in mm, it gets the images around the tumour instead. A class with `fit` is
fitted once per training fold, constructed from the files that the fit wrote, and answers with the mean over the folds::

    class Features:
        names = {"deep_risk": "log hazard"}
        cube = (48, 2.0)
        @classmethod
        def fit(cls, folder, device, cubes, clinical, outcomes, seed): ...
        def __init__(self, folder, device): ...
        def measure(self, cube, clinical): ...

A custom feature enters the heads as `my_code:rim_suv`, so that names of several features cannot collide.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.deadline import Deadline
from algorithm.heads.documents import Features, Head
from algorithm.heads.head_hook import check_cube
from algorithm.heads.parts import LARGEST_NUMBER
from algorithm.heads.structure import resample_dose
from algorithm.region.grids import resample
from contract import labels
from contract.code import Code, call_code
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

LOGGER = logging.getLogger("hecktor")

# Name of the class in a folder of code, and folder of fitted features in a package.
FEATURES: Final = "Features"
FOLDER: Final = "features"
_KIND: Final = "features"
_SEPARATOR: Final = ":"
_NAMES: Final = 'names of features with units, such as {"rim_suv": "SUV"}'
# Channels of a cube: CT, PET, GTVp and GTVn.
CUBE_CHANNELS: Final = 4
AIR_HU: Final = -1000.0
# The soft-tissue window, and the SUV at which the PET is clipped.
_LOWEST_HU: Final = -200.0
_HIGHEST_HU: Final = 300.0
_HIGHEST_SUV: Final = 25.0
_SUV_UNIT: Final = 5.0

Cube = npt.NDArray[np.float32]


def make_tumour_cube(
    mask: npt.NDArray[np.uint8], ct: Cube, pet: Cube, grid: Geometry, voxels: int, spacing_mm: float
) -> Cube | None:
    """CT, PET, GTVp and GTVn, shape (4, voxels, voxels, voxels); None without a tumour.

    The cube is centred on the centroid of GTVp, or of GTVn without GTVp. CT and PET are scaled to about -1 to 1 and
    0 to 5; the masks are shares of each voxel.

    Args:
        mask: Labels in (z, y, x) on `grid`.
        ct: HU on `grid`.
        pet: SUV on `grid`.
        grid: The segmentation's grid.
        voxels: Edge of the cube.
        spacing_mm: Size of its voxels.
    """
    centre = _centre_mm(mask, grid)
    if centre is None:
        return None
    x, y, z = (float(value) for value in centre - (voxels - 1) / 2 * spacing_mm)
    cube = Geometry((voxels, voxels, voxels), (spacing_mm, spacing_mm, spacing_mm), (x, y, z))
    density = np.clip(resample(Volume(ct, grid), cube, AIR_HU), _LOWEST_HU, _HIGHEST_HU)
    middle, half = (_HIGHEST_HU + _LOWEST_HU) / 2, (_HIGHEST_HU - _LOWEST_HU) / 2
    uptake = np.clip(resample(Volume(pet, grid), cube, 0.0), 0.0, _HIGHEST_SUV)
    shares = [resample(Volume((mask == label).astype(np.float32), grid), cube, 0.0) for label in labels.FOREGROUND]
    return np.stack([(density - middle) / half, uptake / _SUV_UNIT, *shares]).astype(np.float32)


def make_empty_cube(voxels: int, _spacing_mm: float) -> Cube:
    """Return the cube of one patient without a PET or a tumour, in the shape of several patients: NaN."""
    return np.full((1, CUBE_CHANNELS, voxels, voxels, voxels), np.nan, np.float32)


def _centre_mm(mask: npt.NDArray[np.uint8], grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Centroid (x, y, z) of the first label that the mask contains."""
    matrix = grid.index_to_physical_matrix()
    for label in labels.FOREGROUND:
        places = np.argwhere(mask == label)
        if len(places):
            return np.asarray(matrix[:3, :3] @ places.mean(0)[::-1] + matrix[:3, 3], dtype=np.float64)
    return None


@dataclass(frozen=True, eq=False)
class FeatureImages:
    """The images and the patient that features are measured on.

    Attributes:
        mask: Labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None without a usable PET.
        grid: The grid.
        dose: The planned dose in Gy on a grid of its own, or None.
        clinical: Clinical features by name, None for a missing one.
    """

    mask: npt.NDArray[np.uint8]
    ct: npt.NDArray[np.float32]
    pet: npt.NDArray[np.float32] | None
    grid: Geometry
    dose: Volume | None
    clinical: Features
    _cubes: dict[tuple[int, float], Cube | None] = field(default_factory=dict)

    def cube(self, voxels: int, spacing_mm: float) -> Cube | None:
        """`make_tumour_cube`, cut once; None without a PET or a tumour."""
        if self.pet is None:
            return None
        size = voxels, spacing_mm
        if size not in self._cubes:
            self._cubes[size] = make_tumour_cube(self.mask, self.ct, self.pet, self.grid, *size)
        return self._cubes[size]

    def cubes(self, voxels: int, spacing_mm: float) -> Cube:
        """Return the cube with a leading axis of one patient; NaN without a PET or a tumour."""
        cube = self.cube(voxels, spacing_mm)
        return make_empty_cube(voxels, spacing_mm) if cube is None else cube[None].copy()


@dataclass(frozen=True)
class FeatureHook:
    """The class `Features` in one folder of user code.

    `folds` are the folders of its fitted files, one per fold; empty for a class that is not fitted.
    """

    code: Code
    name: str
    folds: tuple[Path, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # Another process imports the class from its folder: its name is not enough to find it there.
        return {"code": self.code, "name": self.name, "folds": self.folds}

    @property
    def title(self) -> str:
        """Name of the hook in the log."""
        return f"features of {self.name}"

    @property
    def reference(self) -> str:
        """Return the class, such as `my_code:Features`."""
        return f"{self.name}{_SEPARATOR}{FEATURES}"

    @property
    def prefix(self) -> str:
        """Prefix of its features' names in the heads."""
        return f"{self.name}{_SEPARATOR}"

    @cached_property
    def hook(self) -> Any:
        """Return the class. Raises `ModelPackageError` for a missing method or an impossible attribute."""
        hook = self.code.find(self.reference, _KIND)
        if not callable(getattr(hook, "measure", None)):
            raise ModelPackageError(f"{_KIND} {self.reference}", "no method measure", "measure")
        check_cube(hook, f"{_KIND} {self.reference}")
        if hasattr(hook, "fit") and not hasattr(hook, "cube"):
            raise ModelPackageError(f"{_KIND} {self.reference}", "fit without cube", "cube, such as (48, 2.0)")
        return hook

    @property
    def is_fitted(self) -> bool:
        """True for a class that is fitted to outcomes."""
        return hasattr(self.hook, "fit")

    @cached_property
    def units(self) -> dict[str, str]:
        """Units by the names that heads use. Raises `ModelPackageError` for a class that declares none."""
        names = getattr(self.hook, "names", None)
        if not isinstance(names, Mapping) or not names or not all(map(_is_declared, names.items())):
            raise ModelPackageError(f"{_KIND} {self.reference}", f"found names {names!r}", _NAMES)
        return {f"{self.prefix}{name}": unit for name, unit in names.items()}

    def measure_features(
        self, images: FeatureImages, deadline: Deadline | None = None, device: str = "cpu"
    ) -> dict[str, float | None]:
        """Return the features of one patient by the names that heads use: the mean over the folds.

        The code gets copies, so it cannot change the images. Folds are left out when time runs short; without time for
        any fold the result is empty.

        Raises:
            ModelPackageError: The code fails, or returns other names, or values other than finite numbers and None.
            MemoryError, RuntimeError: raised by the code; RuntimeError only on a GPU, which may have failed.
        """
        if not self.folds:
            return self._measure(self.make_instance(None, device), images, device)
        rows, longest_s = list[dict[str, float | None]](), 0.0
        if deadline is not None and (deadline.is_stopped() or deadline.left_s() <= 0):
            LOGGER.warning("%s: left out, no time", self.title)
            return {}
        for fold in self.folds:
            if deadline is not None and (deadline.is_stopped() or (rows and not deadline.fits(longest_s))):
                LOGGER.warning("%s: no time for %d folds", self.title, len(self.folds) - len(rows))
                break
            started_s = 0.0 if deadline is None else deadline.elapsed_s()
            rows.append(self._measure(self.make_instance(fold, device), images, device))
            longest_s = max(longest_s, 0.0 if deadline is None else deadline.elapsed_s() - started_s)
        LOGGER.info("%s: %d of %d folds on %s", self.title, len(rows), len(self.folds), device)
        return {name: _mean([row[name] for row in rows]) for name in rows[0]} if rows else {}

    def make_instance(self, fold: Path | None, device: str) -> Any:
        """Return an object of the class; of a fitted class from the files of one fold. Raises as `measure_features`."""
        return self._call("made", device, self.hook, *(() if fold is None else (fold, device)))

    def measure_cube(self, hook: Any, cube: Cube, clinical: Features, device: str) -> dict[str, float | None]:
        """Return the features measured on one patient's cube. Raises as `measure_features`."""
        return self._check_values(self._call("measure", device, hook.measure, cube.copy(), dict(clinical)))

    def _measure(self, hook: Any, images: FeatureImages, device: str) -> dict[str, float | None]:
        if (size := getattr(self.hook, "cube", None)) is not None:
            if (cube := images.cube(*size)) is None:
                absent = "PET" if images.pet is None else "tumour"
                LOGGER.info("%s: left out, no %s", self.title, absent)
                return dict.fromkeys(self.units)
            return self.measure_cube(hook, cube, images.clinical, device)
        dose = None if images.dose is None else resample_dose(images.dose, images.grid)
        arrays = [None if array is None else array.copy() for array in (images.mask, images.ct, images.pet, dose)]
        clinical = dict(images.clinical)
        return self._check_values(
            self._call("measure", device, hook.measure, *arrays, images.grid.spacing_mm, clinical)
        )

    def _check_values(self, values: Any) -> dict[str, float | None]:
        what, names = f"{_KIND} {self.reference}", [name.removeprefix(self.prefix) for name in self.units]
        if not isinstance(values, Mapping) or set(values) != set(names):
            actual = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
            raise ModelPackageError(what, f"measure returns {actual}", f"values of {', '.join(names)}")
        if bad := [name for name in names if not _is_value(values[name])]:
            raise ModelPackageError(what, f"{bad[0]} is {values[bad[0]]!r}", "a finite number, or None if missing")
        return {f"{self.prefix}{name}": _as_float(values[name]) for name in names}

    def call(self, step: str, function: Any, *values: Any, passes: Callable[[BaseException], bool]) -> Any:
        """Call a function of the code; failures that `passes` accepts are raised as they are."""
        return call_code(f"{_KIND} {self.reference}: {step}", "values", function, *values, should_propagate=passes)

    def _call(self, step: str, device: str, function: Any, *values: Any) -> Any:
        stopped = MemoryError if device == "cpu" else (MemoryError, RuntimeError)
        return self.call(step, function, *values, passes=lambda problem: isinstance(problem, stopped))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _is_declared(pair: tuple[Any, Any]) -> bool:
    name, unit = pair
    return isinstance(name, str) and name.isidentifier() and isinstance(unit, str)


def _is_value(value: Any) -> bool:
    if value is None:
        return True
    number = _as_float(value)
    return number is not None and math.isfinite(number) and abs(number) < LARGEST_NUMBER


def _as_float(value: Any) -> float | None:
    """Return a number, also one of numpy or torch; None for anything else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def list_feature_hooks(code: Code | None) -> list[FeatureHook]:
    """Return the classes `Features` in the given code. Raises `ModelPackageError` if an import fails."""
    return (
        []
        if code is None
        else [FeatureHook(code, name.partition(_SEPARATOR)[0]) for name in code.find_classes(FEATURES)]
    )


def list_feature_folders(heads: Iterable[Head]) -> list[str]:
    """Return the folders of code that measure the own features of these heads, sorted."""
    names = {name for head in heads for name in head.features if _SEPARATOR in name}
    return sorted({name.partition(_SEPARATOR)[0] for name in names})


def find_hooks(root: Path, heads: Iterable[Head], code: Code) -> tuple[FeatureHook, ...]:
    """Return the hooks that measure features of these heads, with their fitted files below `root`."""
    return tuple(FeatureHook(code, name, list_fold_folders(root, name)) for name in list_feature_folders(heads))


def list_fold_folders(root: Path, name: str) -> tuple[Path, ...]:
    """Return the folders of a fitted hook's files, in the order of the folds."""
    folders = (path for path in (root / FOLDER / name).glob("fold_*") if path.is_dir())
    return tuple(sorted(folders, key=lambda path: (len(path.name), path.name)))
