"""Pairs of synthetic masks, in memory and on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.platform import MASK_FILE_NAME

SPACING_MM: Final = (1.0, 1.0, 2.0)
IN_PLANE: Final = 512


@dataclass(frozen=True)
class LabelPair:
    """Two label arrays (z, y, x) and their spacing in the same order."""

    reference: npt.NDArray[np.uint8]
    predicted: npt.NDArray[np.uint8]
    spacing_zyx_mm: tuple[float, float, float]

    def save(self, path: Path) -> None:
        """Write both for another environment."""
        np.savez(path, reference=self.reference, predicted=self.predicted, spacing_mm=self.spacing_zyx_mm)


def lesions(slices: int) -> LabelPair:
    """One primary tumour and six nodes; the prediction is shifted by 2 and 3 voxels."""
    z, y, x = np.ogrid[:slices, :IN_PLANE, :IN_PLANE]
    mask = np.zeros((slices, IN_PLANE, IN_PLANE), dtype=np.uint8)

    def ball(label: int, centre: tuple[float, float, float], radius_mm: float) -> None:
        squares = ((z - centre[0]) * SPACING_MM[2]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2
        mask[squares < radius_mm**2] = label

    ball(1, (slices / 2, 250, 260), 20)
    for number in range(6):
        ball(2, (slices / 2 - 4 + 2 * number, 200 + 30 * (number % 3), 170 + 180 * (number % 2)), 6 + number)
    return LabelPair(mask, np.roll(mask, (2, 3), axis=(1, 2)), (SPACING_MM[2], SPACING_MM[1], SPACING_MM[0]))


def cubes() -> LabelPair:
    """Shapes whose distances do not depend on how a surface is divided into elements.

    Voxels of 1 mm. GTVp: a cube of 100 mm inside one of 102 mm. At least 95% of each surface lies opposite the other,
    at 1 mm, and no corner is further than sqrt(3) mm: HD95 1, surface DSC at 2 mm 1. GTVn: a cube of 60 mm shifted by
    3 mm along x. Two of its six faces are 3 mm away and nothing is further: HD95 3.
    """
    reference, predicted = (np.zeros((110, 110, 220), dtype=np.uint8) for _ in range(2))
    reference[5:105, 5:105, 5:105] = 1
    predicted[4:106, 4:106, 4:106] = 1
    reference[20:80, 20:80, 120:180] = 2
    predicted[20:80, 20:80, 123:183] = 2
    return LabelPair(reference, predicted, (1.0, 1.0, 1.0))


def write_pair(folder: Path, slices: int) -> tuple[Path, Path]:
    """Write the lesions; returns the reference's path and the folder that holds the prediction alone."""
    pair = lesions(slices)
    grid = Geometry((IN_PLANE, IN_PLANE, slices), SPACING_MM, (0.0, 0.0, 0.0))
    reference, prediction = folder / "reference.mha", folder / "prediction" / MASK_FILE_NAME
    prediction.parent.mkdir(parents=True)
    write_mask(reference, pair.reference, grid)
    write_mask(prediction, pair.predicted, grid)
    return reference, prediction.parent
