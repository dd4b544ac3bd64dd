"""Grids from positions: orientations, gantry tilt, and slices that form no grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, StudyFolder, ct_volume, numbers

# Axes of the array (x, y, z) as columns. Sagittal: x runs backwards in y (+P), y downwards (-S), slices to the right.
SAGITTAL = (0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
CORONAL = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0)
# 20 degrees about x.
OBLIQUE = (1.0, 0.0, 0.0, 0.0, 0.9396926207859084, -0.3420201433256687, 0.0, 0.3420201433256687, 0.9396926207859084)


@pytest.mark.parametrize("direction", [SAGITTAL, CORONAL, OBLIQUE], ids=["sagittal", "coronal", "oblique"])
def test_orientation_is_kept_in_lps(study: StudyFolder, convert: Convert, direction: tuple[float, ...]) -> None:
    grid = Geometry(CT_GRID.size, CT_GRID.spacing_mm, (5.0, -7.0, 110.0), direction)
    study.ct(Volume(ct_volume().array, grid))
    study.pet()
    ct = convert().image("ct")
    assert ct.geometry.differences(grid) == []
    np.testing.assert_allclose(ct.geometry.direction, direction, atol=1e-9)
    np.testing.assert_array_equal(ct.array, ct_volume().array)


def test_slices_stored_from_head_to_feet(study: StudyFolder, convert: Convert) -> None:
    """A grid whose slices run downwards: the same voxels, ascending."""
    downwards = Geometry(CT_GRID.size, CT_GRID.spacing_mm, CT_GRID.origin_mm, (1, 0, 0, 0, 1, 0, 0, 0, -1))
    volume = ct_volume(downwards)
    study.ct(volume)
    study.pet()
    ct = convert().image("ct")
    assert ct.geometry.origin_mm == (-19.0, -22.5, 68.0)  # 100 - 8 * 4
    np.testing.assert_array_equal(ct.array, volume.array[::-1])


@pytest.mark.parametrize("shear_mm", [(0.0, 3.0), (0.0, -3.0), (2.0, 0.0)])
def test_gantry_tilt_is_resampled(study: StudyFolder, convert: Convert, shear_mm: tuple[float, float]) -> None:
    """Each slice lies one pixel further along y (3 mm) or x (2 mm) than the one below.

    Over nine slices that is eight pixels, so the grid grows by eight, and every value is that of a pixel, without
    interpolation. The angle is atan(3 / 4) = 36.87 degrees for 3 mm in 4 mm.
    """
    volume = ct_volume()
    study.ct(volume, shear_mm=shear_mm)
    study.pet()
    converted = convert()
    ct = converted.image("ct")
    expected = np.full((9, 16 + 8 * bool(shear_mm[1]), 20 + 8 * bool(shear_mm[0])), -1024, dtype=np.int16)
    for index, pixels in enumerate(volume.array):
        row = index if shear_mm[1] > 0 else 8 - index if shear_mm[1] < 0 else 0
        column = index if shear_mm[0] else 0
        expected[index, row : row + 16, column : column + 20] = pixels
    np.testing.assert_array_equal(ct.array, expected)
    assert ct.geometry.origin_mm == pytest.approx((-19.0, -22.5 - 24.0 * (shear_mm[1] < 0), 100.0))
    assert "gantry tilt" in str(converted.case.findings[0])
    if shear_mm[1]:
        assert "36.9 degrees" in str(converted.case.findings[0])


def test_tilted_gantry_keeps_each_voxel_in_its_place(study: StudyFolder, convert: Convert) -> None:
    """A table along z under slices tilted by 20 degrees: a bright pixel lies where its slice was.

    Slice 5, row 8, column 10 has the position origin + 10 * 2 mm along x, 8 * 3 mm along the rows and 5 * 4 mm / cos 20
    along z.
    """
    sine, cosine = 0.3420201433256687, 0.9396926207859084
    array = np.full((9, 16, 20), -1024, dtype=np.int16)
    array[5, 8, 10] = 1000
    grid = Geometry((20, 16, 9), (2.0, 3.0, 4.0), (-19.0, -22.5, 100.0), OBLIQUE)

    def along_z(dataset: Dataset, index: int) -> None:
        dataset.ImagePositionPatient = numbers([-19.0, -22.5, 100.0 + index * 4.0 / cosine])

    study.ct(Volume(array, grid), edit=along_z)
    study.pet()
    ct = convert().image("ct")
    z, y, x = np.unravel_index(ct.array.argmax(), ct.array.shape)
    place = ct.geometry.index_to_physical_matrix() @ (x, y, z, 1)
    expected = np.array([-19 + 20, -22.5 + 24 * cosine, 100 + 20 / cosine + 24 * sine])
    assert np.abs(place[:3] - expected).max() < 1.5  # half a pixel of 3 mm
    assert (ct.array > -1024).sum() == 2  # between two pixels along y


def test_tilt_in_the_tag_but_not_in_the_positions(study: StudyFolder, convert: Convert) -> None:
    study.ct(GantryDetectorTilt="15")
    study.pet(GantryDetectorTilt="0")
    converted = convert()
    np.testing.assert_array_equal(converted.image("ct").array, ct_volume().array)
    assert [finding.found for finding in converted.case.findings] == [
        "found GantryDetectorTilt (0018,1120) 15, but the slices lie straight above each other"
    ]


def edit_position(index: int, offset_mm: tuple[float, float, float]) -> Any:
    def edit(dataset: Dataset, number: int) -> None:
        if number == index:
            position = np.array(dataset.ImagePositionPatient, dtype=float) + offset_mm
            dataset.ImagePositionPatient = numbers(position)

    return edit


def test_rounded_positions_are_accepted(study: StudyFolder, convert: Convert) -> None:
    study.ct(edit=edit_position(3, (0, 0, 0.01)))
    study.pet()
    assert convert().image("ct").geometry == CT_GRID


@pytest.mark.parametrize(
    ("offset_mm", "message"),
    [
        ((0, 0, 1.0), r"found 5 mm between the slices .* expected 4 mm as between the other slices"),
        ((0, 0, -4.0), r"IM0004.dcm: found the position of CT/IM0003.dcm at .* expected one slice at each position"),
        ((2, 0, 0), r"CT/IM0004.dcm: found a slice 2 mm off the line of the others at"),
    ],
)
def test_slices_that_form_no_grid(
    study: StudyFolder, convert: Convert, offset_mm: tuple[float, float, float], message: str
) -> None:
    study.ct(edit=edit_position(3, offset_mm))
    study.pet()
    refuse(convert, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PixelSpacing": ["3", "2.5"]}, r"found PixelSpacing \(0028,0030\) .* as in CT/IM0001.dcm of the same series"),
        ({"ImageOrientationPatient": ["0", "1", "0", "0", "0", "-1"]}, r"found ImageOrientationPatient \(0020,0037\)"),
        (
            {"ImagePositionPatient": None},
            r"CT/IM0004.dcm: found no ImagePositionPatient \(0020,0032\)",
        ),
        ({"PixelSpacing": ["0", "2"]}, r"found PixelSpacing \(0028,0030\) 0, 2"),
        (
            {"FrameOfReferenceUID": "1.2"},
            r"CT/IM0004.dcm: found FrameOfReferenceUID \(0020,0052\) 1.2",
        ),
        ({"Rows": None}, r"found no Rows \(0028,0010\)"),
    ],
)
def test_slices_of_different_kinds(study: StudyFolder, convert: Convert, changes: dict[str, Any], message: str) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        if index == 3:
            for keyword, value in changes.items():
                setattr(dataset, keyword, value) if value is not None else delattr(dataset, keyword)

    study.ct(edit=edit)
    study.pet()
    refuse(convert, message)
