"""Custom features: named numbers that user code measures, in the same way in training and in inference.

User code defines a class, which need not import this project (docs/own-model.md)::

    class Features:
        names = {"rim_suv": "SUV"}                     # name and unit of each feature
        def measure(self, mask, ct, pet, dose, spacing_mm, clinical): ...   # {"rim_suv": 3.2}

If the class has a `cube`, voxels per side and their size in mm, it gets the images around the tumour instead. A class
with `fit` is fitted once per training fold and constructed from the files that `fit` wrote; the features of a new case
are the mean over the folds::

    class Features:
        names = {"deep_risk": "log hazard"}
        cube = (48, 2.0)
        @classmethod
        def fit(cls, folder, device, cubes, clinical, outcomes, seed): ...
        def __init__(self, folder, device): ...
        def measure(self, cube, clinical): ...

The heads see a custom feature under the name `my_code:rim_suv`, so that the features of several folders of code have
different names.
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
from algorithm.heads.parts import MAX_NUMBER
from algorithm.heads.structure import resample_dose
from algorithm.region.grids import resample
from contract import labels
from contract.code import Code, call_code
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

LOGGER = logging.getLogger("hecktor")

# Name of the class in a folder of user code, and the folder of fitted features in a package.
FEATURES: Final = "Features"
FOLDER: Final = "features"
_KIND: Final = "features"
_SEPARATOR: Final = ":"
_NAMES: Final = 'names of features with units, such as {"rim_suv": "SUV"}'
# Channels of a cube: CT, PET, GTVp and GTVn.
CUBE_CHANNELS: Final = 4
AIR_HU: Final = -1000.0
# The soft-tissue window, and the SUV at which the PET is clipped.
_MIN_HU: Final = -200.0
_MAX_HU: Final = 300.0
_MAX_SUV: Final = 25.0
_SUV_UNIT: Final = 5.0

Cube = npt.NDArray[np.float32]


def make_tumour_cube(
    mask: npt.NDArray[np.uint8], ct: Cube, pet: Cube, grid: Geometry, voxels: int, spacing_mm: float
) -> Cube | None:
    """Cut a cube around the tumour out of CT, PET and mask.

    The cube is centred on the centroid of GTVp, or of GTVn if there is no GTVp.

    Args:
        mask: Labels in (z, y, x) on `grid`.
        ct: HU on `grid`.
        pet: SUV on `grid`.
        grid: The grid of the segmentation.
        voxels: Number of voxels per side of the cube.
        spacing_mm: Size of the cube's voxels.

    Returns:
        Channels CT, PET, GTVp and GTVn, shape (4, voxels, voxels, voxels); None without a tumour. The CT is scaled to
        -1 to 1, the PET to 0 to 5, and a mask is the fraction of each voxel that it covers.
    """
    centre = _compute_centre_mm(mask, grid)
    if centre is None:
        return None
    x, y, z = (float(value) for value in centre - (voxels - 1) / 2 * spacing_mm)
    cube = Geometry((voxels, voxels, voxels), (spacing_mm, spacing_mm, spacing_mm), (x, y, z))
    density = np.clip(resample(Volume(ct, grid), cube, AIR_HU), _MIN_HU, _MAX_HU)
    middle, half = (_MAX_HU + _MIN_HU) / 2, (_MAX_HU - _MIN_HU) / 2
    uptake = np.clip(resample(Volume(pet, grid), cube, 0.0), 0.0, _MAX_SUV)
    shares = [resample(Volume((mask == label).astype(np.float32), grid), cube, 0.0) for label in labels.FOREGROUND]
    return np.stack([(density - middle) / half, uptake / _SUV_UNIT, *shares]).astype(np.float32)


def make_empty_cube(voxels: int, _spacing_mm: float) -> Cube:
    """Return a cube of NaN for a patient without a PET or a tumour, with a leading axis of one patient."""
    return np.full((1, CUBE_CHANNELS, voxels, voxels, voxels), np.nan, np.float32)


def _compute_centre_mm(mask: npt.NDArray[np.uint8], grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Return the centroid (x, y, z) in mm of GTVp, or of GTVn if there is no GTVp; None for an empty mask."""
    matrix = grid.index_to_physical_matrix()
    for label in labels.FOREGROUND:
        places = np.argwhere(mask == label)
        if len(places):
            return np.asarray(matrix[:3, :3] @ places.mean(0)[::-1] + matrix[:3, 3], dtype=np.float64)
    return None


