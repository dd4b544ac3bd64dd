"""Simulated scans with known landmarks: balls of brain in shells of bone, tubes of lung in soft bodies."""

from __future__ import annotations

import numpy as np

from algorithm.case.read import Case
from algorithm.region.landmarks import Coarse, make_coarse_picture
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient

# 400 x 320 x 800 mm; the body's axis is x = y = 0, its upper end z = 380.
GRID = Geometry((100, 80, 200), (4.0, 4.0, 4.0), (-198.0, -158.0, -398.0))
BRAIN_MM = (0.0, 0.0, 290.0)
BRAIN_RADIUS_MM = 60.0
APEX_MM = 60.0

Coordinates = tuple[np.ndarray, np.ndarray, np.ndarray]


def make_coordinates() -> Coordinates:
    z, y, x = (
        origin + 4.0 * np.arange(size) for origin, size in zip(GRID.origin_mm[::-1], GRID.size[::-1], strict=True)
    )
    return x[None, None, :], y[None, :, None], z[:, None, None]


def make_ball(centre: tuple[float, float, float], radius: float) -> np.ndarray:
    x, y, z = make_coordinates()
    return np.asarray((x - centre[0]) ** 2 + (y - centre[1]) ** 2 + (z - centre[2]) ** 2 < radius**2)


def make_tube(x_mm: float, radius: float, low: float, high: float) -> np.ndarray:
    x, y, z = make_coordinates()
    return np.asarray(((x - x_mm) ** 2 + y**2 < radius**2) & (z > low) & (z < high))


class Scan:
    """A trunk with lungs from z = -100 to 60, a neck to 200, a head of 80 mm radius around `BRAIN_MM`."""

    def __init__(self) -> None:
        self.ct = np.full(GRID.array_shape, -1000.0, dtype=np.float32)
        self.suv = np.zeros(GRID.array_shape, dtype=np.float32)
        self.fill(make_tube(0, 130, -400, 120) | make_tube(0, 60, 100, 300) | make_ball(BRAIN_MM, 88), 40, 0.8)
        for side in (-60, 60):
            self.fill(make_tube(side, 45, -100, APEX_MM), -820, 0.5)

    def fill(self, where: np.ndarray, hu: float, suv: float | None = None) -> Scan:
        self.ct[where] = hu
        if suv is not None:
            self.suv[where] = suv
        return self

    def with_brain(self, centre: tuple[float, float, float] = BRAIN_MM, suv: float = 9.0) -> Scan:
        return self.fill(make_ball(centre, 70), 900, 0.5).fill(make_ball(centre, BRAIN_RADIUS_MM), 35, suv)

    def case(self, *, pet: bool = True, top_mm: float = 400.0) -> Case:
        slices = int((top_mm - GRID.origin_mm[2]) / 4) + 1
        grid = GRID.crop((0, 0, 0), (GRID.size[0], GRID.size[1], min(slices, GRID.size[2])))
        ct = Volume(self.ct[: grid.size[2]].astype(np.int16), grid)
        return Case(ct, Volume(self.suv[: grid.size[2]], grid) if pet else None, Patient())

    def coarse(self, *, pet: bool = True, top_mm: float = 400.0) -> Coarse:
        return make_coarse_picture(self.case(pet=pet, top_mm=top_mm))
