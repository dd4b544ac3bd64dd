"""Contours instead of the network's mask: their grid, and the option of `hecktor predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.case.read import Case
from algorithm.masks.segmentation import segment_by_contours
from algorithm.region.grids import make_upright_grid, resample_mask
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask
from contract.patient import Patient
from tests.algorithm.conftest import Predict

GRID = Geometry((40, 40, 40), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0))
REGION = Region((19.0, 19.0, 19.0), (59.0, 59.0, 59.0), "test")


def make_cube(low: int, high: int, label: int = 1) -> Volume:
    array = np.zeros(GRID.array_shape, np.uint8)
    array[low:high, low:high, low:high] = label
    return Volume(array, GRID)


def test_the_grid_is_the_grid_of_training_on_reference_masks() -> None:
    """`prepare` writes a reference on the same grid, and the mask is the same."""
    case = Case(Volume(np.zeros(GRID.array_shape, np.int16), GRID), None, Patient())
    segmentation = segment_by_contours(case, make_cube(14, 22), REGION, (3.0, 3.0, 3.0))
    grid = make_upright_grid(GRID, REGION.lower_mm, REGION.upper_mm, (3.0, 3.0, 3.0))
    assert segmentation.grid == grid
    np.testing.assert_array_equal(segmentation.mask(), resample_mask(make_cube(14, 22), grid))


def test_contours_beyond_the_region_count() -> None:
    """Mark a cube of 16 mm from 3 mm to 19 mm, wholly outside the region: 4.096 ml."""
    case = Case(Volume(np.zeros(GRID.array_shape, np.int16), GRID), None, Patient())
    segmentation = segment_by_contours(case, make_cube(2, 10, 2), REGION, (2.0, 2.0, 2.0))
    volume_ml = np.count_nonzero(segmentation.mask() == 2) * segmentation.grid.voxel_volume_mm3 / 1000
    assert volume_ml == pytest.approx(4.096, rel=0.05)


@pytest.fixture
def contours(case_folder: Any, tmp_path: Path) -> Path:
    """Write a case and a primary of 6 x 6 x 6 voxels of 8 x 8 x 9 mm, 124.4 ml."""
    case_folder.write()
    mask = np.zeros(case_folder.ct.geometry.array_shape, np.uint8)
    mask[7:13, 9:15, 9:15] = 1
    write_mask(tmp_path / "mask.mha", mask, case_folder.ct.geometry)
    return tmp_path / "mask.mha"


def test_the_option_takes_the_place_of_the_network(contours: Path, predict: Predict, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    answer = predict("rfs", "--contours", str(contours), "--record", str(record))
    assert answer.status == 0, answer.lines
    content = json.loads(record.read_text())
    assert (content["segmented_by"], content["passes_done"], content["fallbacks"]) == ("contours", 0, [])
    assert content["lesions"]["GTVp"] == {"volume_ml": pytest.approx(124.4, rel=0.15), "count": 1}
    assert content["lesions"]["GTVn"]["count"] == 0
