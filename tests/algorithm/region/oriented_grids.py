"""Grids of any spacing, orientation and place for hypothesis, and the places of their voxels."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from contract.images.geometry import Geometry


def make_direction(order: tuple[int, ...], signs: tuple[float, ...], tilt: tuple[float, float]) -> tuple[float, ...]:
    """Return axes in any order and sign, tilted about z and x by angles in radians."""
    cz, sz, cx, sx = math.cos(tilt[0]), math.sin(tilt[0]), math.cos(tilt[1]), math.sin(tilt[1])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    return tuple(float(v) for v in (about_z @ about_x @ (np.eye(3)[list(order)] * signs)).ravel())


DIRECTIONS = st.builds(
    make_direction,
    st.permutations([0, 1, 2]),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
    st.sampled_from([(0.0, 0.0), (0.3, 0.0), (-0.2, 0.15), (0.0, 0.4)]),
)
SPACINGS = st.tuples(st.floats(0.8, 5), st.floats(0.8, 5), st.floats(1.5, 6))


def make_covering_grid(
    centre_mm: np.ndarray, half_mm: float, spacing: tuple[float, float, float], direction: tuple[float, ...]
) -> Geometry:
    """Return a grid of any orientation whose voxels cover the ball of radius `half_mm` about a point."""
    size = tuple(math.ceil(2 * half_mm / step) + 1 for step in spacing)
    axes = np.asarray(direction).reshape(3, 3)
    origin = centre_mm - axes @ ((np.asarray(size) - 1) / 2 * np.asarray(spacing))
    return Geometry((size[0], size[1], size[2]), spacing, (origin[0], origin[1], origin[2]), direction)


def find_voxel_centres_mm(geometry: Geometry) -> np.ndarray:
    """LPS coordinates (z, y, x, 3) of all voxel centres."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype=np.float64) for n in geometry.array_shape), indexing="ij")
    matrix = geometry.index_to_physical_matrix()
    return np.stack([x, y, z], axis=-1) @ matrix[:3, :3].T + matrix[:3, 3]
