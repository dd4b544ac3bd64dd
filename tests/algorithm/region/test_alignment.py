"""A PET shifted against its CT is found by the outlines of the body."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.region.alignment import best_shift, pet_shift_mm
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from contract.patient import Patient

LOWER, UPPER = (-160.0, -160.0, -160.0), (160.0, 160.0, 160.0)
REGION = Region(lower_mm=LOWER, upper_mm=UPPER, found_by="body outline")


def body(radius_mm: float = 90.0) -> Case:
    """A cone that is wider below on both scans: soft tissue of SUV 1 in air."""

    def volume(spacing: float, inside: float, outside: float, dtype: type) -> Volume:
        count = int(320 / spacing)
        axis = (np.arange(count) - (count - 1) / 2) * spacing
        z, y, x = np.meshgrid(axis, axis, axis, indexing="ij")
        cone = np.hypot(x, 1.2 * y) < radius_mm - z / 4
        origin = (axis[0],) * 3
        return Volume(np.where(cone, inside, outside).astype(dtype), Geometry((count,) * 3, (spacing,) * 3, origin))

    return Case(volume(4.0, 40, -1000, np.int16), volume(5.0, 1.0, 0.0, np.float32), Patient())


def moved(case: Case, shift_mm: tuple[float, float, float]) -> Case:
    assert case.pet is not None
    x, y, z = np.add(case.pet.geometry.origin_mm, shift_mm).tolist()
    return replace(case, pet=Volume(case.pet.array, replace(case.pet.geometry, origin_mm=(x, y, z))))


@pytest.mark.parametrize("shift", [(20.0, 0.0, 0.0), (0.0, -20.0, 0.0), (0.0, 0.0, 20.0), (-16.0, 12.0, 0.0)])
def test_a_shift_is_found_to_a_voxel_of_4_mm(shift: tuple[float, float, float]) -> None:
    found = pet_shift_mm(moved(body(), shift), REGION)
    assert found is not None
    assert np.abs(np.subtract(found, shift)).max() <= 4.0


@pytest.mark.parametrize("shift", [(0.0, 0.0, 0.0), (6.0, 0.0, 0.0), (0.0, -4.0, 4.0)])
def test_small_shifts_are_usual(shift: tuple[float, float, float]) -> None:
    assert pet_shift_mm(moved(body(), shift), REGION) is None


def test_another_body_is_no_shift() -> None:
    """Two cones of 90 and 50 mm overlap poorly at any shift."""
    wide, narrow = body(), body(50.0)
    assert pet_shift_mm(moved(replace(wide, pet=narrow.pet), (20.0, 0.0, 0.0)), REGION) is None


def test_a_ct_without_air_has_no_outline() -> None:
    case = moved(body(), (20.0, 0.0, 0.0))
    ct = Volume(np.maximum(case.ct.array, np.int16(-160)), case.ct.geometry)
    assert pet_shift_mm(replace(case, ct=ct), REGION) is None


def test_a_pet_that_shows_little_of_the_region_is_not_compared() -> None:
    """Shifted by 240 mm, 80 of 320 mm are in both scans."""
    assert pet_shift_mm(moved(body(), (0.0, 0.0, 240.0)), REGION) is None
    assert pet_shift_mm(replace(body(), pet=None), REGION) is None


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_best_shift_is_that_of_a_search(seed: int) -> None:
    """Every shift of up to 2 voxels is tried; overlap is Dice over the voxels that stay in the array.

    Each voxel of a shift costs 0.002.
    """
    rng = np.random.default_rng(seed)
    fixed, other = (rng.random((5, 6, 4)) < 0.4 for _ in range(2))
    overlaps = {}
    for z, y, x in np.ndindex(5, 5, 5):
        dz, dy, dx = z - 2, y - 2, x - 2
        a = fixed[_part(5, dz)][:, _part(6, dy)][:, :, _part(4, dx)]
        b = other[_part(5, -dz)][:, _part(6, -dy)][:, :, _part(4, -dx)]
        overlaps[dz, dy, dx] = 2 * (a & b).sum() / max(a.sum() + b.sum(), 1)
    shift, gain, overlap = best_shift(fixed, other, 2)
    score = {step: value - 0.002 * float(np.linalg.norm(step)) for step, value in overlaps.items()}
    assert score[shift] == pytest.approx(max(score.values()), abs=1e-5)
    assert overlap == pytest.approx(overlaps[shift], abs=1e-5)
    assert gain == pytest.approx(overlap - overlaps[0, 0, 0], abs=1e-5)


def _part(size: int, step: int) -> slice:
    """Indices that stay within `size` after `step`."""
    return slice(max(0, -step), min(size, size - step))


@pytest.mark.shared
@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_real_scans_are_not_shifted(sts_scans: Path, patient: str) -> None:
    folder = sts_scans / patient
    ct = clean_ct(read_volume(folder / "CT_image.nii.gz"), "CT", Notices())
    pet = clean_pet(read_volume(folder / "PET_image.nii.gz"), ct, "PET", Notices())
    corners = ct.geometry.corners_mm()
    region = replace(REGION, lower_mm=tuple(corners.min(0)), upper_mm=tuple(corners.max(0)))
    case = Case(ct, pet, Patient())
    assert pet_shift_mm(case, region) is None
    assert pet_shift_mm(moved(case, (20.0, 0.0, 0.0)), region) is not None