@dataclass(frozen=True, eq=False)
class FeatureImages:
    """The images and clinical variables of one patient, from which features are measured.

    Attributes:
        mask: Labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None without a usable PET.
        grid: The grid of mask, CT and PET.
        dose: The planned dose in Gy on its own grid, or None.
        clinical: Clinical features by name, None for a missing value.
    """

    mask: npt.NDArray[np.uint8]
    ct: npt.NDArray[np.float32]
    pet: npt.NDArray[np.float32] | None
    grid: Geometry
    dose: Volume | None
    clinical: Features
    _cubes: dict[tuple[int, float], Cube | None] = field(default_factory=dict)

    def cube(self, voxels: int, spacing_mm: float) -> Cube | None:
        """Return the cube of `make_tumour_cube`, which is made once per size; None without a PET or a tumour."""
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

    Attributes:
        code: The user code.
        name: Name of the folder of code.
        folds: Folders of the fitted files, one per fold; empty for a class that is not fitted.
    """

    code: Code
    name: str
    folds: tuple[Path, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # Another process imports the class from its folder: its name is not enough to find it there.
        return {"code": self.code, "name": self.name, "folds": self.folds}

    @property
    def title(self) -> str:
        """Return the name of the hook in the log."""
        return f"features of {self.name}"

    @property
    def reference(self) -> str:
        """Return the class, such as `my_code:Features`."""
        return f"{self.name}{_SEPARATOR}{FEATURES}"

    @property
    def prefix(self) -> str:
        """Return the prefix of its features' names in the heads."""
        return f"{self.name}{_SEPARATOR}"

    @cached_property
    def hook(self) -> Any:
        """Return the class; raise `ModelPackageError` if it does not exist, has no `measure` or has an invalid cube."""
        hook = self.code.find(self.reference, _KIND)
        if not callable(getattr(hook, "measure", None)):
            raise ModelPackageError(f"{_KIND} {self.reference}", "no method measure", "measure")
        check_cube(hook, f"{_KIND} {self.reference}")
        if hasattr(hook, "fit") and not hasattr(hook, "cube"):
            raise ModelPackageError(f"{_KIND} {self.reference}", "fit without cube", "cube, such as (48, 2.0)")
        return hook

    @property
    def is_fitted(self) -> bool:
        """Return whether the class is fitted to outcomes."""
        return hasattr(self.hook, "fit")

    @cached_property
    def units(self) -> dict[str, str]:
        """Return the unit of each feature by the name that heads use.

        Raises:
            ModelPackageError: The class declares no names, or invalid ones.
        """
        names = getattr(self.hook, "names", None)
        if not isinstance(names, Mapping) or not names or not all(map(_is_declared, names.items())):
            raise ModelPackageError(f"{_KIND} {self.reference}", f"found names {names!r}", _NAMES)
        return {f"{self.prefix}{name}": unit for name, unit in names.items()}

    def measure_features(
        self, images: FeatureImages, deadline: Deadline | None = None, device: str = "cpu"
    ) -> dict[str, float | None]:
        """Measure the features of one patient.

        The code receives copies of the images, so it cannot change them. Folds are left out when time runs short.

        Returns:
            The features by the names that heads use, the mean over the folds; empty if there is no time for any fold.

        Raises:
            ModelPackageError: The code fails, or returns other names, or values other than finite numbers and None.
            MemoryError: The code ran out of memory.
            RuntimeError: The code failed on a GPU, which may be lost.
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
        """Construct an object of the class, for a fitted class from the files of a fold.

        Raises:
            ModelPackageError: The code fails; other errors as in `measure_features`.
        """
        return self._call("__init__", device, self.hook, *(() if fold is None else (fold, device)))

    def measure_cube(self, hook: Any, cube: Cube, clinical: Features, device: str) -> dict[str, float | None]:
        """Measure the features of one patient on a cube, by the names that heads use.

        Raises:
            ModelPackageError: The code fails or returns invalid values; other errors as in `measure_features`.
        """
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

    def call(self, step: str, function: Any, *values: Any, should_propagate: Callable[[BaseException], bool]) -> Any:
        """Call a function of the code with `values`.

        Raises:
            ModelPackageError: The code fails; an error for which `should_propagate` returns True is raised unchanged.
        """
        return call_code(
            f"{_KIND} {self.reference}: {step}", "values", function, *values, should_propagate=should_propagate
        )

    def _call(self, step: str, device: str, function: Any, *values: Any) -> Any:
        stopped = MemoryError if device == "cpu" else (MemoryError, RuntimeError)
        return self.call(step, function, *values, should_propagate=lambda problem: isinstance(problem, stopped))


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
    return number is not None and math.isfinite(number) and abs(number) < MAX_NUMBER


def _as_float(value: Any) -> float | None:
    """Convert a number of Python, NumPy or torch to a float; return None for anything else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def list_feature_hooks(code: Code | None) -> list[FeatureHook]:
    """Return a hook for each class `Features` in the code; raise `ModelPackageError` if an import fails."""
    return (
        []
        if code is None
        else [FeatureHook(code, name.partition(_SEPARATOR)[0]) for name in code.find_classes(FEATURES)]
    )


def list_feature_folders(heads: Iterable[Head]) -> list[str]:
    """Return the names of the folders of code that measure custom features of the heads, sorted."""
    names = {name for head in heads for name in head.features if _SEPARATOR in name}
    return sorted({name.partition(_SEPARATOR)[0] for name in names})


def find_hooks(root: Path, heads: Iterable[Head], code: Code) -> tuple[FeatureHook, ...]:
    """Return the hooks that measure custom features of the heads, with their fitted files below `root`."""
    return tuple(FeatureHook(code, name, list_fold_folders(root, name)) for name in list_feature_folders(heads))


def list_fold_folders(root: Path, name: str) -> tuple[Path, ...]:
    """Return the folders of a hook's fitted files in the order of the folds; empty for a hook that is not fitted."""
    folders = (path for path in (root / FOLDER / name).glob("fold_*") if path.is_dir())
    return tuple(sorted(folders, key=lambda path: (len(path.name), path.name)))
