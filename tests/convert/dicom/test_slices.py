"""Grids are built from positions: orientations, and slices that form no grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import (
    CT_GRID,
    SliceEdit,
    StudyFolder,
    edit_slice,
    format_numbers,
    make_ct_volume,
    shuffle_names,
)

# Axes of the array (x, y, z) as columns. Sagittal: x runs backwards in y (+P), y downwards (-S), slices to the right.
SAGITTAL = (0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
CORONAL = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0)
# 20 degrees about x.
OBLIQUE = (1.0, 0.0, 0.0, 0.0, 0.9396926207859084, -0.3420201433256687, 0.0, 0.3420201433256687, 0.9396926207859084)


@pytest.mark.parametrize("direction", [SAGITTAL, CORONAL, OBLIQUE], ids=["sagittal", "coronal", "oblique"])
def test_orientation_is_kept_in_lps(study: StudyFolder, convert: Convert, direction: tuple[float, ...]) -> None:
    grid = Geometry(CT_GRID.size, CT_GRID.spacing_mm, (5.0, -7.0, 110.0), direction)
    shuffle_names(study.add_ct(Volume(make_ct_volume().array, grid)))
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


def shift_slice(dataset: Dataset, offset_mm: Any) -> None:
    position = np.array(dataset.ImagePositionPatient, dtype=float) + offset_mm
    dataset.ImagePositionPatient = format_numbers(position)


def move_slice(*offset_mm: float) -> SliceEdit:
    """Return an edit that moves the fourth of nine slices."""
    return edit_slice(3, lambda dataset: shift_slice(dataset, offset_mm))


def tilt_gantry(dataset: Dataset, number: int) -> None:
    """Move a slice one pixel (3 mm) along y for each slice below it, the last one of nine by 24 mm."""
    shift_slice(dataset, (0, 3 * number, 0))


def test_rounded_positions_are_accepted(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(edit=move_slice(0, 0, 0.01))
    study.add_pet()
    assert convert().read_image("ct").geometry == CT_GRID


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (tilt_gantry, r"found a slice 24 mm off the line .*; resample a CT with a tilted gantry first"),
        (move_slice(0, 0, 1.0), r"found 5 mm between the slices .* expected 4 mm as between the other slices"),
        (
            move_slice(0, 0, -4.0),
            r"IM0004.dcm: found the position of CT/IM0003.dcm at .*; the series contains two acquisitions or time poi",
        ),
        (move_slice(2, 0, 0), r"CT/IM0004.dcm: found a slice 2 mm off the line along the normal at"),
        *(
            (edit_slice(3, **{keyword: value}), message)
            for keyword, value, message in (
                ("PixelSpacing", ["3", "2.5"], r"PixelSpacing \(0028,0030\) .* as in CT/IM0001.dcm of the same series"),
                (
                    "ImageOrientationPatient",
                    ["0", "1", "0", "0", "0", "-1"],
                    r"found ImageOrientationPatient \(0020,0037\)",
                ),
                ("ImagePositionPatient", None, r"CT/IM0004.dcm: found no ImagePositionPatient \(0020,0032\)"),
                ("PixelSpacing", ["0", "2"], r"found PixelSpacing \(0028,0030\) 0, 2"),
                ("FrameOfReferenceUID", "1.2", r"CT/IM0004.dcm: found FrameOfReferenceUID \(0020,0052\) 1.2"),
                ("Rows", None, r"found no Rows \(0028,0010\)"),
            )
        ),
    ],
)
def test_slices_that_form_no_grid(study: StudyFolder, convert: Convert, edit: SliceEdit, message: str) -> None:
    study.add_ct(edit=edit)
    study.add_pet()
    refuse(convert, message)


def test_missing_slice_names_its_neighbours(study: StudyFolder, convert: Convert) -> None:
    """Slices are 4 mm apart; without the fifth the gap is 8 mm."""
    study.add_ct_and_pet()[4].unlink()
    refuse(
        convert,
        r"^CT/IM0004.dcm and CT/IM0006.dcm: found 8 mm between the slices at \(-19, -22.5, 112\) mm and "
        r"at \(-19, -22.5, 120\) mm, expected 4 mm: 1 slice is missing$",
    )
