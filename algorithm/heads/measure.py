"""Named features with units from a mask, CT and PET on one grid, and from the clinical variables.

docs/heads.md lists them; `structure` and `location` define them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import Features
from algorithm.heads.location import distances, neighbours, nodal, spread_mm
from algorithm.heads.structure import (
    THRESHOLD_NAMES,
    Structure,
    components,
    density,
    dose_on,
    dose_volume,
    glycolysis,
    measure_thresholds,
    remove_specks,
    shape,
    statistics,
    structure_of,
)
from algorithm.heads.values import stage_features
from contract import labels
from contract.editions.clinical import CENTRE, ClinicalVariable
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes
from contract.patient import Patient

_Image = npt.NDArray[np.float32]
# Increment when a feature is measured otherwise under the same name.
_DEFINITIONS: Final = 3


def image_features(
    mask: npt.NDArray[np.uint8],
    ct: _Image,
    pet: _Image | None,
    grid: Geometry,
    dose: Volume | None = None,
    smallest: MinLesionSizes = DEFAULT_MIN_LESION_SIZES,
) -> dict[str, float | None]:
    """Return the features of GTVp, GTVn and both together.

    Args:
        mask: labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None without a usable PET.
        grid: gives voxel volume and distances.
        dose: the planned dose in Gy on a grid of its own, or None.
        smallest: parts of the mask that are smaller have volume, uptake, density and dose, but no number, shape,
            position and stage.

    Returns:
        Values by name with unit. A value is None if it cannot be measured: intensities of an absent lesion, features
        of an absent PET or dose, distances between fewer than two lesions (except `spread_mm`, which is 0). An absent
        lesion's volumes and glycolysis are 0.
    """
    whole = {"gtvp": structure_of(mask == labels.GTVP, grid), "gtvn": structure_of(mask == labels.GTVN, grid)}
    mask = remove_specks(mask, grid, smallest)
    primary, nodes = structure_of(mask == labels.GTVP, grid), components(mask == labels.GTVN, grid)
    lesions = components(mask > 0, grid)
    gray = None if dose is None else dose_on(dose, grid)
    features: dict[str, float | None] = {}
    for name, structure in whole.items():
        measured = _structure(structure, ct, pet) | dose_volume(structure, gray)
        features |= {f"{name}_{key}": value for key, value in measured.items()}
    of_primary = shape(primary) | _extents(primary) | neighbours(primary, ct)
    features |= {f"gtvp_{key}": value for key, value in of_primary.items()}
    features |= nodal(primary, nodes, ct, grid)
    features |= _totals(features)
    features["spread_mm"] = spread_mm(lesions)
    features |= distances(primary, nodes, lesions)
    return features | stage_features(features)


@cache
def image_feature_names() -> frozenset[str]:
    """Return the names of the features that `image_features` gives, with or without lesions."""
    grid = Geometry((8, 8, 8), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[1:3, 1:3, 1:3], mask[5:7, 1:3, 1:3], mask[5:7, 5:7, 5:7] = labels.GTVP, labels.GTVN, labels.GTVN
    image = np.ones(grid.array_shape, np.float32)
    whole = image_features(mask, image, image, grid, Volume(image, grid))
    return frozenset(whole) | frozenset(image_features(np.zeros_like(mask), image, None, grid))


def features_version(smallest: MinLesionSizes) -> str:
    """Return a digest of names, definitions and limits: stored features of another version are measured again."""
    made_from = f"{_DEFINITIONS} {sorted(image_feature_names())} {smallest}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def clinical_features(patient: Patient, clinical: Sequence[ClinicalVariable]) -> dict[str, float | None]:
    """Return the edition's `clinical` variables as numbers, by the names of their features; None is missing."""
    return {
        variable.feature: variable.as_feature(patient.values.get(variable.name))
        for variable in clinical
        if variable.name != CENTRE
    }


def clinical_names(clinical: Sequence[ClinicalVariable]) -> tuple[str, ...]:
    """Return the names of the features that `clinical_features` gives."""
    return tuple(variable.feature for variable in clinical if variable.name != CENTRE)


def _structure(structure: Structure | None, ct: _Image, pet: _Image | None) -> dict[str, float | None]:
    return {
        "volume_ml": 0.0 if structure is None else structure.volume_ml,
        "tlg": glycolysis(structure, pet),
        **statistics(structure, pet),
        **measure_thresholds(structure, pet),
        **density(structure, ct),
    }


def _extents(structure: Structure | None) -> dict[str, float | None]:
    extents = (None, None, None) if structure is None else structure.extent_mm
    return {f"extent_{axis}_mm": mm for axis, mm in zip("zyx", extents, strict=True)}


def _totals(features: Features) -> dict[str, float | None]:
    """Return the sums and maxima over GTVp and GTVn."""
    sums = {"total_volume_ml": "volume_ml", "total_lesion_glycolysis": "tlg"} | {n: n for n in THRESHOLD_NAMES}
    totals = {name: _sum(features[f"gtvp_{part}"], features[f"gtvn_{part}"]) for name, part in sums.items()}
    for name in ("suv_max", "suv_peak"):
        known = [value for key in ("gtvp", "gtvn") if (value := features[f"{key}_{name}"]) is not None]
        totals[name] = max(known, default=None)
    return totals


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
