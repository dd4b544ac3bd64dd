"""Contours of an RT structure set as a label mask on the CT's grid."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import InputError
from contract.images.geometry import Geometry
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.series import ImageSeries

# Names in small letters without blanks and signs, such as gtvp, gtvt1, gtvprimary, gtvn2, gtvnodeleft.
_SIDE: Final = r"\d*(l|r|left|right)?\d*"
_USUAL_NAMES: Final = {
    labels.GTVP: re.compile(rf"gtv(p|t|pt|prim|primary|primarytumou?r|tumou?r){_SIDE}"),
    labels.GTVN: re.compile(rf"gtv(n|nd|ln|node|nodes|nodal|lymphnodes?){_SIDE}"),
}
_OFF_PLANE: Final = 0.25  # of the slice distance


@dataclass(frozen=True)
class RoiNames:
    """Shell patterns of ROI names for GTVp and GTVn, regardless of case; empty for the usual spellings."""

    gtvp: tuple[str, ...] = ()
    gtvn: tuple[str, ...] = ()

    def label(self, name: str) -> int:
        """Label of a ROI, background for any other structure."""
        for label, patterns in ((labels.GTVP, self.gtvp), (labels.GTVN, self.gtvn)):
            plain = re.sub(r"[^a-z0-9]", "", name.lower())
            by_pattern = any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
            if by_pattern or (not patterns and _USUAL_NAMES[label].fullmatch(plain)):
                return label
        return labels.BACKGROUND


@dataclass(frozen=True)
class ReferenceMask:
    """Mask of uint8 labels (z, y, x), the ROIs drawn into it by label, and the names of the others."""

    array: npt.NDArray[np.uint8]
    rois: tuple[tuple[str, int], ...]
    others: tuple[str, ...]


def read_structures(
    sets: Sequence[DicomHeader], ct: ImageSeries, grid: Geometry, names: RoiNames
) -> tuple[ReferenceMask | None, list[str]]:
    """Draw the structure set of the CT, if it has one, and give a line for each ignored set.

    Raises:
        InputError: several structure sets belong to the CT, or a contour cannot be drawn.
    """
    header, ignored = _choose(sets, ct)
    return (None if header is None else _draw(header, grid, names)), ignored


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


def _draw(header: DicomHeader, grid: Geometry, names: RoiNames) -> ReferenceMask:
    """Draw the GTVs of a structure set; GTVp covers GTVn where they overlap.

    A voxel belongs to a ROI if its centre lies inside the contour or on it. A contour within another one of the same
    ROI is a hole.
    """
    contours = {
        str(item.optional("ReferencedROINumber")): item.items("ContourSequence")
        for item in header.items("ROIContourSequence")
    }
    array = np.zeros(grid.array_shape, dtype=np.uint8)
    rois, others = [], []
    header.required("StructureSetROISequence", "the names of the structures")
    for item in header.items("StructureSetROISequence"):
        name = item.text("ROIName")
        drawn = contours.get(str(item.optional("ROINumber")), ())
        label = names.label(name)
        if label == labels.BACKGROUND or not drawn:
            others.append(name if drawn else f"{name} (empty)")
            continue
        inside = _roi_mask(drawn, name, grid)
        array[inside & ((array == labels.BACKGROUND) | (label == labels.GTVP))] = label
        rois.append((name, label))
    _check_patterns(names, {label for _, label in rois}, others)
    return ReferenceMask(array, tuple(rois), tuple(others))


def _check_patterns(names: RoiNames, drawn: set[int], others: Sequence[str]) -> None:
    for option, patterns, label in (("--gtvp", names.gtvp, labels.GTVP), ("--gtvn", names.gtvn, labels.GTVN)):
        if patterns and label not in drawn:
            raise InputError(option, f"found no contour named {', '.join(patterns)}", f"one of {', '.join(others)}")


def _roi_mask(contours: Sequence[DicomHeader], roi: str, grid: Geometry) -> npt.NDArray[np.bool_]:
    from skimage.draw import polygon

    inside = np.zeros(grid.array_shape, dtype=np.bool_)
    for contour in contours:
        if not contour.text("ContourGeometricType").upper().startswith("CLOSED_PLANAR"):
            continue
        points = _index_points(contour, roi, grid)
        rows, columns = polygon(points[:, 1], points[:, 0], grid.array_shape[1:])  # type: ignore[no-untyped-call]
        inside[round(float(points[:, 2].mean())), rows, columns] ^= True
    return inside


def _index_points(contour: DicomHeader, roi: str, grid: Geometry) -> npt.NDArray[np.float64]:
    """Points of a contour as voxel indices (x, y, z), shape (n, 3)."""
    points_mm = np.array(contour.numbers("ContourData", None, "x, y, z of its points in mm"))
    if points_mm.size < 9 or points_mm.size % 3:
        found = f"{tag_name('ContourData')} of {roi!r} has {points_mm.size} numbers"
        raise InputError(contour.name, found, "x, y, z of three or more points")
    matrix = grid.physical_to_index_matrix()
    points = points_mm.reshape(-1, 3) @ matrix[:3, :3].T + matrix[:3, 3]
    heights = points[:, 2]
    height = round(float(heights.mean()))
    if np.abs(heights - height).max() > _OFF_PLANE or not 0 <= height < grid.size[2]:
        found = f"a contour of {roi!r} lies at slice {heights.min():.2f} to {heights.max():.2f} of the CT"
        raise InputError(contour.name, found, f"one of its slices, 0 to {grid.size[2] - 1}")
    return np.asarray(points, dtype=np.float64)


def _referenced_series(header: DicomHeader) -> set[str]:
    return {
        series.text("SeriesInstanceUID")
        for frame in header.items("ReferencedFrameOfReferenceSequence")
        for study in frame.items("RTReferencedStudySequence")
        for series in study.items("RTReferencedSeriesSequence")
    }


def _frames(header: DicomHeader) -> set[str]:
    own = header.text("FrameOfReferenceUID")
    frames = {item.text("FrameOfReferenceUID") for item in header.items("ReferencedFrameOfReferenceSequence")}
    rois = {item.text("ReferencedFrameOfReferenceUID") for item in header.items("StructureSetROISequence")}
    return {own, *frames, *rois} - {""}
