"""Grids are built from positions: orientations, and slices that form no grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, StudyFolder, format_numbers, make_ct_volume

# Axes of the array (x, y, z) as columns. Sagittal: x runs backwards in y (+P), y downwards (-S), slices to the right.
SAGITTAL = (0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
CORONAL = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0)
# 20 degrees about x.
OBLIQUE = (1.0, 0.0, 0.0, 0.0, 0.9396926207859084, -0.3420201433256687, 0.0, 0.3420201433256687, 0.9396926207859084)


@pytest.mark.parametrize("direction", [SAGITTAL, CORONAL, OBLIQUE], ids=["sagittal", "coronal", "oblique"])
def test_orientation_is_kept_in_lps(study: StudyFolder, convert: Convert, direction: tuple[float, ...]) -> None:
    grid = Geometry(CT_GRID.size, CT_GRID.spacing_mm, (5.0, -7.0, 110.0), direction)
    study.add_ct(Volume(make_ct_volume().array, grid))
    study.add_pet()
    ct = convert().read_image("ct")
    assert ct.geometry.find_differences(grid) == []
    np.testing.assert_allclose(ct.geometry.direction, direction, atol=1e-9)
    np.testing.assert_array_equal(ct.array, make_ct_volume().array)


def test_slices_stored_from_head_to_feet(study: StudyFolder, convert: Convert) -> None:
    """The voxels of a grid whose slices run downwards are stored ascending."""
    downwards = Geometry(CT_GRID.size, CT_GRID.spacing_mm, CT_GRID.origin_mm, (1, 0, 0, 0, 1, 0, 0, 0, -1))
    volume = make_ct_volume(downwards)
    study.add_ct(volume)
    study.add_pet()
    ct = convert().read_image("ct")
    assert ct.geometry.origin_mm == (-19.0, -22.5, 68.0)  # 100 - 8 * 4
    np.testing.assert_array_equal(ct.array, volume.array[::-1])


def test_a_tilted_gantry_is_refused(study: StudyFolder, convert: Convert) -> None:
    """Nine slices lie one pixel (3 mm) further along y than the one below, the last one 24 mm."""

    def tilt(dataset: Dataset, number: int) -> None:
        x, y, z = (float(value) for value in dataset.ImagePositionPatient)
        dataset.ImagePositionPatient = format_numbers([x, y + 3 * number, z])

    study.add_ct(edit=tilt)
    study.add_pet()
    refuse(convert, r"found a slice 24 mm off the line .*; resample a CT with a tilted gantry first")


def edit_position(index: int, offset_mm: tuple[float, float, float]) -> Any:
    def edit(dataset: Dataset, number: int) -> None:
        if number == index:
            position = np.array(dataset.ImagePositionPatient, dtype=float) + offset_mm
            dataset.ImagePositionPatient = format_numbers(position)

    return edit


def test_rounded_positions_are_accepted(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(edit=edit_position(3, (0, 0, 0.01)))
    study.add_pet()
    assert convert().read_image("ct").geometry == CT_GRID


@pytest.mark.parametrize(
    ("offset_mm", "message"),
    [
        ((0, 0, 1.0), r"found 5 mm between the slices .* expected 4 mm as between the other slices"),
        ((0, 0, -4.0), r"IM0004.dcm: found the position of CT/IM0003.dcm at .* expected one slice at each position"),
        ((2, 0, 0), r"CT/IM0004.dcm: found a slice 2 mm off the line along the normal at"),
    ],
)
def test_slices_that_form_no_grid(
    study: StudyFolder, convert: Convert, offset_mm: tuple[float, float, float], message: str
) -> None:
    study.add_ct(edit=edit_position(3, offset_mm))
    study.add_pet()
    refuse(convert, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PixelSpacing": ["3", "2.5"]}, r"found PixelSpacing \(0028,0030\) .* as in CT/IM0001.dcm of the same series"),
        ({"ImageOrientationPatient": ["0", "1", "0", "0", "0", "-1"]}, r"found ImageOrientationPatient \(0020,0037\)"),
        ({"ImagePositionPatient": None}, r"CT/IM0004.dcm: found no ImagePositionPatient \(0020,0032\)"),
        ({"PixelSpacing": ["0", "2"]}, r"found PixelSpacing \(0028,0030\) 0, 2"),
        ({"FrameOfReferenceUID": "1.2"}, r"CT/IM0004.dcm: found FrameOfReferenceUID \(0020,0052\) 1.2"),
        ({"Rows": None}, r"found no Rows \(0028,0010\)"),
    ],
)
def test_slices_of_different_kinds(study: StudyFolder, convert: Convert, changes: dict[str, Any], message: str) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        if index == 3:
            for keyword, value in changes.items():
                setattr(dataset, keyword, value) if value is not None else delattr(dataset, keyword)

    study.add_ct(edit=edit)
    study.add_pet()
    refuse(convert, message)
