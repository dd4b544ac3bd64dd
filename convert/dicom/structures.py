"""Draw the contours of an RT structure set as a label mask on the CT's grid."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.platform import normalise_unicode
from convert.dicom.contours import Contour, draw_contours
from convert.dicom.files import DicomHeader, format_tag
from convert.dicom.series import ImageSeries

# Names in lower case without blanks and punctuation, such as gtvp, gtvt1, gtvprimary, gtvn2, gtvnodeleft.
_SIDE: Final = r"\d*(l|r|left|right)?\d*"
_USUAL_NAMES: Final = {
    labels.GTVP: re.compile(rf"gtv(p|t|pt|prim|primary|primarytumou?r|tumou?r){_SIDE}"),
    labels.GTVN: re.compile(rf"gtv(n|nd|ln|node|nodes|nodal|lymphnodes?){_SIDE}"),
}
# A contour may lie this fraction of the slice distance above or below its slice.
_MAX_SLICE_OFFSET: Final = 0.25
# Types of closed contours, without underscores, which vendors use differently. The second type is combined by parity.
_PARITY_TYPE: Final = "CLOSEDPLANARXOR"
_CLOSED_TYPES: Final = ("CLOSEDPLANAR", _PARITY_TYPE)
# A message lists at most this many heights or slices.
_MAX_SHOWN: Final = 5
# Contours on fewer slices may belong to lesions that are far apart, so their distance tells nothing about missing
# slices.
_MIN_SLICES_FOR_STEP: Final = 3


@dataclass(frozen=True)
class RoiNames:
    """Shell patterns of ROI names for GTVp and GTVn, in any case; empty for the usual spellings."""

    gtvp: tuple[str, ...] = ()
    gtvn: tuple[str, ...] = ()

    def find_label(self, name: str) -> int:
        """Find the label of an ROI; background if it is not a GTV."""
        lower = normalise_unicode(name).lower()
        for label, patterns in ((labels.GTVP, self.gtvp), (labels.GTVN, self.gtvn)):
            plain = re.sub(r"[^a-z0-9]", "", lower)
            has_pattern = any(fnmatch.fnmatchcase(lower, normalise_unicode(pattern).lower()) for pattern in patterns)
            if has_pattern or (not patterns and _USUAL_NAMES[label].fullmatch(plain)):
                return label
        return labels.BACKGROUND


@dataclass(frozen=True)
class ReferenceMask:
    """Mask of a structure set on the CT's grid.

    Attributes:
        array: uint8 labels (z, y, x).
        rois: Name and label of each ROI in the mask.
        unused_names: Names of structures that are not a GTV.
        empty_rois: Name and label of each GTV without a contour that could be drawn on the CT.
        findings: Warnings.
    """

    array: npt.NDArray[np.uint8]
    rois: tuple[tuple[str, int], ...]
    unused_names: tuple[str, ...]
    empty_rois: tuple[tuple[str, int], ...] = ()
    findings: tuple[Finding, ...] = ()


def read_structures(
    sets: Sequence[DicomHeader], ct: ImageSeries, grid: Geometry, names: RoiNames
) -> tuple[ReferenceMask | None, list[str]]:
    """Draw the structure set of the CT.

    Returns:
        The mask, None if the CT has no structure set, and a line for each ignored set.

    Raises:
        InputError: Several structure sets belong to the CT, the contours of a tumour or node cannot be identified by
            its ROI number, or a contour cannot be drawn.
    """
    header, ignored = _choose_set(sets, ct)
    return (None if header is None else _draw_structures(header, ct, grid, names)), ignored


def _choose_set(sets: Sequence[DicomHeader], ct: ImageSeries) -> tuple[DicomHeader | None, list[str]]:
    """Choose the structure set that belongs to the CT; return with it a line for each ignored set.

    A set that refers to the CT series comes before a set that only shares its frame of reference. A set without a
    frame of reference is assumed to belong to the CT.
    """
    on_series = [header for header in sets if ct.uid in _list_series(header)]
    in_frame = [header for header in sets if ct.frame_of_reference in (_list_frames(header) or {ct.frame_of_reference})]
    candidates = on_series or in_frame
    if len(candidates) > 1:
        listed = ", ".join(f"{header.name} ({header.text('StructureSetLabel') or 'no label'})" for header in candidates)
        raise InputError("input folder", f"found {len(candidates)} structure sets of the CT: {listed}", "one")
    lines = [f"structure set {header.name}: drawn on another image" for header in sets if header not in candidates]
    return (candidates[0] if candidates else None), lines


def _draw_structures(header: DicomHeader, ct: ImageSeries, grid: Geometry, names: RoiNames) -> ReferenceMask:
    """Draw the GTVs of a structure set; GTVp covers GTVn where they overlap."""
    header.require("StructureSetROISequence", "the names of the structures")
    contours = match_contours(header, names)
    array = np.zeros(grid.array_shape, dtype=np.uint8)
    rois: list[tuple[str, int]] = []
    empty_rois: list[tuple[str, int]] = []
    unused_names: list[str] = []
    findings = [*_check_source(header, ct), *contours.findings]
    for item in header.items("StructureSetROISequence"):
        name = item.text("ROIName")
        roi_contours = contours.by_number.get(item.get_number("ROINumber"), ())
        label = names.find_label(name)
        if label == labels.BACKGROUND:
            unused_names.append(name if roi_contours else f"{name} (empty)")
            continue
        if roi_contours:
            is_on_ct, frame_findings = _check_frame(item, header, ct)
            findings += frame_findings
            roi_contours = roi_contours if is_on_ct else ()
        drawable, contour_findings = _select_drawable(roi_contours, name, grid)
        findings += contour_findings
        if not drawable:
            empty_rois.append((name, label))
            continue
        inside, roi_findings = _draw_roi(drawable, name, grid, header.name)
        findings += roi_findings
        array[inside & ((array == labels.BACKGROUND) | (label == labels.GTVP))] = label
        rois.append((name, label))
    available = [*unused_names, *(f"{name} (empty)" for name, _ in empty_rois)]
    _check_patterns(names, {label for _, label in rois}, available)
    if (rois or (empty_rois and findings)) and not array.any():
        gtv_names = ", ".join(name for name, _ in (*rois, *empty_rois))
        reason = f" ({'; '.join(finding.found for finding in findings)})" if findings else ""
        raise InputError(header.name, f"no voxel in {gtv_names}{reason}", "closed contours around voxels")
    return ReferenceMask(array, tuple(rois), tuple(unused_names), tuple(empty_rois), tuple(findings))


@dataclass(frozen=True)
class RoiContours:
    """Contours by ROI number, and findings about contours that belong to no structure."""

    by_number: Mapping[float | None, tuple[DicomHeader, ...]]
    findings: tuple[Finding, ...] = ()


def match_contours(header: DicomHeader, names: RoiNames) -> RoiContours:
    """Match the contours of a structure set with its structures by ROI number.

    Repeated numbers are accepted if they do not concern a tumour or node.

    Raises:
        InputError: A tumour or node has no number or shares it, or its contours are in several items; contours have no
            number; or a tumour or node has no contours while other contours cannot be assigned.
    """
    structures = header.items("StructureSetROISequence")
    items = header.items("ROIContourSequence")
    names_of: dict[float | None, list[str]] = defaultdict(list)
    for structure in structures:
        names_of[structure.get_number("ROINumber")].append(structure.text("ROIName"))
    count_of = Counter(item.get_number("ReferencedROINumber") for item in items)
    gtvs = [roi for roi in structures if names.find_label(roi.text("ROIName")) != labels.BACKGROUND]
    if gtvs and count_of[None]:
        problem = f"found {count_of[None]} of {len(items)} items of {format_tag('ROIContourSequence')} without"
        raise InputError(header.name, f"{problem} {format_tag('ReferencedROINumber')}", "the number of their structure")
    ambiguous_numbers = [number for number, count in count_of.items() if number not in names_of or count > 1]
    for structure in gtvs:
        _check_number(structure, names_of, count_of, ambiguous_numbers)
    unknown_numbers = [f"{number:g}" for number in ambiguous_numbers if number is not None and number not in names_of]
    findings = []
    if gtvs and unknown_numbers:
        problem = f"found contours of ROI number {', '.join(unknown_numbers)}, which belongs to no structure"
        findings.append(Finding(header.name, problem, action="left out"))
    by_number: dict[float | None, tuple[DicomHeader, ...]] = {}
    for item in items:
        number = item.get_number("ReferencedROINumber")
        by_number[number] = by_number.get(number, ()) + item.items("ContourSequence")
    return RoiContours(by_number, tuple(findings))


def _check_number(
    structure: DicomHeader,
    names_of: Mapping[float | None, Sequence[str]],
    count_of: Mapping[float | None, int],
    ambiguous_numbers: Sequence[float | None],
) -> None:
    """Check that the number of a tumour or node leads to its own contours; raise `InputError` if it does not."""
    name, number = structure.text("ROIName"), structure.get_number("ROINumber")
    expected = "one number for each structure and its contours (export the structure set again)"
    if number is None:
        raise InputError(structure.name, f"found no {format_tag('ROINumber')} of {name!r}", expected)
    if len(names_of[number]) > 1:
        shared = ", ".join(map(repr, names_of[number]))
        raise InputError(structure.name, f"found {format_tag('ROINumber')} {number:g} of {shared}", expected)
    count = count_of.get(number, 0)
    if count > 1:
        problem = f"found {count} items of {format_tag('ROIContourSequence')} with number {number:g} of {name!r}"
        raise InputError(structure.name, problem, expected)
    if not count and ambiguous_numbers:
        listed = ", ".join(f"{candidate:g}" for candidate in ambiguous_numbers if candidate is not None)
        problem = (
            f"found no contours of {name!r} (number {number:g}), but contours of repeated or unknown number {listed}"
        )
        raise InputError(structure.name, problem, expected)


def _check_source(header: DicomHeader, ct: ImageSeries) -> list[Finding]:
    """Return a finding if the structure set was drawn on another series than the CT."""
    series = _list_series(header)
    if not series or ct.uid in series:
        return []
    problem = f"found a structure set that was drawn on another series than CT {ct.description!r}"
    return [
        Finding(
            header.name, problem, "a set of the CT", "assumed to be aligned, since the frame of reference is the CT's"
        )
    ]


def _check_frame(roi: DicomHeader, header: DicomHeader, ct: ImageSeries) -> tuple[bool, list[Finding]]:
    """Return whether to draw a structure, and a finding if it may not lie in the CT's frame of reference.

    A set may give the CT's series another frame of reference than the CT itself does. Structures of that frame are
    drawn with a finding.
    """
    keyword, name = "ReferencedFrameOfReferenceUID", roi.text("ROIName")
    frame, frames = roi.text(keyword), _list_frames(header)
    frames_of_ct = {
        item.text("FrameOfReferenceUID")
        for item in header.items("ReferencedFrameOfReferenceSequence")
        if ct.uid in _list_frame_series(item)
    }
    if frame == ct.frame_of_reference or not frames or (not frame and frames == {ct.frame_of_reference}):
        return True, []
    is_on_ct = not frame or frame in frames_of_ct
    fault = "that is not the CT's" if frame else "absent, while the set has other frames of reference"
    problem = f"found {format_tag(keyword)} of {name!r} {fault}"
    action = "assumed to be aligned" if is_on_ct else "left out"
    return is_on_ct, [Finding(roi.name, problem, f"the frame of reference of CT {ct.description!r}", action)]


def _check_patterns(names: RoiNames, present: set[int], available: Sequence[str]) -> None:
    for option, patterns, label in (("--gtvp", names.gtvp, labels.GTVP), ("--gtvn", names.gtvn, labels.GTVN)):
        if patterns and label not in present:
            raise InputError(option, f"found no contour named {', '.join(patterns)}", f"one of {', '.join(available)}")


def _select_drawable(contours: Sequence[DicomHeader], roi: str, grid: Geometry) -> tuple[list[Contour], list[Finding]]:
    """Select the closed contours of an ROI on slices of the CT; return with them a finding for the other contours."""
    drawable: list[Contour] = []
    rejected: Counter[str] = Counter()
    off_slices: list[str] = []
    for contour in contours:
        kind = contour.text("ContourGeometricType").upper()
        plain = kind.replace("_", "")
        if plain not in _CLOSED_TYPES:
            rejected[kind or f"without {format_tag('ContourGeometricType')}"] += 1
            continue
        points = _read_points(contour, roi, grid)
        if points is None:
            rejected["of fewer than three points"] += 1
        elif _is_on_slice(points[:, 2], grid):
            drawable.append(Contour(round(float(points[:, 2].mean())), points[:, :2], plain == _PARITY_TYPE))
        else:
            off_slices.append(_format_heights(points[:, 2]))
    reasons = [f"{count} {kind}" for kind, count in sorted(rejected.items())]
    if off_slices:
        reasons.append(f"{len(off_slices)} at no slice of the CT ({', '.join(off_slices[:_MAX_SHOWN])})")
    if not reasons:
        return drawable, []
    problem = f"contours of {roi!r} that cannot be drawn: {', '.join(reasons)}"
    expected = f"closed contours on its slices, 0 to {grid.size[2] - 1}" if off_slices else ""
    return drawable, [Finding(contours[0].name, problem, expected, action="left out")]


def _is_on_slice(heights: npt.NDArray[np.float64], grid: Geometry) -> bool:
    """Return whether all points of a contour, by their height in slices, lie on the same slice of the grid."""
    slice_index = round(float(heights.mean()))
    return bool(np.abs(heights - slice_index).max() <= _MAX_SLICE_OFFSET) and 0 <= slice_index < grid.size[2]


def _format_heights(heights: npt.NDArray[np.float64]) -> str:
    low, high = f"{heights.min():.2f}", f"{heights.max():.2f}"
    return low if low == high else f"{low} to {high}"


def _draw_roi(
    contours: Sequence[Contour], roi: str, grid: Geometry, file: str
) -> tuple[npt.NDArray[np.bool_], list[Finding]]:
    """Draw the contours of an ROI; return with the mask findings about holes and slices without a contour."""
    mask, holes = draw_contours(contours, grid.array_shape)
    findings = []
    if holes:
        findings.append(
            Finding(file, f"{holes} contours of {roi!r} lie within another contour", action="they are holes")
        )
    slices = np.unique([contour.slice_index for contour in contours])
    step = int(np.median(np.diff(slices))) if len(slices) >= _MIN_SLICES_FOR_STEP else 1
    if step > 1:
        problem = f"contours of {roi!r} are {step} slices apart ({', '.join(map(str, slices[:_MAX_SHOWN]))})"
        findings.append(Finding(file, problem, "one on each slice", "the slices between them stay empty"))
    return mask, findings


def _read_points(contour: DicomHeader, roi: str, grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Read the points of a contour as voxel indices (x, y, z), shape (n, 3); None for fewer than three points."""
    points_mm = np.array(contour.require_numbers("ContourData", None, "x, y, z of its points in mm"))
    if points_mm.size % 3:
        problem = f"{format_tag('ContourData')} of {roi!r} has {points_mm.size} numbers"
        raise InputError(contour.name, problem, "x, y, z of three or more points")
    if points_mm.size < 9:
        return None
    matrix = grid.physical_to_index_matrix()
    return np.asarray(points_mm.reshape(-1, 3) @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def _list_series(header: DicomHeader) -> set[str]:
    frames = header.items("ReferencedFrameOfReferenceSequence")
    return {uid for frame in frames for uid in _list_frame_series(frame)}


def _list_frame_series(frame: DicomHeader) -> set[str]:
    """List the UIDs of the series in one item of ReferencedFrameOfReferenceSequence."""
    return {
        series.text("SeriesInstanceUID")
        for study in frame.items("RTReferencedStudySequence")
        for series in study.items("RTReferencedSeriesSequence")
    } - {""}


def _list_frames(header: DicomHeader) -> set[str]:
    own = header.text("FrameOfReferenceUID")
    frames = {item.text("FrameOfReferenceUID") for item in header.items("ReferencedFrameOfReferenceSequence")}
    rois = {item.text("ReferencedFrameOfReferenceUID") for item in header.items("StructureSetROISequence")}
    return {own, *frames, *rois} - {""}
