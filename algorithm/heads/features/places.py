"""Positions of the lesions: distances, dispersion, heights, and sides of the midline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from algorithm.case.read import BODY_HU
from algorithm.heads.features.structure import Feature, Structure
from contract.images.geometry import Geometry

# A lesion this close to the midline counts for neither side.
MIDLINE_MM: Final = 5.0


def spread_mm(lesions: Sequence[Structure]) -> float:
    """Largest distance between the centres of any two lesions; 0 with fewer than two."""
    return float(pdist([lesion.centre_mm for lesion in lesions]).max()) if len(lesions) > 1 else 0.0


def distances(
    primary: Structure | None, nodes: Sequence[Structure], lesions: Sequence[Structure]
) -> dict[str, Feature]:
    """Largest distance between two nodes, largest distance of a node from the primary, and dispersion of the lesions.

    All are in mm between centres; None with too few lesions. The dispersion is the root mean square distance of the
    lesions' centres from their common centre.
    """
    from_primary = [] if primary is None else [np.linalg.norm(node.centre_mm - primary.centre_mm) for node in nodes]
    return {
        "node_to_node_mm": spread_mm(nodes) if len(nodes) > 1 else None,
        "primary_to_node_mm": float(max(from_primary)) if from_primary else None,
        "dispersion_mm": _dispersion(lesions) if len(lesions) > 1 else None,
    }


def heights(primary: Structure | None, nodes: Sequence[Structure], grid: Geometry) -> dict[str, Feature]:
    """How far the highest node lies above the primary and the lowest one below it, in mm between centres.

    Negative for nodes that are all on the other side; None without primary or nodes.
    """
    names = "gtvn_highest_above_gtvp_mm", "gtvn_lowest_below_gtvp_mm"
    if primary is None or not nodes:
        return dict.fromkeys(names)
    upwards = _components_towards(grid, axis=2)
    above = [float(upwards @ (node.centre_mm - primary.centre_mm)) for node in nodes]
    return dict(zip(names, (max(above), -min(above)), strict=True))


def offset_mm(lesion: Structure, ct: npt.NDArray[np.float32], grid: Geometry) -> Feature:
    """Distance of a lesion's centre from the midline, positive on the patient's left; None without a body.

    The midline is the centre of the body in the slices that the lesion occupies.
    """
    rows = np.flatnonzero(lesion.inside.any(axis=(1, 2))) + lesion.box[0].start
    body = ct[rows[0] : rows[-1] + 1] > BODY_HU
    voxels = np.count_nonzero(body)
    if not voxels:
        return None
    # Sums along each axis give the same centre as the list of all voxels, in a tenth of the time.
    along = [np.count_nonzero(body, axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    centre = np.array([np.arange(len(counts)) @ counts / voxels for counts in along]) + np.array([rows[0], 0, 0])
    return float(_components_towards(grid, axis=0) @ (lesion.centre_mm - centre * lesion.spacing_mm))


def bilateral(nodes_mm: Sequence[Feature]) -> Feature:
    """1 for nodes on both sides of the midline, else 0, by the `offset_mm` of each node.

    Nodes within 5 mm of the midline are on neither side. None if a node without an offset could decide.
    """
    known = _sides(nodes_mm)
    if {1, -1} <= known:
        return 1.0
    return None if None in nodes_mm else 0.0


def contralateral(primary_mm: Feature, nodes_mm: Sequence[Feature]) -> Feature:
    """1 for a node on the other side than the primary, else 0, by `offset_mm`; `bilateral` for a primary on no side.

    None if the primary, or a node that could decide, has no offset.
    """
    if primary_mm is None:
        return None
    if not (side := _side(primary_mm)):
        return bilateral(nodes_mm)
    if -side in _sides(nodes_mm):
        return 1.0
    return None if None in nodes_mm else 0.0


def _sides(offsets_mm: Sequence[Feature]) -> set[int]:
    return {_side(offset) for offset in offsets_mm if offset is not None}


def _side(offset: float) -> int:
    """1 on the patient's left, -1 on the right, 0 on neither."""
    return 0 if abs(offset) <= MIDLINE_MM else int(np.sign(offset))


def _dispersion(lesions: Sequence[Structure]) -> float:
    places = np.asarray([lesion.centre_mm for lesion in lesions])
    away = places - places.mean(axis=0)
    return float(np.sqrt((away**2).sum(1).mean()))


def _components_towards(grid: Geometry, axis: int) -> npt.NDArray[np.float64]:
    """Component of each array axis (z, y, x) along an axis of the patient: left (0), posterior (1) or superior (2)."""
    return np.asarray(grid.direction, dtype=np.float64).reshape(3, 3)[axis, ::-1]
