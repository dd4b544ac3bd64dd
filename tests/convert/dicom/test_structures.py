"""Contours become masks: voxels counted by hand on a grid of 2 x 3 x 4 mm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydicom import Dataset, dcmread
from pydicom.uid import generate_uid

from contract.errors import InputError
from convert.cli import _format_structures
from convert.dicom.structures import RoiNames
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, StudyFolder


def make_rectangle(x: tuple[int, int], y: tuple[int, int], z: int, margin: float = 0.5) -> np.ndarray:
    """Return a contour half a voxel around the voxels `x` and `y` (first and last) of slice `z`, in mm."""
    corners = [(x[0] - margin, y[0] - margin), (x[1] + margin, y[0] - margin)]
    corners += [(x[1] + margin, y[1] + margin), (x[0] - margin, y[1] + margin)]
    return np.array([np.array([i, j, z]) * CT_GRID.spacing_mm + CT_GRID.origin_mm for i, j in corners])


def test_square_contours(study: StudyFolder, convert: Convert) -> None:
    """GTVp: 5 x 4 voxels on slices 3 and 4, 40 voxels. GTVn: 3 x 3 voxels on slice 6, 9 voxels."""
    paths = study.add_ct_and_pet()
    primary = [make_rectangle((4, 8), (5, 8), z) for z in (3, 4)]
    study.add_structures(paths, {"GTVp": primary, "GTV-N1": [make_rectangle((12, 14), (2, 4), 6)], "PTV 70": primary})
    converted = convert()
    mask = converted.read_mask()
    assert mask.geometry == CT_GRID
    assert mask.array.dtype == np.uint8
    expected = np.zeros(CT_GRID.array_shape, dtype=np.uint8)
    expected[3:5, 5:9, 4:9] = 1
    expected[6, 2:5, 12:15] = 2
    assert [(expected == label).sum() for label in (1, 2)] == [40, 9]
    np.testing.assert_array_equal(mask.array, expected)
    assert converted.case.structures is not None
    assert converted.case.structures.rois == (("GTVp", 1), ("GTV-N1", 2))
    assert converted.case.structures.unused_names == ("PTV 70",)


def test_hole_and_second_part(study: StudyFolder, convert: Convert) -> None:
    """7 x 7 voxels without 3 x 3 in the middle, and another 2 x 2: 49 - 9 + 4."""
    paths = study.add_ct_and_pet()
    contours = [
        make_rectangle((2, 8), (2, 8), 3),
        make_rectangle((4, 6), (4, 6), 3),
        make_rectangle((12, 13), (2, 3), 3),
    ]
    study.add_structures(paths, {"GTVp": contours})
    mask = convert().read_mask().array
    assert mask.sum() == 44
    assert not mask[3, 4:7, 4:7].any()


@pytest.mark.parametrize("order", [("GTVp", "GTVn"), ("GTVn", "GTVp")])
def test_primary_covers_node(study: StudyFolder, convert: Convert, order: tuple[str, str]) -> None:
    """Two rectangles of 4 x 4 voxels with 2 x 4 in common: 16 voxels of GTVp, 8 of GTVn."""
    paths = study.add_ct_and_pet()
    contours = {"GTVp": [make_rectangle((2, 5), (2, 5), 3)], "GTVn": [make_rectangle((4, 7), (2, 5), 3)]}
    study.add_structures(paths, {name: contours[name] for name in order})
    mask = convert().read_mask().array
    assert [(mask == label).sum() for label in (1, 2)] == [16, 8]


OFF_SLICE = make_rectangle((4, 8), (5, 8), 3) + np.array([0, 0, 2.0])


def test_a_contour_between_slices_is_left_out(study: StudyFolder, convert: Convert) -> None:
    """One contour is at slice 3.5, 2 mm above slice 3, and another at slice 30; the third keeps 5 x 4 voxels on slice 3."""
    paths = study.add_ct_and_pet()
    study.add_structures(
        paths, {"GTVp": [OFF_SLICE, make_rectangle((4, 8), (5, 8), 3), make_rectangle((4, 8), (5, 8), 30)]}
    )
    converted = convert()
    assert converted.read_mask().array.sum() == 20
    (finding,) = converted.case.findings
    assert (finding.found, finding.action) == (
        "contours of 'GTVp' that cannot be drawn: 2 at no slice of the CT (3.50, 30.00)",
        "left out",
    )
    assert finding.expected == f"closed contours on its slices, 0 to {CT_GRID.size[2] - 1}"


def test_a_structure_of_only_stray_contours_is_refused(study: StudyFolder, convert: Convert) -> None:
    study.add_structures(study.add_ct_and_pet(), {"GTVp": [OFF_SLICE]})
    refuse(
        convert,
        r"IM0022.dcm: no voxel in GTVp \(contours of 'GTVp' that cannot be drawn: 1 at no slice of the CT \(3.50\)\)",
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["1", "2", "100", "1"], r"ContourData \(3006,0050\) of 'GTVp' has 4 numbers"),
        (["1", "2", "100"], "no voxel in GTVp .*1 of fewer than three points"),
        (None, r"found no ContourData \(3006,0050\)"),
    ],
)
def test_unusable_contour(study: StudyFolder, convert: Convert, data: list[str] | None, message: str) -> None:
    path = study.add_structures(study.add_ct(), {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]})
    study.add_pet()
    dataset = dcmread(path)
    dataset.ROIContourSequence[0].ContourSequence[0].ContourData = data
    dataset.save_as(path)
    refuse(convert, message)


def test_damaged_contour(study: StudyFolder, convert: Convert) -> None:
    path = study.add_structures(study.add_ct(), {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]})
    study.add_pet()
    path.write_bytes(path.read_bytes().replace(b"-12.0", b"-1*.0"))
    refuse(convert, r"RTSTRUCT/IM0010.dcm: .*ContourData \(3006,0050\)")


def test_without_a_tumour_no_mask_is_written(study: StudyFolder, convert: Convert) -> None:
    paths = study.add_ct_and_pet()
    study.add_structures(paths, {"Mandible": [make_rectangle((4, 8), (5, 8), 3)], "GTVp": []})
    converted = convert()
    assert not (converted.folder / "ground_truth").exists()
    assert converted.case.structures is not None
    assert converted.case.structures.unused_names == ("Mandible",)
    assert converted.case.structures.empty_rois == (("GTVp", 1),)


def test_names_by_option(study: StudyFolder, convert: Convert) -> None:
    """With the option GTVp is not the primary tumour, since the option replaces the usual spellings."""
    paths = study.add_ct_and_pet()
    boxes = {
        name: [make_rectangle((x, x + 1), (5, 8), 3)] for x, name in ((2, "Tumour 68Gy"), (6, "GTVp"), (10, "LN left"))
    }
    study.add_structures(paths, boxes)
    with pytest.raises(InputError, match="--gtvp: found no contour named Larynx"):
        convert(roi_names=RoiNames(gtvp=("Larynx",)))
    case = convert(roi_names=RoiNames(gtvp=("tumour*",), gtvn=("LN *",))).case
    assert case.structures is not None
    assert case.structures.rois == (("Tumour 68Gy", 1), ("LN left", 2))
    assert case.structures.unused_names == ("GTVp",)


@pytest.mark.parametrize(
    ("label", "names"),
    [
        (
            1,
            ["GTVp", "gtvp", "GTV-T", "GTV_T", "GTV T", "GTVt1", "GTV-p 1", "GTV Primary", "GTV tumor", "GTV_tumour_L"],
        ),
        (2, ["GTVn", "GTV-N", "GTVn1", "GTV_N2", "GTV N left", "GTVnd", "GTV LN", "GTV node", "GTV_nodes", "GTVn_R_2"]),
        (0, ["GTV", "CTVp", "PTV", "GTVp+n", "GTVpet", "xGTVp", "GTVp-opt", "Mandible", "", "GTV p CT old"]),
    ],
)
def test_usual_spellings(label: int, names: list[str]) -> None:
    assert {name: RoiNames().find_label(name) for name in names} == dict.fromkeys(names, label)


def test_structure_set_of_another_image(study: StudyFolder, convert: Convert) -> None:
    planning = StudyFolder(study.root, study=study.study, frame=generate_uid(), count=100)
    study.add_ct_and_pet()
    paths = planning.add_ct(description="planning")
    planning.add_structures(paths, {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]})
    converted = convert()
    assert converted.case.structures is None
    assert "structure set RTSTRUCT/IM0110.dcm: drawn on another image" in converted.case.ignored


def test_structure_set_without_a_frame_of_reference(study: StudyFolder, convert: Convert) -> None:
    paths = study.add_ct_and_pet()
    contours = {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]}
    path = study.add_structures(paths, contours, ReferencedFrameOfReferenceSequence=None, FrameOfReferenceUID=None)
    dataset = dcmread(path)
    del dataset.StructureSetROISequence[0].ReferencedFrameOfReferenceUID
    dataset.save_as(path)
    assert convert().read_mask().array.sum() == 20


def test_structure_set_of_the_ct_comes_before_one_of_the_pet(study: StudyFolder, convert: Convert) -> None:
    ct_paths, pet_paths = study.add_ct(), study.add_pet()
    study.add_structures(pet_paths, {"GTVp": [make_rectangle((1, 1), (1, 1), 1)]})
    study.add_structures(ct_paths, {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]})
    converted = convert()
    assert converted.read_mask().array.sum() == 20
    assert "structure set RTSTRUCT/IM0022.dcm: drawn on another image" in converted.case.ignored


def test_two_structure_sets_of_the_ct(study: StudyFolder, convert: Convert) -> None:
    paths = study.add_ct_and_pet()
    for label in ("old", "new"):
        study.add_structures(paths, {"GTVp": [make_rectangle((4, 8), (5, 8), 3)]}, StructureSetLabel=label)
    refuse(convert, r"found 2 structure sets of the CT: .*IM0022.dcm \(old\), .* \(new\)")


def edit_file(path: Path, edit: Callable[[Dataset], None]) -> None:
    dataset = dcmread(path)
    edit(dataset)
    dataset.save_as(path)


def set_kind(kind: str | None, *, last: bool = False) -> Callable[[Dataset], None]:
    """Return an edit that sets the type of all contours of the first structure, or of the last one; None removes the type."""

    def edit(dataset: Dataset) -> None:
        for contour in dataset.ROIContourSequence[0].ContourSequence[-1 if last else 0 :]:
            contour.ContourGeometricType = kind
            if kind is None:
                del contour.ContourGeometricType

    return edit


SLICES = [make_rectangle((4, 8), (5, 8), z) for z in (3, 4)]


@pytest.mark.parametrize("kind", ["CLOSED_PLANAR", "CLOSEDPLANAR_XOR"])
def test_closed_contours(study: StudyFolder, convert: Convert, kind: str) -> None:
    edit_file(study.add_structures(study.add_ct_and_pet(), {"GTVp": SLICES}), set_kind(kind))
    assert convert().read_mask().array.sum() == 40


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("POINT", "2 POINT"), ("OPEN_PLANAR", "2 OPEN_PLANAR"), (None, r"2 without ContourGeometricType \(3006,0042\)")],
)
def test_a_mask_without_a_voxel_is_refused(study: StudyFolder, convert: Convert, kind: str, reason: str) -> None:
    edit_file(study.add_structures(study.add_ct_and_pet(), {"GTVp": SLICES}), set_kind(kind))
    refuse(
        convert, rf"no voxel in GTVp \(contours of 'GTVp' that cannot be drawn: {reason}\), expected closed contours"
    )


def test_one_stray_point_is_left_out_and_named(study: StudyFolder, convert: Convert) -> None:
    path = study.add_structures(study.add_ct_and_pet(), {"GTVp": [*SLICES, SLICES[0][:1]]})
    edit_file(path, set_kind("POINT", last=True))
    converted = convert()
    assert converted.read_mask().array.sum() == 40
    (finding,) = converted.case.findings
    assert (finding.found, finding.action) == ("contours of 'GTVp' that cannot be drawn: 1 POINT", "left out")


def test_a_closed_contour_of_one_point_is_left_out_and_named(study: StudyFolder, convert: Convert) -> None:
    study.add_structures(study.add_ct_and_pet(), {"GTVp": [*SLICES, SLICES[0][:1]]})
    converted = convert()
    assert converted.read_mask().array.sum() == 40
    assert [finding.found for finding in converted.case.findings] == [
        "contours of 'GTVp' that cannot be drawn: 1 of fewer than three points"
    ]


@pytest.mark.parametrize(
    ("contours", "notice"),
    [
        ([make_rectangle((2, 8), (2, 8), 3), make_rectangle((4, 6), (4, 6), 3)], "they are holes"),
        ([make_rectangle((4, 8), (5, 8), z) for z in (2, 4, 6)], "contours of 'GTVp' are 2 slices apart (2, 4, 6)"),
    ],
)
def test_holes_and_skipped_slices_are_a_notice(
    study: StudyFolder, convert: Convert, contours: list[np.ndarray], notice: str
) -> None:
    study.add_structures(study.add_ct_and_pet(), {"GTVp": contours})
    (finding,) = convert().case.findings
    assert notice in (finding.found, finding.action)


def test_an_empty_structure_gives_one_line(study: StudyFolder, convert: Convert) -> None:
    study.add_structures(study.add_ct_and_pet(), {"GTVp": SLICES, "GTVn": []})
    structures = convert().case.structures
    assert structures is not None
    assert _format_structures(structures) == ["mask GTVp: GTVp, 40 voxels", "mask GTVn: GTVn without a closed contour"]


def write_three_structures(study: StudyFolder) -> Path:
    """Write GTVp of 5 x 4, GTVn of 3 x 3 and a parotid of 2 x 2 voxels, on slice 3, with the numbers 1, 2 and 3."""
    contours = {"GTVp": [make_rectangle((4, 8), (5, 8), 3)], "GTVn": [make_rectangle((12, 14), (2, 4), 3)]}
    return study.add_structures(study.add_ct_and_pet(), {**contours, "Parotid": [make_rectangle((1, 2), (11, 12), 3)]})


def renumber(names: list[int | None], contours: list[int | None]) -> Callable[[Dataset], None]:
    """Give structures and contours other numbers; None removes the attribute."""

    def edit(dataset: Dataset) -> None:
        for items, keyword, numbers in (
            (dataset.StructureSetROISequence, "ROINumber", names),
            (dataset.ROIContourSequence, "ReferencedROINumber", contours),
        ):
            for item, number in zip(items, numbers, strict=True):
                delattr(item, keyword) if number is None else setattr(item, keyword, number)

    return edit


@pytest.mark.parametrize(
    ("names", "contours", "message"),
    [
        ([1, 2, 1], [1, 2, 1], r"found ROINumber \(3006,0022\) 1 of 'GTVp', 'Parotid', expected one number for each"),
        ([1, 1, 3], [1, 1, 3], r"found ROINumber \(3006,0022\) 1 of 'GTVp', 'GTVn', expected one number"),
        ([None, 2, 3], [1, 2, 3], r"found no ROINumber \(3006,0022\) of 'GTVp'"),
        ([1, 2, 3], [None, 2, 3], r"found 1 of 3 items of ROIContourSequence .* without ReferencedROINumber"),
        ([1, 2, 3], [1, 2, 1], r"found 2 items of ROIContourSequence \(3006,0039\) with number 1 of 'GTVp'"),
        ([1, 2, 3], [1, 3, 3], r"found no contours of 'GTVn' \(number 2\), but .* repeated or unknown number 3"),
        ([1, 2, 3], [1, 7, 3], r"found no contours of 'GTVn' \(number 2\), but .* repeated or unknown number 7"),
    ],
)
def test_a_tumour_without_its_own_number_is_refused(
    study: StudyFolder, convert: Convert, names: list[int | None], contours: list[int | None], message: str
) -> None:
    edit_file(write_three_structures(study), renumber(names, contours))
    refuse(convert, message)


def test_numbers_of_other_structures_may_repeat(study: StudyFolder, convert: Convert) -> None:
    """Two parotids share number 3, and contours of number 9 have no name; GTVp has 5 x 4 and GTVn 3 x 3 voxels."""
    contours = {"GTVp": [make_rectangle((4, 8), (5, 8), 3)], "GTVn": [make_rectangle((12, 14), (2, 4), 3)]}
    organs = {name: [make_rectangle((1, 2), (11, 12), 3)] for name in ("Parotid L", "Parotid R", "Eye")}
    path = study.add_structures(study.add_ct_and_pet(), contours | organs)
    edit_file(path, renumber([1, 2, 3, 3, 5], [1, 2, 3, 3, 9]))
    converted = convert()
    assert [(converted.read_mask().array == label).sum() for label in (1, 2)] == [20, 9]
    (finding,) = converted.case.findings
    assert (finding.found, finding.action) == (
        "found contours of ROI number 9, which belongs to no structure",
        "left out",
    )


def move_to_frame(frame: str, *names: str, also_set: bool = False) -> Callable[[Dataset], None]:
    """Give structures another frame of reference, which the set lists; with `also_set` the set gives it to the CT's series."""

    def edit(dataset: Dataset) -> None:
        second = Dataset()
        second.FrameOfReferenceUID = frame
        dataset.ReferencedFrameOfReferenceSequence.append(second)
        if also_set:
            dataset.ReferencedFrameOfReferenceSequence[0].FrameOfReferenceUID = frame
        for item in dataset.StructureSetROISequence:
            if item.ROIName in names:
                item.ReferencedFrameOfReferenceUID = frame

    return edit


