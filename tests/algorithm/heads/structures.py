"""Grids and structures that are plain enough to be measured by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from algorithm.heads.structure import Structure, cut_structure
from contract.images.geometry import Geometry

Array = np.ndarray[Any, np.dtype[Any]]


def make_grid(shape_zyx: tuple[int, int, int], spacing: tuple[float, float, float], **more: Any) -> Geometry:
    z, y, x = shape_zyx
    return Geometry((x, y, z), spacing, (0.0, 0.0, 0.0), **more)


def make_ball(grid: Geometry, centre_mm: tuple[float, float, float], radius_mm: float) -> Array:
    """Mark voxels whose centres lie within the radius; the centre is (z, y, x) in mm from the first voxel."""
    axes = [np.arange(n) * s - c for n, s, c in zip(grid.array_shape, grid.array_spacing_mm, centre_mm, strict=True)]
    z, y, x = np.meshgrid(*axes, indexing="ij", sparse=True)
    return np.asarray(z**2 + y**2 + x**2 <= radius_mm**2)


def find_structure(structure: Array, grid: Geometry) -> Structure:
    whole = cut_structure(structure, grid)
    assert whole is not None
    return whole


WIDE = make_grid((8, 8, 40), (2.0, 2.0, 5.0))
