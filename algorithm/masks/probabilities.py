"""Probabilities of GTVp and GTVn as images on the CT's grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from algorithm.masks.segmentation import Segmentation
from algorithm.region.grids import OUTSIDE_LOGIT, crop_to_box, find_first_voxel, resample, slices
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume


def write_probabilities(paths: Sequence[Path], segmentation: Segmentation, ct: Geometry) -> None:
    """Write the probabilities of GTVp and GTVn in percent, uint8 on the CT's grid, to one path for each.

    Raises:
        OutputError: A file cannot be written.
    """
    for path, percent in zip(paths, compute_percent(segmentation, ct), strict=True):
        write_volume(path, Volume(percent, ct))


def compute_percent(segmentation: Segmentation, ct: Geometry) -> npt.NDArray[np.uint8]:
    """Compute the probabilities of GTVp and GTVn in percent, (label, z, y, x) on the CT's grid.

    The logits are interpolated linearly and then become probabilities, so that the mask is where a label's probability
    is the highest. Outside the segmented region the probabilities are 0.
    """
    percent = np.zeros((len(labels.FOREGROUND), *ct.array_shape), np.uint8)
    corners = segmentation.grid.corners_mm()
    part = crop_to_box(ct, corners.min(0), corners.max(0))
    logits = np.stack(
        [
            resample(Volume(of_label, segmentation.grid), part, OUTSIDE_LOGIT if label else -OUTSIDE_LOGIT)
            for label, of_label in enumerate(segmentation.logits)
        ]
    )
    # In place: with thin slices the region takes hundreds of megabytes for each label.
    logits -= logits.max(0)
    np.exp(logits, out=logits)
    logits *= 100 / logits.sum(0)
    z, y, x = find_first_voxel(part, ct)
    percent[(slice(None), *slices((x, y, z), part.size))] = np.rint(logits[1:])
    return percent
