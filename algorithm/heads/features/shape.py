"""Shape of one lesion, by the definitions of the Image Biomarker Standardisation Initiative (arXiv 1612.07003)."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import numpy.typing as npt
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.distance import pdist

from algorithm.heads.features.structure import Feature, Structure

_Float = npt.NDArray[np.float64]
NAMES = ("surface_mm2", "sphericity", "diameter_mm", "elongation", "flatness")


def shape(lesion: Structure | None) -> dict[str, Feature]:
    """Surface area of the mesh (IBSI C0JK), sphericity (QCFX), largest diameter (L0JK), elongation (Q3CK) and
    flatness (N17B); None for an absent lesion, elongation and flatness also for a single voxel.
    """
    if lesion is None:
        return dict.fromkeys(NAMES)
    vertices, faces = mesh(lesion)
    area, volume = surface_mm2(vertices, faces), mesh_volume_mm3(vertices, faces)
    major, minor, least = axis_lengths_mm(lesion)
    return {
        "surface_mm2": area,
        "sphericity": float((36 * np.pi * volume**2) ** (1 / 3) / area),
        "diameter_mm": diameter_mm(vertices),
        "elongation": minor / major if major > 0 else None,
        "flatness": least / major if major > 0 else None,
    }


def mesh(lesion: Structure) -> tuple[_Float, npt.NDArray[np.int64]]:
    """Vertices (n, 3) in mm and triangles (m, 3) of the surface midway between inside and outside voxels."""
    from skimage.measure import marching_cubes

    padded = np.pad(lesion.inside, 1).astype(np.float32)
    vertices, faces, _, _ = marching_cubes(padded, 0.5, spacing=lesion.spacing_mm)  # type: ignore[no-untyped-call]
    return np.asarray(vertices, dtype=np.float64), np.asarray(faces, dtype=np.int64)


def surface_mm2(vertices: _Float, faces: npt.NDArray[np.int64]) -> float:
    """Sum of the triangles' areas."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def mesh_volume_mm3(vertices: _Float, faces: npt.NDArray[np.int64]) -> float:
    """Volume that a closed mesh encloses (IBSI RNU0)."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return float(abs(np.einsum("ij,ij->i", a, np.cross(b, c)).sum()) / 6)


def diameter_mm(points: _Float) -> float:
    """Largest distance between any two points (n, 3); only corners of the convex hull count."""
    with suppress(QhullError):  # points in one plane have no convex hull
        points = points[ConvexHull(points).vertices]
    return float(pdist(points).max()) if len(points) > 1 else 0.0


def axis_lengths_mm(lesion: Structure) -> tuple[float, float, float]:
    """Major, minor and least axis of the ellipsoid with the voxel centres' covariance (IBSI TDIC, P9VJ, 7J51)."""
    places = np.argwhere(lesion.inside) * lesion.spacing_mm
    spread = np.cov(places.T) if len(places) > 1 else np.zeros((3, 3))
    least, minor, major = 4 * np.sqrt(np.maximum(np.linalg.eigvalsh(spread), 0))
    return float(major), float(minor), float(least)
