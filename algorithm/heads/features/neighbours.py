"""Bone and air at the surface of a structure, from the CT."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.features.structure import Feature, Structure

BONE_HU: Final = 250.0
AIR_HU: Final = -500.0
# Bone and air this close to the surface are in contact with it; on coarser grids those in the next voxel are.
REACH_MM: Final = 3.0
NAMES: Final = ("bone_contact", "air_contact", "bone_ml")
_Mask = npt.NDArray[np.bool_]


def neighbours(structure: Structure | None, ct: npt.NDArray[np.float32]) -> dict[str, Feature]:
    """Shares of the surface in contact with bone (above 250 HU) and with air (below -500 HU), and the volume of bone.

    Surface voxels belong to the structure and share a face with one that does not, or with the edge of the grid. They
    are in contact with bone or air within 3 mm, centre to centre, or in a voxel that shares a face. The bone may be
    inside the structure, since a tumour that invades it covers it. `bone_ml` is the bone inside the structure or in
    contact with it. None for an absent structure. `ct` is HU on the whole grid.
    """
    if structure is None:
        return dict.fromkeys(NAMES)
    inside, hu = structure.inside, structure.cut(ct)
    surface = inside & ~ndimage.binary_erosion(inside)
    bone = hu > BONE_HU
    shares = (float(np.mean(_within_reach(part, structure)[surface])) for part in (bone, hu < AIR_HU))
    bone_ml = float(np.count_nonzero(bone & _within_reach(inside, structure))) * structure.voxel_ml
    return dict(zip(NAMES, (*shares, bone_ml), strict=True))


def _within_reach(part: _Mask, structure: Structure) -> _Mask:
    """Voxels of the structure's box within reach of a part of it, which is included."""
    if not part.any():
        return part
    near = ndimage.distance_transform_edt(~part, sampling=structure.spacing_mm) <= REACH_MM
    return np.asarray(near | ndimage.binary_dilation(part))
