"""Contours of an RT structure set as a label mask on the CT's grid."""

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
from contract.platform import compose
from convert.dicom.contours import Contour, drawn
from convert.dicom.files import DicomHeader, tag_name
from convert.dicom.series import ImageSeries

# Names in small letters without blanks and signs, such as gtvp, gtvt1, gtvprimary, gtvn2, gtvnodeleft.
_SIDE: Final = r"\d*(l|r|left|right)?\d*"
_USUAL_NAMES: Final = {
    labels.GTVP: re.compile(rf"gtv(p|t|pt|prim|primary|primarytumou?r|tumou?r){_SIDE}"),
    labels.GTVN: re.compile(rf"gtv(n|nd|ln|node|nodes|nodal|lymphnodes?){_SIDE}"),
}
_OFF_PLANE: Final = 0.25  # of the slice distance
# Without the signs, which vendors set differently; the second is combined by parity.
_CLOSED: Final = ("CLOSEDPLANAR", "CLOSEDPLANARXOR")
# Heights of contours, or slices, that a line names.
_MOST_SHOWN: Final = 5
# Fewer slices may be lesions far apart.
_LEAST_SLICES: Final = 3


@dataclass(frozen=True)
class RoiNames:
    """Shell patterns of ROI names for GTVp and GTVn, regardless of case; empty for the usual spellings."""

    gtvp: tuple[str, ...] = ()
    gtvn: tuple[str, ...] = ()

    def label(self, name: str) -> int:
        """Label of a ROI, background for any other structure."""
        lower = compose(name).lower()
        for label, patterns in ((labels.GTVP, self.gtvp), (labels.GTVN, self.gtvn)):
            plain = re.sub(r"[^a-z0-9]", "", lower)
            by_pattern = any(fnmatch.fnmatchcase(lower, compose(pattern).lower()) for pattern in patterns)
            if by_pattern or (not patterns and _USUAL_NAMES[label].fullmatch(plain)):
                return label
        return labels.BACKGROUND


@dataclass(frozen=True)
class ReferenceMask:
    """Mask of uint8 labels (z, y, x), the ROIs drawn into it by label, and the names of the others.

    `empty` are ROIs of a tumour or node without a contour that could be drawn on the CT.
    """

    array: npt.NDArray[np.uint8]
    rois: tuple[tuple[str, int], ...]
    others: tuple[str, ...]
    empty: tuple[tuple[str, int], ...] = ()
    findings: tuple[Finding, ...] = ()


def read_structures(
    sets: Sequence[DicomHeader], ct: ImageSeries, grid: Geometry, names: RoiNames
) -> tuple[ReferenceMask | None, list[str]]:
    """Draw the structure set of the CT, if it has one, and give a line for each ignored set.

    Raises:
        InputError: several structure sets belong to the CT, a tumour's or node's contours cannot be told by its ROI
            number, or a contour cannot be drawn.
    """
    header, ignored = _choose(sets, ct)
    return (None if header is None else _draw(header, ct, grid, names)), ignored


def _choose(sets: Sequence[DicomHeader], ct: ImageSeries) -> tuple[DicomHeader | None, list[str]]:
    """The structure set that belongs to the CT, and a line for each ignored one.

    A set that refers to the CT series comes before one that shares its frame of reference only. A set without a frame
    of reference is taken for the CT's.
    """
    on_series = [one for one in sets if ct.uid in _referenced_series(one)]
    in_frame = [one for one in sets if ct.frame_of_reference in (_frames(one) or {ct.frame_of_reference})]
    candidates = on_series or in_frame
    if len(candidates) > 1:
        listed = ", ".join(f"{one.name} ({one.text('StructureSetLabel') or 'no label'})" for one in candidates)
        raise InputError("input folder", f"found {len(candidates)} structure sets of the CT: {listed}", "one")
    lines = [f"structure set {one.name}: drawn on another image" for one in sets if one not in candidates]
    return (candidates[0] if candidates else None), lines


def _draw(header: DicomHeader, ct: ImageSeries, grid: Geometry, names: RoiNames) -> ReferenceMask:
    """Draw the GTVs of a structure set; GTVp covers GTVn where they overlap."""
    header.required("StructureSetROISequence", "the names of the structures")
    contours = match_contours(header, names)
    array = np.zeros(grid.array_shape, dtype=np.uint8)
    rois, others, empty = [], [], []
    findings = [*_check_source(header, ct), *contours.findings]
    for item in header.items("StructureSetROISequence"):
        name = item.text("ROIName")
        roi_contours = contours.of_number.get(item.optional_number("ROINumber"), ())
        label = names.label(name)
        if label == labels.BACKGROUND:
            others.append(name if roi_contours else f"{name} (empty)")
            continue
        if roi_contours:
            is_on_ct, of_frame = _check_frame(item, header, ct)
            findings += of_frame
            roi_contours = roi_contours if is_on_ct else ()
        closed, left_out = _closed(roi_contours, name, grid)
        findings += left_out
        if not closed:
            empty.append((name, label))
            continue
        inside, of_mask = _roi_mask(closed, name, grid, header.name)
        findings += of_mask
        array[inside & ((array == labels.BACKGROUND) | (label == labels.GTVP))] = label
        rois.append((name, label))
    _check_patterns(names, {label for _, label in rois}, [*others, *(f"{name} (empty)" for name, _ in empty)])
    if (rois or (empty and findings)) and not array.any():
        named = ", ".join(name for name, _ in (*rois, *empty))
        reason = f" ({'; '.join(finding.found for finding in findings)})" if findings else ""
        raise InputError(header.name, f"no voxel in {named}{reason}", "closed contours around voxels")
    return ReferenceMask(array, tuple(rois), tuple(others), tuple(empty), tuple(findings))


