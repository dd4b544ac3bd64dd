"""Number, size, side and height of the lymph nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.places import bilateral, contralateral, heights, offset_mm
from algorithm.heads.features.shape import diameter_mm, mesh, shape
from algorithm.heads.features.structure import Feature, Structure
from contract.images.geometry import Geometry

# Smaller parts of a mask may be noise; nodes of 10 mm can be predicted with 6 mm.
NODE_MM: Final = 5.0
# Diameter from which a node is usually called enlarged.
ENLARGED_MM: Final = 10.0
# Features of the largest node's shape.
_LARGEST: Final = ("diameter_mm", "sphericity", "elongation", "flatness")


def nodal(
    primary: Structure | None, nodes: Sequence[Structure], ct: npt.NDArray[np.float32], grid: Geometry
) -> dict[str, Feature]:
    """Features of the nodes by name.

    Args:
        primary: the primary tumour, None where absent.
        nodes: the 26-connected parts of GTVn.
        ct: HU on the whole grid.
        grid: gives the directions of the patient.
    """
    by_volume = sorted(nodes, key=lambda node: -node.volume_ml)
    largest = by_volume[0] if by_volume else None
    of_largest = shape(largest)
    diameters = [float(of_largest["diameter_mm"] or 0.0)] if largest else []
    diameters += [diameter_mm(mesh(node)[0]) for node in by_volume[1:]]
    offsets = [offset_mm(node, ct, grid) for node in by_volume]
    # Parts below 5 mm have a side only if there are no others.
    sized = [offset for offset, mm in zip(offsets, diameters, strict=True) if mm >= NODE_MM] or offsets
    primary_mm = None if primary is None else offset_mm(primary, ct, grid)
    return {
        "gtvn_count": float(len(nodes)),
        "gtvn_count_5mm": float(sum(mm >= NODE_MM for mm in diameters)),
        "gtvn_count_10mm": float(sum(mm >= ENLARGED_MM for mm in diameters)),
        "gtvn_largest_ml": 0.0 if largest is None else largest.volume_ml,
        **{f"gtvn_largest_{name}": of_largest[name] for name in _LARGEST},
        "gtvn_largest_extent_z_mm": None if largest is None else largest.extent_mm[0],
        "gtvn_second_diameter_mm": diameters[1] if len(diameters) > 1 else None,
        "gtvn_bilateral": bilateral(offsets),
        "gtvn_contralateral": contralateral(primary_mm, sized),
        "gtvp_midline_mm": None if primary_mm is None else abs(primary_mm),
        **heights(primary, nodes, grid),
    }
