"""Detect masks that fit far better with exchanged labels or mirrored axes; one warning for a cohort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import Finding
from evaluation.inputs.masks import BoxRegion
from evaluation.metrics.overlap import foreground_box
from evaluation.rows.mask import MaskRow

_EXCHANGED: Final = "GTVp and GTVn exchanged"
# Axes of (z, y, x); RAS taken for LPS mirrors x and y.
_MIRRORED: Final = {
    f"{along} mirrored": axes for along, axes in {"x": (2,), "y": (1,), "z": (0,), "x and y": (1, 2)}.items()
}
# A DSC over the voxels of both labels: poor below the one, far better by the other.
_POOR: Final = 0.5
_BETTER: Final = 0.2


def is_poor(row: MaskRow) -> bool:
    """True if few lesion voxels have the right label."""
    return 2 * _common(row) < _POOR * _both(row)


def count_changed_overlaps(
    reference: npt.NDArray[Any], predicted: npt.NDArray[Any], region: BoxRegion
) -> Mapping[str, int]:
    """Lesion voxels with the reference's label after each change of the prediction, by the change.

    `reference` is cut to the region; `predicted` is the whole image, about whose middle it is mirrored.
    """
    box = foreground_box(reference)
    lesions = reference[box] > 0
    reference_labels = reference[box][lesions]
    exchanged = sum(labels.FOREGROUND) - region.cut(predicted)[box][lesions]
    common = {_EXCHANGED: int(np.count_nonzero(reference_labels == exchanged))}
    for change, axes in _MIRRORED.items():
        mirrored = region.cut(np.flip(predicted, axes))[box][lesions]
        common[change] = int(np.count_nonzero(reference_labels == mirrored))
    return common


def find_mask_changes(rows: Sequence[MaskRow]) -> tuple[Finding, ...]:
    """A warning if one change of all poor masks would raise a poor DSC of the cohort's summed volumes by 0.2."""
    usable = [row for row in rows if row.error is None]
    # Rows of a metrics.json hold no counts after a change.
    if not any(row.overlap_after_change for row in usable):
        return ()
    both = sum(_both(row) * row.voxel_volume_mm3 for row in usable)
    if not both:
        return ()

    def dsc(change: str) -> float:
        common = (row.overlap_after_change.get(change, _common(row)) * row.voxel_volume_mm3 for row in usable)
        return 2 * sum(common) / both

    as_given, change = dsc(""), max((_EXCHANGED, *_MIRRORED), key=dsc)
    if as_given >= _POOR or dsc(change) < as_given + _BETTER:
        return ()
    found = f"the DSC of all lesion voxels is {as_given:.2f}; with {change} it would be {dsc(change):.2f}"
    return (Finding("masks", found, action="check how they are written"),)


def _common(row: MaskRow) -> int:
    return row.gtvp.intersection_voxels + row.gtvn.intersection_voxels


def _both(row: MaskRow) -> int:
    return sum(label.reference_voxels + label.predicted_voxels for label in (row.gtvp, row.gtvn))
