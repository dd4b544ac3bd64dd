"""Positions of the lesions: distances between them, their dispersion, and bilateral nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from algorithm.case.read import BODY_HU
from algorithm.heads.features.structure import Feature, Structure
from contract.images.geometry import Geometry

# A node this close to the midline counts for neither side.
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


def bilateral(nodes: Sequence[Structure], ct: npt.NDArray[np.float32], grid: Geometry) -> Feature:
    """1 for nodes on both sides of the midline, else 0; None if the CT shows no body in the slices of a node.

    The midline is the centre of the body in the slices that the node occupies; nodes within 5 mm of it count for
    neither side.
    """
    sides = [_side(node, ct, grid) for node in nodes]
    known = [side for side in sides if side is not None]
    if 1 in known and -1 in known:
        return 1.0
    return 0.0 if len(known) == len(sides) else None


def _dispersion(lesions: Sequence[Structure]) -> float:
    places = np.asarray([lesion.centre_mm for lesion in lesions])
    away = places - places.mean(axis=0)
    return float(np.sqrt((away**2).sum(1).mean()))


def _side(node: Structure, ct: npt.NDArray[np.float32], grid: Geometry) -> int | None:
    """1 on the patient's left, -1 on the right, 0 on neither; None without a body."""
    slices = node.box[0]
    body = np.argwhere(ct[slices] > BODY_HU)
    if not len(body):
        return None
    middle = (body.mean(0) + np.array([slices.start, 0, 0])) * node.spacing_mm
    # Component of each grid axis (x, y, z) towards the patient's left.
    leftwards = np.asarray(grid.direction).reshape(3, 3)[0]
    offset = float(leftwards @ (node.centre_mm - middle)[::-1])
    return 0 if abs(offset) <= MIDLINE_MM else int(np.sign(offset))
