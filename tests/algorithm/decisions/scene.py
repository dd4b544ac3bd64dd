"""A small segmentation with lesions of known size, probability and uptake."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from algorithm.decisions.lesions import Scans
from contract.images.geometry import Geometry

# 40 x 40 x 40 voxels of 5 mm: 0.125 ml each. The body is the whole grid, its midline at x = 19.5 voxels.
GRID = Geometry((40, 40, 40), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0))
Box = tuple[slice, slice, slice]


def box(z: int, y: int, x: int, size: int = 2) -> Box:
    """A cube (z, y, x) of `size` voxels a side."""
    return (slice(z, z + size), slice(y, y + size), slice(x, x + size))


def logits_of(places: Mapping[int, list[tuple[Box, float]]]) -> npt.NDArray[np.float32]:
    """Logits in which each cube of a label has a probability, the background the rest; elsewhere 0.98 background."""
    probabilities = np.empty((3, *GRID.array_shape), dtype=np.float32)
    probabilities[0], probabilities[1:] = 0.98, 0.01
    for label, lesions in places.items():
        for cube, probability in lesions:
            probabilities[:, *cube] = 0.005
            probabilities[label, *cube] = probability
            probabilities[0, *cube] = 1 - 0.005 - probability
    return np.log(np.maximum(probabilities, np.float32(1e-6)))


def scans(hot: Mapping[float, Box] | None = None) -> Scans:
    """A body of water with SUV 1, and cubes of other SUV; without a PET for None."""
    ct = np.zeros(GRID.array_shape, dtype=np.float32)
    if hot is None:
        return Scans.of(ct, None, GRID)
    pet = np.ones(GRID.array_shape, dtype=np.float32)
    for suv, cube in hot.items():
        pet[cube] = suv
    return Scans.of(ct, pet, GRID)
