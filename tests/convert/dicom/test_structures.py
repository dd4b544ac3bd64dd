"""Contours become masks: voxels counted by hand on a grid of 2 x 3 x 4 mm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import Dataset, dcmread
from pydicom.uid import generate_uid

from contract.errors import InputError
from convert.dicom.structures import RoiNames
from tests.convert.conftest import Convert, Converted, refuse
from tests.convert.studies import CT_GRID, StudyFolder, make_rectangle

Edit = Callable[[Dataset], None]
Contours = Mapping[str, list[np.ndarray]]
# 5 x 4 voxels of a slice.
BOX = make_rectangle((4, 8), (5, 8), 3)
SLICES = [BOX, make_rectangle((4, 8), (5, 8), 4)]
# Half a slice above slice 3.
OFF_SLICE = BOX + np.array([0, 0, 2.0])
# GTVp of 5 x 4, GTVn of 3 x 3 and a parotid of 2 x 2 voxels have the numbers 1, 2 and 3.
PAROTID = [make_rectangle((1, 2), (11, 12), 3)]
THREE = {"GTVp": [BOX], "GTVn": [make_rectangle((12, 14), (2, 4), 3)], "Parotid": PAROTID}
FIVE = {**THREE, "Parotid R": PAROTID, "Eye": PAROTID}
UNDRAWABLE = "contours of 'GTVp' that cannot be drawn:"


def edit_file(path: Path, edit: Edit) -> None:
    dataset = dcmread(path)
    edit(dataset)
    dataset.save_as(path)


@pytest.fixture
def draw(study: StudyFolder, convert: Convert) -> Callable[..., Converted]:
    """Convert a study whose CT has a structure set with these contours, after an edit of the set."""

    def run(contours: Contours, edit: Edit | None = None, **options: Any) -> Converted:
        path = study.add_structures(study.add_ct_and_pet(), contours)
        if edit is not None:
            edit_file(path, edit)
        return convert(**options)

    return run


def count_voxels(converted: Converted) -> tuple[int, int]:
    """Return the voxels of GTVp and of GTVn."""
    mask = converted.read_mask().array
    return int((mask == 1).sum()), int((mask == 2).sum())


def test_square_contours(draw: Callable[..., Converted]) -> None:
    """GTVp: 5 x 4 voxels on slices 3 and 4, 40 voxels. GTVn: 3 x 3 voxels on slice 6, 9 voxels."""
    converted = draw({"GTVp": SLICES, "GTV-N1": [make_rectangle((12, 14), (2, 4), 6)], "PTV 70": SLICES})
    mask = converted.read_mask()
    assert mask.geometry == CT_GRID
    assert mask.array.dtype == np.uint8
    expected = np.zeros(CT_GRID.array_shape, dtype=np.uint8)
    expected[3:5, 5:9, 4:9] = 1
    expected[6, 2:5, 12:15] = 2
    np.testing.assert_array_equal(mask.array, expected)
    assert converted.case.structures is not None
    assert converted.case.structures.rois == (("GTVp", 1), ("GTV-N1", 2))
    assert converted.case.structures.unused_names == ("PTV 70",)


@pytest.mark.parametrize("order", [("GTVp", "GTVn"), ("GTVn", "GTVp")])
def test_primary_covers_node(draw: Callable[..., Converted], order: tuple[str, str]) -> None:
    """Two rectangles of 4 x 4 voxels with 2 x 4 in common: 16 voxels of GTVp, 8 of GTVn."""
    contours = {"GTVp": [make_rectangle((2, 5), (2, 5), 3)], "GTVn": [make_rectangle((4, 7), (2, 5), 3)]}
    assert count_voxels(draw({name: contours[name] for name in order})) == (16, 8)


def set_kind(kind: str | None, *, last: bool = False) -> Edit:
    """Return an edit of the type of all contours of the first structure, or of its last one; None removes the type."""

    def edit(dataset: Dataset) -> None:
        for contour in dataset.ROIContourSequence[0].ContourSequence[-1 if last else 0 :]:
            contour.ContourGeometricType = kind
            if kind is None:
                del contour.ContourGeometricType

    return edit


def set_points(data: list[str] | None) -> Edit:
    return lambda dataset: setattr(dataset.ROIContourSequence[0].ContourSequence[0], "ContourData", data)


def renumber(names: list[int | None], contours: list[int | None]) -> Edit:
    """Give structures and contours other numbers; None removes the attribute."""

    def edit(dataset: Dataset) -> None:
        for items, keyword, numbers in (
            (dataset.StructureSetROISequence, "ROINumber", names),
            (dataset.ROIContourSequence, "ReferencedROINumber", contours),
        ):
            for item, number in zip(items, numbers, strict=True):
                delattr(item, keyword) if number is None else setattr(item, keyword, number)

    return edit


def move_to_frame(*names: str, also_set: bool = False) -> Edit:
    """Give structures another frame of reference, which the set lists; with `also_set` the set gives it to the CT."""

    def edit(dataset: Dataset) -> None:
        second = Dataset()
        second.FrameOfReferenceUID = generate_uid()
        dataset.ReferencedFrameOfReferenceSequence.append(second)
        if also_set:
            dataset.ReferencedFrameOfReferenceSequence[0].FrameOfReferenceUID = second.FrameOfReferenceUID
        for item in dataset.StructureSetROISequence:
            if item.ROIName in names:
                item.ReferencedFrameOfReferenceUID = second.FrameOfReferenceUID

    return edit


def name_another_series(dataset: Dataset) -> None:
    (frame,) = dataset.ReferencedFrameOfReferenceSequence
    frame.RTReferencedStudySequence[0].RTReferencedSeriesSequence[0].SeriesInstanceUID = generate_uid()


FRAME = "found ReferencedFrameOfReferenceUID (3006,0024) of"
# Contours, edit, voxels of GTVp and GTVn, and each finding with its action.
DRAWN: dict[str, tuple[Contours, Edit | None, tuple[int, int], list[tuple[str, str]]]] = {
    # Two rectangles of 4 x 4 voxels without the 2 x 4 that they share.
    "contours of vendors, by parity": (
        {"GTVp": [make_rectangle((first, first + 3), (2, 5), 3) for first in (2, 4)]},
        set_kind("CLOSEDPLANAR_XOR"),
        (16, 0),
        [],
    ),
    "between slices and above the CT": (
        {"GTVp": [OFF_SLICE, BOX, make_rectangle((4, 8), (5, 8), 30)]},
        None,
        (20, 0),
        [(f"{UNDRAWABLE} 2 at no slice of the CT (3.50, 30.00)", "left out")],
    ),
    "a point": (
        {"GTVp": [*SLICES, BOX[:1]]},
        set_kind("POINT", last=True),
        (40, 0),
        [(f"{UNDRAWABLE} 1 POINT", "left out")],
    ),
    "a closed contour of one point": (
        {"GTVp": [*SLICES, BOX[:1]]},
        None,
        (40, 0),
        [(f"{UNDRAWABLE} 1 of fewer than three points", "left out")],
    ),
    # 7 x 7 voxels without 3 x 3 in the middle, and another 2 x 2.
    "a hole": (
        {"GTVp": [make_rectangle(*corners, 3) for corners in (((2, 8),) * 2, ((4, 6),) * 2, ((12, 13), (2, 3)))]},
        None,
        (49 - 9 + 4, 0),
        [("1 contours of 'GTVp' lie within another contour", "they are holes")],
    ),
    "skipped slices": (
        {"GTVp": [make_rectangle((4, 8), (5, 8), z) for z in (2, 4, 6)]},
        None,
        (60, 0),
        [("contours of 'GTVp' are 2 slices apart (2, 4, 6)", "the slices between them stay empty")],
    ),
    # Two parotids share number 3, and contours of number 9 have no name.
    "numbers of other structures": (
        FIVE,
        renumber([1, 2, 3, 3, 5], [1, 2, 3, 3, 9]),
        (20, 9),
        [("found contours of ROI number 9, which belongs to no structure", "left out")],
    ),
    "a node in another frame of reference": (
        THREE,
        move_to_frame("GTVn"),
        (20, 0),
        [(f"{FRAME} 'GTVn' that is not the CT's", "left out")],
    ),
    "a set that gives the CT another frame": (
        THREE,
        move_to_frame("GTVp", "GTVn", also_set=True),
        (20, 9),
        [(f"{FRAME} '{name}' that is not the CT's", "assumed to be aligned") for name in ("GTVp", "GTVn")],
    ),
    "a set of another series of the frame": (
        THREE,
        name_another_series,
        (20, 9),
        [
            (
                "found a structure set that was drawn on another series than CT 'CT WB'",
                "assumed to be aligned, since the frame of reference is the CT's",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_and_noticed(draw: Callable[..., Converted], name: str) -> None:
    contours, edit, voxels, findings = DRAWN[name]
    converted = draw(contours, edit)
    assert count_voxels(converted) == voxels
    assert [(finding.found, finding.action) for finding in converted.case.findings] == findings


NO_VOXEL = rf"no voxel in GTVp \({UNDRAWABLE}"
REFUSED: list[tuple[Contours, Edit | None, str]] = [
    ({"GTVp": [OFF_SLICE]}, None, rf"IM0016.dcm: {NO_VOXEL} 1 at no slice of the CT \(3.50\)\)"),
    ({"GTVp": SLICES}, set_kind("POINT"), rf"{NO_VOXEL} 2 POINT\), expected closed contours"),
    ({"GTVp": SLICES}, set_kind(None), rf"{NO_VOXEL} 2 without ContourGeometricType \(3006,0042\)\)"),
    ({"GTVp": [BOX]}, set_points(["1", "2", "100", "1"]), r"ContourData \(3006,0050\) of 'GTVp' has 4 numbers"),
    ({"GTVp": [BOX]}, set_points(None), r"found no ContourData \(3006,0050\)"),
    (THREE, move_to_frame("GTVp", "GTVn"), r"no voxel in GTVp, GTVn \(found ReferencedFrameOfReferenceUID"),
    *(
        (THREE, renumber(names, contours), message)
        for names, contours, message in (
            ([1, 2, 1], [1, 2, 1], r"found ROINumber \(3006,0022\) 1 of 'GTVp', 'Parotid', expected one number for"),
            ([None, 2, 3], [1, 2, 3], r"found no ROINumber \(3006,0022\) of 'GTVp'"),
            ([1, 2, 3], [None, 2, 3], r"found 1 of 3 items of ROIContourSequence .* without ReferencedROINumber"),
            ([1, 2, 3], [1, 2, 1], r"found 2 items of ROIContourSequence \(3006,0039\) with number 1 of 'GTVp'"),
            ([1, 2, 3], [1, 3, 3], r"found no contours of 'GTVn' \(number 2\), but .* repeated or unknown number 3"),
            ([1, 2, 3], [1, 7, 3], r"found no contours of 'GTVn' \(number 2\), but .* repeated or unknown number 7"),
        )
    ),
]


@pytest.mark.parametrize(("contours", "edit", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_contours_that_cannot_be_used(
    draw: Callable[..., Converted], contours: Contours, edit: Edit | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        draw(contours, edit)


def test_damaged_contour(study: StudyFolder, convert: Convert) -> None:
    path = study.add_structures(study.add_ct_and_pet(), {"GTVp": [BOX]})
    path.write_bytes(path.read_bytes().replace(b"-12.0", b"-1*.0"))
    refuse(convert, r"RTSTRUCT/IM0016.dcm: .*ContourData \(3006,0050\)")


def test_without_a_tumour_no_mask_is_written(draw: Callable[..., Converted]) -> None:
    converted = draw({"Mandible": [BOX], "GTVp": []})
    assert not (converted.folder / "ground_truth").exists()
    assert converted.case.structures is not None
    assert converted.case.structures.unused_names == ("Mandible",)
    assert converted.case.structures.empty_rois == (("GTVp", 1),)


def test_names_by_option(study: StudyFolder, convert: Convert) -> None:
    """With the option GTVp is not the primary tumour, since the option replaces the usual spellings."""
    boxes = {
        name: [make_rectangle((x, x + 1), (5, 8), 3)] for x, name in ((2, "Tumour 68Gy"), (6, "GTVp"), (10, "LN left"))
    }
    study.add_structures(study.add_ct_and_pet(), boxes)
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
    planning.add_structures(planning.add_ct(description="planning"), {"GTVp": [BOX]})
    converted = convert()
    assert converted.case.structures is None
    assert "structure set RTSTRUCT/IM0110.dcm: drawn on another image" in converted.case.ignored


def test_structure_set_without_a_frame_of_reference_in_another_study(study: StudyFolder, convert: Convert) -> None:
    """Planning systems often put structure sets into another study."""
    without = {"ReferencedFrameOfReferenceSequence": None, "FrameOfReferenceUID": None, "StudyInstanceUID": "1.2.3"}
    path = study.add_structures(study.add_ct_and_pet(), {"GTVp": [BOX]}, **without)
    edit_file(path, lambda dataset: delattr(dataset.StructureSetROISequence[0], "ReferencedFrameOfReferenceUID"))
    assert count_voxels(convert()) == (20, 0)


def test_structure_set_of_the_ct_comes_before_one_of_the_pet(study: StudyFolder, convert: Convert) -> None:
    """Two sets of the CT are refused."""
    ct_paths, pet_paths = study.add_ct(), study.add_pet()
    study.add_structures(pet_paths, {"GTVp": [make_rectangle((1, 1), (1, 1), 1)]})
    paths = [study.add_structures(ct_paths, {"GTVp": [BOX]}, StructureSetLabel=label) for label in ("old", "new")]
    refuse(convert, r"found 2 structure sets of the CT: .*IM0017.dcm \(old\), .* \(new\)")
    paths[1].unlink()
    converted = convert()
    assert count_voxels(converted) == (20, 0)
    assert "structure set RTSTRUCT/IM0016.dcm: drawn on another image" in converted.case.ignored
