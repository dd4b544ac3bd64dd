"""Named features with units from a mask, CT and PET on one grid, and from the clinical variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from contract import labels
from contract.geometry import Geometry
from contract.patient import Patient

# Within a lesion, voxels below this share of its SUVmax count as cold (necrotic or cystic).
COLD_SHARE: Final = 0.4
CLINICAL: Final = ("age_years", "gender", "tobacco", "alcohol", "performance_status", "treatment", "m1")

Features = Mapping[str, float | None]


def image_features(
    mask: npt.NDArray[np.uint8],
    ct: npt.NDArray[np.float32],
    pet: npt.NDArray[np.float32] | None,
    grid: Geometry,
) -> dict[str, float | None]:
    """Features of GTVp and GTVn.

    Args:
        mask: labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None where there is no usable PET.
        grid: gives voxel volume and distances.

    Returns:
        Names with units to values; an intensity of an absent lesion, or without PET, is None. Volumes in ml,
        total lesion glycolysis in SUV x ml, distances in mm.
    """
    features: dict[str, float | None] = {}
    for label, name in ((labels.GTVP, "gtvp"), (labels.GTVN, "gtvn")):
        inside = mask == label
        features[f"{name}_volume_ml"] = float(np.count_nonzero(inside)) * grid.voxel_volume_mm3 / 1000
        features |= {f"{name}_{key}": value for key, value in _intensities(inside, ct, pet, grid).items()}
    nodes = _components(mask == labels.GTVN)
    features["gtvn_count"] = float(len(nodes))
    features["gtvn_largest_ml"] = max((len(node) for node in nodes), default=0) * grid.voxel_volume_mm3 / 1000
    features["total_volume_ml"] = _sum(features["gtvp_volume_ml"], features["gtvn_volume_ml"])
    features["total_lesion_glycolysis"] = _sum(features["gtvp_tlg"], features["gtvn_tlg"])
    features["spread_mm"] = _spread_mm(mask, grid)
    return features


def clinical_features(patient: Patient) -> dict[str, float | None]:
    """The clinical variables as numbers; None is missing."""
    values: dict[str, Any] = {name: getattr(patient, name) for name in CLINICAL if name != "m1"}
    stage = patient.m_stage
    values["m1"] = None if stage is None else float(stage == "M1")
    return {name: None if value is None else float(value) for name, value in values.items()}


def _intensities(
    inside: npt.NDArray[np.bool_],
    ct: npt.NDArray[np.float32],
    pet: npt.NDArray[np.float32] | None,
    grid: Geometry,
) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(("suv_max", "suv_mean", "tlg", "cold_share", "hu_mean", "hu_sd"))
    if not inside.any():
        found["tlg"] = 0.0
        return found
    hu = ct[inside]
    found["hu_mean"], found["hu_sd"] = float(hu.mean()), float(hu.std())
    if pet is not None:
        suv = pet[inside]
        found["suv_max"], found["suv_mean"] = float(suv.max()), float(suv.mean())
        found["tlg"] = float(suv.sum()) * grid.voxel_volume_mm3 / 1000
        found["cold_share"] = float(np.mean(suv < COLD_SHARE * suv.max()))
    return found


def _components(inside: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """Voxel indices (n, 3) of each 26-connected component."""
    parts, count = ndimage.label(inside, structure=np.ones((3, 3, 3), dtype=bool))
    boxes = ndimage.find_objects(parts)
    return [np.argwhere(parts[boxes[k]] == k + 1) for k in range(count)]


def _spread_mm(mask: npt.NDArray[np.uint8], grid: Geometry) -> float:
    """Largest distance in mm between the centres of any two lesions; 0 with fewer than two."""
    parts, count = ndimage.label(mask > 0, structure=np.ones((3, 3, 3), dtype=bool))
    if count < 2:
        return 0.0
    centres = np.asarray(ndimage.center_of_mass(mask > 0, parts, range(1, count + 1))) * grid.array_spacing_mm
    return float(np.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1)).max())


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
