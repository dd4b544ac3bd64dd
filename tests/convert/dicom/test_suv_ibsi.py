"""The IBSI's reference objects for SUV: one PET of 0.20, 1.00 and 4.00, encoded in several ways.

https://github.com/oncoray/suv_computation, version 1, CC BY 4.0. Stored values are truncated to integers: an SUV may be
lower by one step of the pixels, which is below 0.01% or 0.0003 except for CM2ML with a slope of 0.01.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convert.dicom.files import quiet_pydicom, read_folder
from convert.dicom.slices import stack_slices
from convert.dicom.suv import compute_suv_scale
from convert.dicom.volumes import read_pet
from tests.shared_data import shared

EXPECTED = (0.2, 1.0, 4.0)
# Objects whose stored values are exact.
EXACT = ("DRO_0_0", "DRO_2_0", "DRO_2_4", "DRO_3_2", "DRO_4_1", "DRO_4_2")
TRUNCATED = ("DRO_2_1", "DRO_2_3", "DRO_3_1", "DRO_3_4")


@pytest.fixture(scope="module")
def objects() -> Path:
    return shared("data/ibsi_suv")


@pytest.mark.shared
@pytest.mark.parametrize("name", EXACT + TRUNCATED)
def test_reference_object(objects: Path, name: str) -> None:
    with quiet_pydicom():
        stack = stack_slices(read_folder(objects / name / "PT").headers)
        scale = compute_suv_scale(stack.headers)
        suv = read_pet(stack, scale).array
    levels = np.unique(suv)[1:]  # without the background of 0
    nearest = np.array([min(EXPECTED, key=lambda level: abs(level - value)) for value in levels])
    assert set(nearest) == set(EXPECTED)
    step = max(scale.factors) * float(stack.headers[0].require_number("RescaleSlope", "a slope"))
    tolerance = 1e-4 * nearest + (0 if name in EXACT else step)
    assert np.all(np.abs(levels - nearest) <= tolerance), levels


@pytest.mark.shared
def test_every_object_of_the_folder_is_tried(objects: Path) -> None:
    assert sorted(path.name for path in objects.glob("DRO_*") if path.is_dir()) == sorted(EXACT + TRUNCATED)