def test_a_structure_of_another_frame_of_reference_is_left_out(study: StudyFolder, convert: Convert) -> None:
    edit_file(write_three_structures(study), move_to_frame(generate_uid(), "GTVn"))
    converted = convert()
    assert [(converted.read_mask().array == label).sum() for label in (1, 2)] == [20, 0]
    (finding,) = converted.case.findings
    assert finding.found == "found ReferencedFrameOfReferenceUID (3006,0024) of 'GTVn' that is not the CT's"
    assert (finding.expected, finding.action) == ("the frame of reference of CT 'CT WB'", "left out")
    assert converted.case.structures is not None
    assert converted.case.structures.empty_rois == (("GTVn", 2),)


def test_only_structures_of_another_frame_are_refused(study: StudyFolder, convert: Convert) -> None:
    edit_file(write_three_structures(study), move_to_frame(generate_uid(), "GTVp", "GTVn"))
    refuse(convert, r"no voxel in GTVp, GTVn \(found ReferencedFrameOfReferenceUID")


def test_a_set_that_gives_the_ct_another_frame_is_drawn_with_a_warning(study: StudyFolder, convert: Convert) -> None:
    edit_file(write_three_structures(study), move_to_frame(generate_uid(), "GTVp", "GTVn", also_set=True))
    converted = convert()
    assert [(converted.read_mask().array == label).sum() for label in (1, 2)] == [20, 9]
    assert [finding.action for finding in converted.case.findings] == ["assumed to be aligned"] * 2


def test_a_set_of_another_series_of_the_frame_is_a_finding(study: StudyFolder, convert: Convert) -> None:
    def edit(dataset: Dataset) -> None:
        (frame,) = dataset.ReferencedFrameOfReferenceSequence
        frame.RTReferencedStudySequence[0].RTReferencedSeriesSequence[0].SeriesInstanceUID = generate_uid()

    edit_file(write_three_structures(study), edit)
    converted = convert()
    assert (converted.read_mask().array == 1).sum() == 20
    (finding,) = converted.case.findings
    assert finding.found == "found a structure set that was drawn on another series than CT 'CT WB'"
