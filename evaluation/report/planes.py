"""Three orthogonal planes through a point, cut in the patient's own axes independent of the scans' orientation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from evaluation.metrics.lesions import label_components
from evaluation.metrics.overlap import foreground_box

Floats: TypeAlias = npt.NDArray[np.float64]
Picture: TypeAlias = npt.NDArray[np.float32]

FIELD_MM: Final = 171.0
PIXEL_MM: Final = 0.75
_PIXELS: Final = int(FIELD_MM / PIXEL_MM)
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class View:
    """A plane: the LPS axis across it (0 x, 1 y, 2 z), and the letters at the picture's edges."""

    name: str
    normal: int
    left: str
    right: str
    top: str
    bottom: str


# The radiological convention: the patient's right on the left, in sagittal planes the front on the left.
VIEWS: Final = (
    View("axial", 2, left="R", right="L", top="A", bottom="P"),
    View("coronal", 1, left="R", right="L", top="S", bottom="I"),
    View("sagittal", 0, left="A", right="P", top="S", bottom="I"),
)


def lesion_centre_mm(mask: npt.NDArray[np.bool_], geometry: Geometry) -> Floats | None:
    """A point inside the largest component of a (z, y, x) mask, the voxel next to its centroid, in LPS mm.

    None if the mask is empty.
    """
    box = foreground_box(mask.view(np.uint8))
    numbered, count = label_components(mask[box], _CONNECTIVITY)
    if count == 0:
        return None
    largest = 1 + int(np.argmax(np.bincount(numbered.ravel())[1:]))
    voxels = np.argwhere(numbered == largest)
    spacing = np.asarray(geometry.array_spacing_mm)
    away = (((voxels - voxels.mean(axis=0)) * spacing) ** 2).sum(axis=1)
    index = voxels[int(np.argmin(away))] + [part.start for part in box]
    return _to_mm(geometry, index[::-1])


def centre_of_grid_mm(geometry: Geometry) -> Floats:
    """The middle of a grid in LPS mm."""
    return _to_mm(geometry, (np.asarray(geometry.size) - 1) / 2)


def _to_mm(geometry: Geometry, index_xyz: npt.NDArray[Any]) -> Floats:
    matrix = geometry.index_to_physical_matrix()
    return np.asarray(matrix[:3, :3] @ index_xyz + matrix[:3, 3], dtype=np.float64)


def cut(volume: Volume, view: View, centre_mm: Floats, outside: float, label: int | None = None) -> Picture:
    """A square picture of `FIELD_MM` around a point, linearly interpolated; rows run from top to bottom.

    `centre_mm` is the point in the middle, LPS, and `outside` the value beyond the volume. With a `label` the picture
    shows the fraction of each pixel with this label instead of the values.
    """
    slab = _slab(volume, view, centre_mm)
    if slab is None:
        return np.full((_PIXELS, _PIXELS), outside, dtype=np.float32)
    shown = slab.array if label is None else slab.array == label
    size = [_PIXELS] * 3
    size[view.normal] = 1
    corner = centre_mm - PIXEL_MM * (np.asarray(size) - 1) / 2
    image = to_sitk(Volume(shown.astype(np.float32), slab.geometry))
    placement = (corner.tolist(), [PIXEL_MM] * 3, list(np.eye(3).ravel()))
    plane = sitk.Resample(image, size, sitk.Transform(), sitk.sitkLinear, *placement, outside, sitk.sitkFloat32)
    picture = np.squeeze(sitk.GetArrayFromImage(plane), axis=2 - view.normal)
    # Rows of coronal and sagittal planes run along z, upwards in the patient.
    return picture if view.name == "axial" else picture[::-1]


def _slab(volume: Volume, view: View, centre_mm: Floats) -> Volume | None:
    """The voxels that a plane's interpolation can touch; None if the plane misses the volume."""
    half = np.full(3, FIELD_MM / 2)
    half[view.normal] = 0.0
    corners = centre_mm + np.array(list(product((-1, 1), repeat=3))) * half
    matrix = volume.geometry.physical_to_index_matrix()
    index = corners @ matrix[:3, :3].T + matrix[:3, 3]
    low = np.maximum(np.floor(index.min(axis=0)).astype(int) - 1, 0)
    high = np.minimum(np.ceil(index.max(axis=0)).astype(int) + 2, volume.geometry.size)
    if (high <= low).any():
        return None
    (x0, y0, z0), (x1, y1, z1) = low.tolist(), high.tolist()
    part = np.ascontiguousarray(volume.array[z0:z1, y0:y1, x0:x1])
    return Volume(part, volume.geometry.cropped((x0, y0, z0), (x1 - x0, y1 - y0, z1 - z0)))
