"""Simple bodies: each organ of a hand-made row lies at its place in CT and PET."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.case.read import AIR_HU, Case
from benchmarks.regions.anatomy import Person
from benchmarks.regions.bodies import BRAIN_MM, GLAND, STEP_MM, body_case, body_parts, brain_shape
from contract.images.volumes import Volume

# The glands' centre is (0, -20), so the neck's is (0, 15).
PERSON = Person(
    row=0,
    field_mm=800.0,
    brain=(40.0, 102.5, 165.0),
    brain_ml=4 / 3 * np.pi * 67.5 * 80 * 62.5 / 1000,
    glands=(120.0, 210.0),
    glands_x_mm=(-70.0, 70.0),
    glands_y_mm=(-60.0, 20.0),
    lungs=(300.0, 500.0),
    heart=(370.0, 480.0),
    liver=(450.0, 600.0),
    bladder=(700.0, 760.0),
    glands_doubtful=False,
)
# The upper 10 mm are not scanned; half of the brain, 62.5 mm, is in view.
CUT = replace(
    PERSON, brain=(10.0, 35.0, 72.5), brain_ml=PERSON.brain_ml / 2, glands=(40.0, 130.0), lungs=(220.0, 420.0)
)


@pytest.fixture(scope="module")
def whole() -> Case:
    return body_case(PERSON)


def pet_of(case: Case) -> Volume:
    assert case.pet is not None
    return case.pet


def value(volume: Volume, x: float, y: float, z: float) -> float:
    """The voxel at a place in LPS millimetres."""
    index = np.rint(volume.geometry.physical_to_index_matrix() @ [x, y, z, 1])[:3].astype(int)
    return float(volume.array[tuple(index[::-1])])


def extent_mm(volume: Volume, above: float, axis: int, fixed: dict[int, float]) -> tuple[float, float]:
    """Outer ends along an axis (x, y, z) of the voxels above a value on a line or plane."""
    centres = [
        origin + spacing * np.arange(count)
        for origin, spacing, count in zip(
            volume.geometry.origin_mm, volume.geometry.spacing_mm, volume.geometry.size, strict=True
        )
    ]
    chosen = volume.array > above
    for other, place in fixed.items():
        chosen = chosen.take([int(np.abs(centres[other] - place).argmin())], axis=2 - other)
    hit = np.flatnonzero(chosen.any(axis=tuple({0, 1, 2} - {2 - axis})))
    return float(centres[axis][hit[0]]) - STEP_MM / 2, float(centres[axis][hit[-1]]) + STEP_MM / 2


def test_the_grid_ends_at_the_top_of_the_field(whole: Case) -> None:
    """200 slices of 4 mm from z = -800 to 0; the brain's centre lies in the middle from side to side."""
    corners = whole.ct.geometry.corners_mm()
    assert (corners[:, 2].min(), corners[:, 2].max()) == (-800, 0)
    assert (corners[:, 0].min(), corners[:, 0].max()) == (-256, 256)
    assert whole.ct.geometry.differences(pet_of(whole).geometry) == []


def test_the_brain_has_its_heights_and_volume_within_a_skull(whole: Case) -> None:
    """From 40 to 165 mm, 1414 ml. Half a voxel of its edge has another tissue's values."""
    pet = pet_of(whole)
    upper = Volume(np.where(np.arange(200)[:, None, None] * 4 - 798 > -250, pet.array, 0), pet.geometry)
    assert extent_mm(upper, 4, 2, {}) == pytest.approx((-165, -40), abs=STEP_MM / 2)
    assert extent_mm(upper, 4, 0, {}) == pytest.approx((-67.5, 67.5), abs=STEP_MM / 2 + 0.1)
    assert np.count_nonzero(upper.array > 4) * 0.064 == pytest.approx(1414, rel=0.05)
    for x, y, z in ((0, 0, -36), (0, 0, -168), (71, 0, -102), (-71, 0, -102), (0, 82, -102), (0, -82, -102)):
        assert value(whole.ct, x, y, z) > 400
    assert value(whole.ct, 0, 0, -102) == 30


