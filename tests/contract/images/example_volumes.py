"""An oblique grid, and volumes of noise."""

from __future__ import annotations

import numpy as np

from contract.images.geometry import Geometry
from contract.images.volumes import Volume

OBLIQUE = Geometry((9, 8, 7), (0.7, 1.3, 2.5), (-11.0, 22.0, -333.0), (0.8, -0.6, 0.0, 0.6, 0.8, 0.0, 0.0, 0.0, -1.0))


def make_noise(geometry: Geometry, seed: int = 0) -> Volume:
    array = np.random.default_rng(seed).integers(-1000, 1000, geometry.array_shape).astype(np.int16)
    return Volume(array, geometry)