@dataclass(frozen=True)
class RoiContours:
    """Contours by ROI number, and findings about contours that belong to no structure."""

    of_number: Mapping[float | None, tuple[DicomHeader, ...]]
    findings: tuple[Finding, ...] = ()


def match_contours(header: DicomHeader, names: RoiNames) -> RoiContours:
    """Match the contours of a structure set with its structures by ROI number.

    Numbers that repeat are harmless as long as no tumour or node is concerned.

    Raises:
        InputError: a tumour or node has no number or shares it, or its contours are in several items; contours have no
            number; or a tumour or node has no contours while others cannot be assigned.
    """
    structures = header.items("StructureSetROISequence")
    items = header.items("ROIContourSequence")
    names_of: dict[float | None, list[str]] = defaultdict(list)
    for structure in structures:
        names_of[structure.optional_number("ROINumber")].append(structure.text("ROIName"))
    count_of = Counter(item.optional_number("ReferencedROINumber") for item in items)
    wanted = [roi for roi in structures if names.label(roi.text("ROIName")) != labels.BACKGROUND]
    if wanted and count_of[None]:
        found = f"found {count_of[None]} of {len(items)} items of {tag_name('ROIContourSequence')} without"
        raise InputError(header.name, f"{found} {tag_name('ReferencedROINumber')}", "the number of their structure")
    doubtful = [number for number, count in count_of.items() if number not in names_of or count > 1]
    for structure in wanted:
        _check_number(structure, names_of, count_of, doubtful)
    strays = [f"{number:g}" for number in doubtful if number is not None and number not in names_of]
    findings = []
    if wanted and strays:
        found = f"found contours of ROI number {', '.join(strays)}, which no structure has"
        findings.append(Finding(header.name, found, action="left out"))
    of_number: dict[float | None, tuple[DicomHeader, ...]] = {}
    for item in items:
        number = item.optional_number("ReferencedROINumber")
        of_number[number] = of_number.get(number, ()) + item.items("ContourSequence")
    return RoiContours(of_number, tuple(findings))


def _check_number(
    structure: DicomHeader,
    names_of: Mapping[float | None, Sequence[str]],
    count_of: Mapping[float | None, int],
    doubtful: Sequence[float | None],
) -> None:
    """Check that the number of a tumour or node leads to its own contours; raise `InputError` if it does not."""
    name, number = structure.text("ROIName"), structure.optional_number("ROINumber")
    expected = "one number for each structure and its contours (export the structure set again)"
    if number is None:
        raise InputError(structure.name, f"found no {tag_name('ROINumber')} of {name!r}", expected)
    if len(names_of[number]) > 1:
        shared = ", ".join(map(repr, names_of[number]))
        raise InputError(structure.name, f"found {tag_name('ROINumber')} {number:g} of {shared}", expected)
    count = count_of.get(number, 0)
    if count > 1:
        found = f"found {count} items of {tag_name('ROIContourSequence')} with number {number:g} of {name!r}"
        raise InputError(structure.name, found, expected)
    if not count and doubtful:
        listed = ", ".join(f"{doubt:g}" for doubt in doubtful if doubt is not None)
        found = f"found no contours of {name!r} (number {number:g}), but several or unknown ones of number {listed}"
        raise InputError(structure.name, found, expected)


def _check_source(header: DicomHeader, ct: ImageSeries) -> list[Finding]:
    """Name a structure set that was drawn on another series than the CT."""
    series = _referenced_series(header)
    if not series or ct.uid in series:
        return []
    found = f"found a structure set that was drawn on another series than CT {ct.description!r}"
    return [
        Finding(header.name, found, "a set of the CT", "taken as aligned, since the frame of reference is the CT's")
    ]


def _check_frame(roi: DicomHeader, header: DicomHeader, ct: ImageSeries) -> tuple[bool, list[Finding]]:
    """Return whether a structure lies in the CT's frame of reference, with a finding if it does not or may not.

    A set may give the CT's series another frame of reference than the CT itself does. Structures of that frame are
    drawn with a finding.
    """
    keyword, name = "ReferencedFrameOfReferenceUID", roi.text("ROIName")
    frame, frames = roi.text(keyword), _frames(header)
    frames_of_ct = {
        item.text("FrameOfReferenceUID")
        for item in header.items("ReferencedFrameOfReferenceSequence")
        if ct.uid in _series_of_frame(item)
    }
    if frame == ct.frame_of_reference or not frames or (not frame and frames == {ct.frame_of_reference}):
        return True, []
    is_on_ct = not frame or frame in frames_of_ct
    fault = "that is not the CT's" if frame else "absent in a set of other frames"
    found = f"found {tag_name(keyword)} of {name!r} {fault}"
    action = "taken as aligned" if is_on_ct else "left out"
    return is_on_ct, [Finding(roi.name, found, f"the frame of reference of CT {ct.description!r}", action)]


