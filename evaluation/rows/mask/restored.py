"""Read the row of a mask from metrics.json, and recompute all that follows from its counts."""

from __future__ import annotations

from typing import Final

import numpy as np

from evaluation.editions.edge_cases import dsc_of_case, scores_of_case
from evaluation.editions.rules import SURFACES_OF, MaskRules
from evaluation.metrics.lesions import LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.surface import MEASURED, WITHOUT_PREDICTION, SurfaceRow, compare_surfaces
from evaluation.rows.mask.pair import LESION_KEYS, MaskRow
from evaluation.rows.raw import RawRow

# No image has such voxels; the sums of more extreme volumes would leave the range of a double.
_VOXEL_MM3: Final = (1e-100, 1e100)
_ABSENT_IN_OLDER_FILES: Final = frozenset({"gtvn_dsc"})


def restored_row(raw: RawRow, rules: MaskRules) -> MaskRow:
    """The row whose form in metrics.json is `raw`.

    Raises:
        HecktorError: a figure is absent, impossible, or contradicts the counts of voxels and lesions.
    """
    error, failed = raw.outcome()
    gtvp, gtvn = _overlap(raw, "gtvp"), _overlap(raw, "gtvn")
    lesions = LesionCounts(*(raw.count(f"gtvn_lesions_{part}") for part in LESION_KEYS))
    _check_lesions(raw, gtvn, lesions)
    if error is not None and (gtvp.predicted or gtvn.predicted):
        raise raw.fault("predicted voxels in a case without a usable prediction", "none")
    without = error is not None
    dsc, precision, recall = scores_of_case(*_counts(gtvp), failed=without, rule=rules.gtvp_empty)
    row = MaskRow(
        case=raw.case,
        voxel_volume_mm3=raw.number("voxel_volume_mm3", *_VOXEL_MM3),
        gtvp=gtvp,
        gtvn=gtvn,
        gtvn_lesions=lesions,
        gtvp_dsc=dsc,
        error=error,
        failed=failed,
        gtvp_precision=precision,
        gtvp_recall=recall,
        gtvn_dsc=dsc_of_case(*_counts(gtvn), failed=without, rule=rules.gtvn_empty),
        surfaces={
            name: WITHOUT_PREDICTION if without else _surface(raw, name, {"gtvp": gtvp, "gtvn": gtvn}[name], rules)
            for name in SURFACES_OF[rules.surfaces]
        },
    )
    for key, value in row.as_json().items():
        if key in raw.content or key not in _ABSENT_IN_OLDER_FILES:
            raw.check(key, value, "its counts")
    return row


def _overlap(raw: RawRow, name: str) -> Overlap:
    keys = [f"{name}_{part}_voxels" for part in ("intersection", "reference", "predicted")]
    overlap = Overlap(*map(raw.count, keys))
    smaller = min(overlap.reference, overlap.predicted)
    if overlap.intersection > smaller:
        sizes = f"{overlap.reference} reference and {overlap.predicted} predicted voxels"
        raise raw.fault(f"{keys[0]} {overlap.intersection} of {sizes}", f"at most {smaller}")
    return overlap


def _counts(overlap: Overlap) -> tuple[int, int, int]:
    return overlap.intersection, overlap.reference, overlap.predicted


def _check_lesions(raw: RawRow, gtvn: Overlap, lesions: LesionCounts) -> None:
    """Each lesion has a voxel of its own, and each detected one a voxel in common; this holds for every matching."""
    for side, voxels, count in (
        ("reference", gtvn.reference, lesions.true_positives + lesions.false_negatives),
        ("predicted", gtvn.predicted, lesions.true_positives + lesions.false_positives),
    ):
        if count > voxels or (count == 0 and voxels > 0):
            raise raw.fault(f"{count} {side} lesions in {voxels} {side} voxels", f"from {min(1, voxels)} to {voxels}")
    if lesions.true_positives > gtvn.intersection:
        found = f"{lesions.true_positives} detected lesions in {gtvn.intersection} common voxels"
        raise raw.fault(found, f"at most {gtvn.intersection}")


def _surface(raw: RawRow, name: str, overlap: Overlap, rules: MaskRules) -> SurfaceRow:
    if overlap.reference and overlap.predicted:
        hd95, asd = (raw.number(f"{name}_{key}", low=0.0) for key in ("hd95_mm", "asd_mm"))
        return SurfaceRow(MEASURED, hd95, asd, raw.number(f"{name}_surface_dsc", 0.0, 1.0))
    reference, predicted = (np.full((1, 1, 1), voxels > 0) for voxels in (overlap.reference, overlap.predicted))
    return compare_surfaces(reference, predicted, (1.0, 1.0, 1.0), rules)
