"""Masks: the row of a case read back from metrics.json, with the checks of its figures."""

from __future__ import annotations

from typing import Final

from contract.editions.values import described, is_integer, is_number
from evaluation.metrics import surface
from evaluation.metrics.lesions import FalseVoxels, LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.rules import SURFACES_OF, MaskRules
from evaluation.rows.mask import LABELS, LESION_KEYS, MaskRow
from evaluation.rows.scorer import RawRow

# No image has such voxels; the sums of more extreme volumes would leave the range of a double.
_VOXEL_MM3: Final = (1e-100, 1e100)
_LESION_LISTS: Final = ("gtvn_lesion_voxels", "gtvn_lesion_dsc")


def restored_row(raw: RawRow, rules: MaskRules) -> MaskRow:
    """The row whose form in metrics.json is `raw`."""
    error, failed = raw.outcome()
    overlaps = {name: _overlap(raw, name) for name in LABELS}
    lesions = LesionCounts(*(raw.count(f"gtvn_lesions_{part}") for part in LESION_KEYS))
    _check_lesions(raw, overlaps["gtvn"], lesions)
    if error is not None and any(overlap.predicted for overlap in overlaps.values()):
        raise raw.fault("predicted voxels in a case without a usable prediction", "none")
    sizes, lesion_dsc = _lesion_lists(raw, overlaps["gtvn"], lesions)
    row = MaskRow(
        case=raw.case,
        voxel_volume_mm3=raw.number("voxel_volume_mm3", *_VOXEL_MM3),
        gtvp=overlaps["gtvp"],
        gtvn=overlaps["gtvn"],
        gtvn_lesions=lesions,
        gtvp_dsc=None,
        error=error,
        failed=failed,
        gtvn_lesion_voxels=sizes,
        gtvn_lesion_dsc=lesion_dsc,
        gtvp_false=_false_voxels(raw, "gtvp", overlaps["gtvp"]),
        gtvn_false=_false_voxels(raw, "gtvn", overlaps["gtvn"]),
        surfaces={
            name: surface.without_prediction() if error is not None else _surface(raw, name, overlaps[name])
            for name in SURFACES_OF[rules.surfaces]
        },
    ).with_scores(rules)
    for key, value in row.as_json().items():
        if key not in _LESION_LISTS:
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


def _false_voxels(raw: RawRow, name: str, overlap: Overlap) -> FalseVoxels:
    """The voxels of untouched components: not those in common and, without any in common, all of a mask."""
    false = FalseVoxels(*(raw.count(f"{name}_{part}_voxels") for part in ("false_positive", "false_negative")))
    for part, voxels, of_mask in (
        ("false_positive", false.false_positive, overlap.predicted),
        ("false_negative", false.false_negative, overlap.reference),
    ):
        most = of_mask - overlap.intersection
        least = 0 if overlap.intersection else of_mask
        if not least <= voxels <= most:
            raise raw.fault(f"{name}_{part}_voxels {voxels}", f"from {least} to {most}, by its counts")
    return false


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
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Size and DSC of each lesion of the reference."""
    sizes, dsc = (raw.content.get(key) for key in _LESION_LISTS)
    if not isinstance(sizes, list) or not all(is_integer(size) and size > 0 for size in sizes):
        raise raw.fault(f"{_LESION_LISTS[0]} {described(sizes)}", "a list of voxels")
    if not isinstance(dsc, list) or not all(one is None or (is_number(one) and 0 <= one <= 1) for one in dsc):
        raise raw.fault(f"{_LESION_LISTS[1]} {described(dsc)}", "a list of DSCs and nulls")
    if len(sizes) != len(dsc) or sum(sizes) != gtvn.reference or dsc.count(None) != lesions.false_negatives:
        found = f"{len(sizes)} GTVn lesions of {sum(sizes)} voxels and {len(dsc)} DSCs, {dsc.count(None)} null"
        raise raw.fault(found, f"{gtvn.reference} voxels and {lesions.false_negatives} missed lesions")
    return tuple(sizes), tuple(dsc)


def _surface(raw: RawRow, label: str, overlap: Overlap) -> surface.SurfaceRow:
    if not (overlap.reference and overlap.predicted):
        sides = {"has_reference": overlap.reference > 0, "has_prediction": overlap.predicted > 0}
        return surface.row_of_empty_mask(**sides)
    known = {f"{label}_{metric.key}": metric for metric in surface.SURFACE_METRICS}
    values = {metric.key: raw.number(name, *metric.bounds) for name, metric in known.items()}
    return surface.SurfaceRow(surface.MEASURED, values)
