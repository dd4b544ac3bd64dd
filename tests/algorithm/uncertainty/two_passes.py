"""Logits of two passes over four voxels."""

from __future__ import annotations

import numpy as np


def logits_of(*voxels: tuple[float, float, float]) -> np.ndarray:
    """Logits (3, 1, 2, 2) of four voxels' probabilities of background, GTVp and GTVn, moved by what no softmax sees."""
    return (np.log(np.array(voxels, dtype=np.float32)).T + 3).reshape(3, 1, 2, 2)


# The passes differ in the second voxel alone, where the first says background and the second GTVp.
FIRST = logits_of((1 / 4, 1 / 2, 1 / 4), (1 / 2, 1 / 4, 1 / 4), (1 / 8, 3 / 4, 1 / 8), (3 / 4, 1 / 8, 1 / 8))
SECOND = logits_of((1 / 4, 1 / 2, 1 / 4), (1 / 4, 1 / 2, 1 / 4), (1 / 8, 3 / 4, 1 / 8), (3 / 4, 1 / 8, 1 / 8))