def _check_patterns(names: RoiNames, present: set[int], others: Sequence[str]) -> None:
    for option, patterns, label in (("--gtvp", names.gtvp, labels.GTVP), ("--gtvn", names.gtvn, labels.GTVN)):
        if patterns and label not in present:
            raise InputError(option, f"found no contour named {', '.join(patterns)}", f"one of {', '.join(others)}")


def _closed(contours: Sequence[DicomHeader], roi: str, grid: Geometry) -> tuple[list[Contour], list[Finding]]:
    """The closed contours of a ROI on slices of the CT, and a finding for the others."""
    closed: list[Contour] = []
    others: Counter[str] = Counter()
    off_slices: list[str] = []
    for one in contours:
        kind = one.text("ContourGeometricType").upper()
        plain = kind.replace("_", "")
        if plain not in _CLOSED:
            others[kind or f"without {tag_name('ContourGeometricType')}"] += 1
            continue
        points = _index_points(one, roi, grid)
        if points is None:
            others["of fewer than three points"] += 1
        elif place := _off_slices(points[:, 2], grid):
            off_slices.append(place)
        else:
            closed.append(Contour(round(float(points[:, 2].mean())), points[:, :2], plain == _CLOSED[1]))
    kinds = [f"{count} {kind}" for kind, count in sorted(others.items())]
    if off_slices:
        kinds.append(f"{len(off_slices)} at no slice of the CT ({', '.join(off_slices[:_MOST_SHOWN])})")
    if not kinds:
        return closed, []
    found = f"contours of {roi!r} that cannot be drawn: {', '.join(kinds)}"
    expected = f"closed contours on its slices, 0 to {grid.size[2] - 1}" if off_slices else ""
    return closed, [Finding(contours[0].name, found, expected, action="left out")]


def _off_slices(heights: npt.NDArray[np.float64], grid: Geometry) -> str:
    """Heights, in slices, of a contour that is on no slice of the grid; empty for one on a slice."""
    slice_index = round(float(heights.mean()))
    if np.abs(heights - slice_index).max() <= _OFF_PLANE and 0 <= slice_index < grid.size[2]:
        return ""
    low, high = f"{heights.min():.2f}", f"{heights.max():.2f}"
    return low if low == high else f"{low} to {high}"


def _roi_mask(
    contours: Sequence[Contour], roi: str, grid: Geometry, file: str
) -> tuple[npt.NDArray[np.bool_], list[Finding]]:
    mask, holes = drawn(contours, grid.array_shape)
    findings = []
    if holes:
        findings.append(Finding(file, f"{holes} contours of {roi!r} lie within another one", action="they are holes"))
    slices = np.unique([one.slice_index for one in contours])
    if len(slices) >= _LEAST_SLICES and (step := int(np.median(np.diff(slices)))) > 1:
        found = f"contours of {roi!r} lie on every {step}. slice ({', '.join(map(str, slices[:_MOST_SHOWN]))})"
        findings.append(Finding(file, found, "one on each slice", "the slices between them stay empty"))
    return mask, findings


def _index_points(contour: DicomHeader, roi: str, grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Points of a contour as voxel indices (x, y, z), shape (n, 3); None for fewer than three."""
    points_mm = np.array(contour.numbers("ContourData", None, "x, y, z of its points in mm"))
    if points_mm.size % 3:
        found = f"{tag_name('ContourData')} of {roi!r} has {points_mm.size} numbers"
        raise InputError(contour.name, found, "x, y, z of three or more points")
    if points_mm.size < 9:
        return None
    matrix = grid.physical_to_index_matrix()
    return np.asarray(points_mm.reshape(-1, 3) @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def _referenced_series(header: DicomHeader) -> set[str]:
    frames = header.items("ReferencedFrameOfReferenceSequence")
    return {uid for frame in frames for uid in _series_of_frame(frame)}


def _series_of_frame(frame: DicomHeader) -> set[str]:
    """UIDs of the series in one item of ReferencedFrameOfReferenceSequence."""
    return {
        series.text("SeriesInstanceUID")
        for study in frame.items("RTReferencedStudySequence")
        for series in study.items("RTReferencedSeriesSequence")
    } - {""}


def _frames(header: DicomHeader) -> set[str]:
    own = header.text("FrameOfReferenceUID")
    frames = {item.text("FrameOfReferenceUID") for item in header.items("ReferencedFrameOfReferenceSequence")}
    rois = {item.text("ReferencedFrameOfReferenceUID") for item in header.items("StructureSetROISequence")}
    return {own, *frames, *rois} - {""}
