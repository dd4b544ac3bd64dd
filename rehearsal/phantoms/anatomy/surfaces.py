"""Uneven surfaces of lesions, their largest diameters, and the T and N stages that follow from these.

Stages follow the AJCC/UICC manual, 7th edition, oropharynx.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

import numpy as np

from contract import labels
from rehearsal.phantoms.anatomy.lesions import Disease, Lesion
from rehearsal.phantoms.anatomy.shapes import Floats, Point, point

# Natural log of the largest extent of a surface, in radii.
MAX_HEIGHT = 0.6
# Largest diameter in mm of T1 and T2.
T_LIMITS_MM: Final = ((20.0, "T1"), (40.0, "T2"))
N1_LIMIT_MM, N2_LIMIT_MM = 30.0, 60.0


class Surface:
    """A lesion's uneven surface in patient millimetres, scaled to the planned volume."""

    def __init__(self, lesion: Lesion, centre_mm: Point) -> None:
        rng = np.random.default_rng(lesion.shape_seed)
        self.centre_mm = centre_mm
        self.aspect = np.asarray(lesion.aspect) / np.prod(lesion.aspect) ** (1 / 3)
        self._waves = rng.normal(0, 1.6, (6, 3)).astype(np.float32)
        self._phases = rng.uniform(0, 2 * np.pi, 6).astype(np.float32)
        heights = lesion.bumpiness * rng.normal(0, 1, 6)
        heights *= min(1.0, MAX_HEIGHT / float(np.abs(heights).sum()))
        self._heights = heights.astype(np.float32)
        self._texture = rng.normal(0, 2.5, (4, 3)).astype(np.float32)
        line = np.linspace(-2.2, 2.2, 45, dtype=np.float32)
        unit = self._unit_level(line[None, None, :], line[None, :, None], line[:, None, None])
        volume = float((unit < 1).sum()) * float(line[1] - line[0]) ** 3
        self.radius_mm = lesion.radius_mm * float((4 * np.pi / 3 / max(volume, 0.1)) ** (1 / 3))

    def _unit_level(self, x: Floats, y: Floats, z: Floats) -> Floats:
        height = sum(
            amplitude * np.sin(x * wave[0] + y * wave[1] + z * wave[2] + phase)
            for amplitude, wave, phase in zip(self._heights, self._waves, self._phases, strict=True)
        )
        return np.asarray(np.sqrt(x**2 + y**2 + z**2) * np.exp(-height), dtype=np.float32)

    def _unit_coordinates(self, x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
        scaled = [
            ((values - np.float32(centre)) / np.float32(self.radius_mm * aspect)).astype(np.float32)
            for values, centre, aspect in zip((x, y, z), self.centre_mm, self.aspect, strict=True)
        ]
        return scaled[0], scaled[1], scaled[2]

    def level(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Compute the level: 0 at the centre, 1 on the surface, above 1 outside; coordinates broadcast to (z, y, x)."""
        return self._unit_level(*self._unit_coordinates(x, y, z))

    def texture(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Compute the uneven uptake as a factor around 0.9, from about 0.6 to 1.1."""
        u, v, w = self._unit_coordinates(x, y, z)
        waves = sum(np.sin(u * wave[0] + v * wave[1] + w * wave[2]) for wave in self._texture)
        return np.asarray(0.9 + 0.08 * waves, dtype=np.float32)

    def points_mm(self) -> Floats:
        """Compute points (n, 3) on the surface: x, y, z relative to the centre, in mm."""
        radii = np.linspace(0.2, 2.2, 201, dtype=np.float32)
        x, y, z = (axis[:, None] * radii for axis in _directions().T)
        inside = self._unit_level(x, y, z) < 1
        half_step = (radii[1] - radii[0]) / 2
        outermost = radii[len(radii) - 1 - np.argmax(inside[:, ::-1], axis=1)] + half_step
        return np.asarray(_directions() * outermost[:, None] * (self.radius_mm * self.aspect), dtype=np.float32)

    def corners(self) -> tuple[Point, Point]:
        """Compute the lowest and the highest corner (x, y, z) of a box around the lesion, in patient mm."""
        reach = self.radius_mm * self.aspect * float(np.exp(MAX_HEIGHT)) + 2
        return point(self.centre_mm - reach), point(self.centre_mm + reach)


@cache
def _directions() -> Floats:
    """Compute unit vectors (n, 3): the six axes and a spiral around the sphere."""
    heights = np.linspace(-1, 1, 400)
    angles = np.arange(400) * np.pi * (3 - np.sqrt(5))
    rings = np.sqrt(1 - heights**2)
    spiral = np.stack([rings * np.cos(angles), rings * np.sin(angles), heights], axis=1)
    return np.concatenate([np.eye(3), -np.eye(3), spiral]).astype(np.float32)


@lru_cache(maxsize=4096)
def largest_diameter_mm(lesion: Lesion) -> float:
    """Compute the largest distance between two points of the lesion's surface."""
    points = Surface(lesion, (0.0, 0.0, 0.0)).points_mm()
    return float(np.linalg.norm(points[:, None] - points[None], axis=2).max())


def t_stage(disease: Disease) -> str | None:
    """Return T1 up to 2 cm, T2 up to 4 cm, T3 above, T4 with invasion of bone; None without a primary tumour."""
    primary = [lesion for lesion in disease.lesions if lesion.label == labels.GTVP]
    if not primary:
        return None
    if any(lesion.invades_bone for lesion in primary):
        return "T4"
    size_mm = max(largest_diameter_mm(lesion) for lesion in primary)
    return next((stage for limit_mm, stage in T_LIMITS_MM if size_mm <= limit_mm), "T3")


def n_stage(disease: Disease) -> str:
    """Return N0 without nodes, N1 for one ipsilateral node up to 3 cm, N3 with a node above 6 cm, otherwise N2.

    Ipsilateral means on the side of the primary tumour. Without a primary tumour, a single node is ipsilateral.
    """
    if not disease.nodes:
        return "N0"
    size_mm = max(largest_diameter_mm(node) for node in disease.nodes)
    if size_mm > N2_LIMIT_MM:
        return "N3"
    sides = {lesion.place[0] > 0 for lesion in disease.lesions if lesion.label != labels.BACKGROUND}
    return "N1" if len(disease.nodes) == 1 and len(sides) == 1 and size_mm <= N1_LIMIT_MM else "N2"
