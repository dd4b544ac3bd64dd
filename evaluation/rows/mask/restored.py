"""Read the row of a mask from metrics.json, and recompute all that follows from its counts."""

from __future__ import annotations

from typing import Final

import numpy as np

from contract.editions.values import described, is_integer, is_number
from evaluation.editions.edge_cases import dsc_of_case, scores_of_case
from evaluation.editions.rules import SURFACES_OF, MaskRules
from evaluation.metrics.lesions import LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.surface import MEASURED, WITHOUT_PREDICTION, SurfaceRow, compare_surfaces
from evaluation.rows.mask.pair import LESION_KEYS, MaskRow
from evaluation.rows.raw import RawRow

# No image has such voxels; the sums of more extreme volumes would leave the range of a double.
_VOXEL_MM3: Final = (1e-100, 1e100)
_LESION_LISTS: Final = ("gtvn_lesion_voxels", "gtvn_lesion_dsc")
_ABSENT_IN_OLDER_FILES: Final = frozenset({"gtvn_dsc", *_LESION_LISTS})


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
    sizes, lesion_dsc = _lesion_lists(raw, gtvn, lesions)
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
        gtvn_lesion_voxels=sizes,
        gtvn_lesion_dsc=lesion_dsc,
        gtvn_dsc=dsc_of_case(*_counts(gtvn), failed=without, rule=rules.gtvn_empty),
        surfaces={
            name: WITHOUT_PREDICTION if without else _surface(raw, name, {"gtvp": gtvp, "gtvn": gtvn}[name], rules)
            for name in SURFACES_OF[rules.surfaces]
        },
    )
    for key, value in row.as_json().items():
        if key not in _LESION_LISTS and (key in raw.content or key not in _ABSENT_IN_OLDER_FILES):
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


def _lesion_lists(
    raw: RawRow, gtvn: Overlap, lesions: LesionCounts
) -> tuple[tuple[int, ...] | None, tuple[float | None, ...] | None]:
    """Size and DSC of each lesion of the reference; None in files of older versions."""
    if not any(key in raw.content for key in _LESION_LISTS):
        return None, None
    sizes, dsc = (raw.content.get(key) for key in _LESION_LISTS)
    if not isinstance(sizes, list) or not all(is_integer(size) and size > 0 for size in sizes):
        raise raw.fault(f"{_LESION_LISTS[0]} {described(sizes)}", "a list of voxels")
    if not isinstance(dsc, list) or not all(one is None or (is_number(one) and 0 <= one <= 1) for one in dsc):
        raise raw.fault(f"{_LESION_LISTS[1]} {described(dsc)}", "a list of DSCs and nulls")
    if len(sizes) != len(dsc) or sum(sizes) != gtvn.reference or dsc.count(None) != lesions.false_negatives:
        found = f"{len(sizes)} GTVn lesions of {sum(sizes)} voxels and {len(dsc)} DSCs, {dsc.count(None)} null"
        raise raw.fault(found, f"{gtvn.reference} voxels and {lesions.false_negatives} missed lesions")
    return tuple(sizes), tuple(dsc)


def _surface(raw: RawRow, name: str, overlap: Overlap, rules: MaskRules) -> SurfaceRow:
    if overlap.reference and overlap.predicted:
        hd95, asd = (raw.number(f"{name}_{key}", low=0.0) for key in ("hd95_mm", "asd_mm"))
        return SurfaceRow(MEASURED, hd95, asd, raw.number(f"{name}_surface_dsc", 0.0, 1.0))
    reference, predicted = (np.full((1, 1, 1), voxels > 0) for voxels in (overlap.reference, overlap.predicted))
    return compare_surfaces(reference, predicted, (1.0, 1.0, 1.0), rules)
