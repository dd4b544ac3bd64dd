"""The grid on which all volumes of a case are shown: around its lesions, along the patient's own axes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.metrics.overlap import Floats

# A head with its neck, at 1 mm.
SHOWN_MM: Final = 255.0
MOST_VOXELS: Final = 256
LEAST_SPACING_MM: Final = 1.0
# Around the outermost lesions, and around the body.
_LESION_MARGIN_MM: Final = 30.0
_BODY_MARGIN_MM: Final = 10.0
_BODY_HU: Final = -400.0
_BODY_STEP_MM: Final = 8.0
# As columns: to the patient's right, front and head, so that the first voxel is left, back and below.
_RAS_AXES: Final = (-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0)


def box_of(points_mm: Floats) -> Floats:
    """The smallest box around points of shape (n, 3): its lowest and highest coordinates, shape (2, 3)."""
    return np.stack([points_mm.min(axis=0), points_mm.max(axis=0)])


def _widened(box: Floats, margin_mm: float, limits: Floats) -> Floats:
    """The box with a margin on every side, without what lies outside the limits."""
    widened: Floats = np.clip(box + np.array([[-margin_mm], [margin_mm]]), limits[0], limits[1])
    return widened


def to_mm(geometry: Geometry, index_xyz: npt.NDArray[Any]) -> Floats:
    """LPS mm of voxel indices of shape (..., 3) in (x, y, z) order."""
    matrix = geometry.index_to_physical_matrix()
    return np.asarray(index_xyz @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def to_index(geometry: Geometry, points_mm: Floats) -> Floats:
    """Voxel indices (x, y, z), with fractions, of LPS points of shape (..., 3)."""
    matrix = geometry.physical_to_index_matrix()
    return np.asarray(points_mm @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def display_grid(ct: Volume, lesions: Floats | None) -> Geometry:
    """A grid of at most 256 voxels along each axis, at least 1 mm apart, that contains the lesions.

    `lesions` is the box around them in LPS mm (`box_of`). The grid covers 255 mm around it, more if it extends further,
    but no more than the body. Without lesions (None) it covers the upper end of the body, where head and neck are. Also
    for an oblique CT the axes are the patient's: x from left to right, y from back to front, z from feet to head. The
    spacing is at least the CT's.
    """
    scanned = box_of(ct.geometry.corners_mm())
    body = _body_points(ct)
    whole = _widened(box_of(body), _BODY_MARGIN_MM, scanned)
    if lesions is None:
        z = max(whole[0, 2], whole[1, 2] - SHOWN_MM), whole[1, 2]
    else:
        focus = lesions + np.array([[-_LESION_MARGIN_MM], [_LESION_MARGIN_MM]])
        z = _interval(focus, box_of(np.concatenate([whole, lesions])), 2)
    slab = _widened(box_of(body[_between(body[:, 2], *z)]), _BODY_MARGIN_MM, scanned)
    if lesions is None:
        focus = np.tile(slab.mean(axis=0), (2, 1))
    else:
        slab = box_of(np.concatenate([slab, lesions]))
    x, y = (_interval(focus, slab, axis) for axis in (0, 1))
    return _grid(ct.geometry, np.array([x[0], y[0], z[0]]), np.array([x[1], y[1], z[1]]))


def _body_points(ct: Volume) -> Floats:
    """Voxels of body and table every 8 mm, in LPS mm; all corners of the CT if it shows air alone."""
    x, y, z = (max(round(_BODY_STEP_MM / step), 1) for step in ct.geometry.spacing_mm)
    index = np.argwhere(ct.array[::z, ::y, ::x] > _BODY_HU)[:, ::-1] * (x, y, z)
    return to_mm(ct.geometry, index) if len(index) else ct.geometry.corners_mm()


def _between(values: Floats, low: float, high: float) -> npt.NDArray[np.bool_]:
    """Which values lie in an interval; all of them if none does."""
    inside = (values >= low) & (values <= high)
    return inside if inside.any() else np.ones_like(inside)


def _interval(focus: Floats, limits: Floats, axis: int) -> tuple[float, float]:
    """An interval around the focus of at least 255 mm along an axis, moved and then cut to stay within the limits."""
    low, high = limits[:, axis]
    length = min(max(np.ptp(focus[:, axis]), SHOWN_MM), high - low)
    start = np.clip((focus[:, axis].sum() - length) / 2, low, high - length)
    return float(start), float(start + length)


def _grid(ct: Geometry, low: Floats, high: Floats) -> Geometry:
    axes = np.abs(np.asarray(ct.direction).reshape(3, 3)).argmax(axis=1)
    least = np.maximum(np.asarray(ct.spacing_mm)[axes], LEAST_SPACING_MM)
    spacing = np.maximum(least, (high - low) / (MOST_VOXELS - 1))
    # On a voxel of the CT, so that slices of an axial CT are shown as they are.
    first = to_mm(ct, np.rint(to_index(ct, np.array([high[0], high[1], low[2]]))))
    size = np.minimum(np.ceil((high - low) / spacing - 1e-9).astype(int) + 1, MOST_VOXELS).tolist()
    return Geometry((size[0], size[1], size[2]), tuple(spacing.tolist()), tuple(first.tolist()), _RAS_AXES)