def test_a_cut_brain_is_the_lower_part_of_a_whole_one() -> None:
    """Half of the volume and half of the height: the whole brain's centre lies at the visible upper end."""
    assert brain_shape(CUT).radii == pytest.approx(BRAIN_MM)
    assert brain_shape(CUT).centre == pytest.approx((0, 0, -10))
    case = body_case(CUT)
    upper = case.ct.geometry.array_shape[0] - 3
    assert (case.ct.array[upper + 1 :] == AIR_HU).all()
    assert not pet_of(case).array[upper + 1 :].any()
    assert value(case.ct, 0, 0, -14) == 30


def test_the_glands_fill_their_box(whole: Case) -> None:
    """Four ellipsoids; the two on the right reach to x = -70, y from -60 to 20, z from -210 to -120."""
    shapes = [part.shape for part in body_parts(PERSON) if (part.hu, part.suv) == GLAND]
    assert len(shapes) == 4
    assert np.min([shape.bounds()[0] for shape in shapes], axis=0) == pytest.approx((-70, -60, -210))
    assert np.max([shape.bounds()[1] for shape in shapes], axis=0) == pytest.approx((70, 20, -120))
    for shape in shapes:
        middle = np.mean(shape.bounds(), axis=0)
        assert value(pet_of(whole), *middle) == pytest.approx(2.5, abs=0.01)


def test_the_neck_is_as_wide_as_stated_and_the_shoulders_400_mm() -> None:
    """150 mm below the top lies between chin (130 mm) and shoulders (160 mm); these reach 200 mm to each side.

    The neck is 60 mm wide on each side and from 15 - 65 = -50 to 15 + 80 = 95 mm deep.
    """
    ct = body_case(CUT).ct
    assert extent_mm(ct, -300, 0, {1: 15, 2: -150}) == pytest.approx((-60, 60), abs=STEP_MM)
    assert extent_mm(ct, -300, 1, {0: 0, 2: -150})[0] == pytest.approx(-50, abs=STEP_MM)
    assert value(ct, 0, 90, -150) == pytest.approx(55, abs=5)
    assert value(ct, 0, 102, -150) < -900
    left, right = extent_mm(ct, -300, 0, {1: 15, 2: -210})
    assert left <= -198
    assert right >= 198


def test_lungs_begin_as_cones_at_their_apices(whole: Case) -> None:
    """The left one is centred on (80, 10); 30 mm below the apex it has 0.7 of its half width of 58 mm, 40.6 mm."""
    assert value(whole.ct, 80, 10, -290) == pytest.approx(55, abs=5)
    assert value(whole.ct, 80, 10, -322) == -850
    assert value(whole.ct, 80 + 34, 10, -330) == -850
    assert value(whole.ct, 80 + 50, 10, -330) == pytest.approx(55, abs=5)
    assert value(whole.ct, 80 + 50, 10, -400) == -850
    assert value(whole.ct, 80, 10, -506) > 0


@pytest.mark.parametrize(
    ("place", "suv"),
    [((20, -30, -425), 4.0), ((-60, 5, -525), 2.2), ((0, -25, -730), 20.0)],
    ids=["heart", "liver", "bladder"],
)
def test_hot_organs_lie_midway_between_their_ends(whole: Case, place: tuple[float, float, float], suv: float) -> None:
    assert value(pet_of(whole), *place) == pytest.approx(suv, abs=0.01)


def test_arms_are_raised_where_the_field_reaches_far_above_the_head(whole: Case) -> None:
    """They end at x = 100 and y = 15 - 20 at the field's top; arms beside the body lie at x = 205."""
    assert value(whole.ct, 100, -5, -2) > -200
    assert value(whole.ct, 205, 15, -600) < -900
    assert value(body_case(CUT).ct, 205, 15, -600) > -200


def test_without_brain_and_glands_there_is_neither_skull_nor_gland() -> None:
    person = replace(PERSON, brain=None, brain_ml=0.0, glands=None, lungs=(60.0, 260.0))
    case = body_case(person)
    assert (case.ct.array < 600).all()
    assert pet_of(case).array[-40:].max() < 1.5
