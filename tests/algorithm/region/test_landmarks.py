"""Landmarks of simulated scans."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.case.read import Case
from algorithm.region.landmarks import Brain, Coarse, find_brain, find_lung_apex, make_coarse_picture, remove_cold_parts
from algorithm.region.localise import localise
from contract.images.volumes import Volume
from contract.patient import Patient
from tests.algorithm.region.simple_scan import (
    APEX_MM,
    BRAIN_MM,
    BRAIN_RADIUS_MM,
    GRID,
    Scan,
    make_ball,
    make_coordinates,
    make_tube,
)


def find_any_brain(coarse: Coarse) -> Brain:
    brain = find_brain(coarse, find_lung_apex(coarse))
    assert brain is not None
    return brain


@pytest.mark.parametrize("pet", [True, False])
def test_centre_and_lower_end_of_a_brain_in_its_case(pet: bool) -> None:
    """290 - 60 = 230 mm. Sections of 500 mm2 have a radius of 12.6 mm, 1.3 mm above it; slices are 4 mm apart."""
    brain = find_any_brain(Scan().with_brain().coarse(pet=pet))
    assert brain.found_by == "brain case"
    np.testing.assert_allclose(brain.centre_mm, BRAIN_MM, atol=2.0)
    assert brain.lower_mm == pytest.approx(230.0, abs=4.0)


def test_the_uptake_shows_the_lower_end_of_a_brain_whose_case_is_open_below() -> None:
    """Without bone below z = 270, its slices are not closed; the PET follows the brain down.

    Sections of 1000 mm2 have a radius of 17.8 mm, 2.7 mm above the lower end.
    """
    scan = Scan().with_brain()
    _, _, z = make_coordinates()
    scan.fill((scan.ct > 200) & (z < 270), 40)
    assert find_any_brain(scan.coarse()).lower_mm == pytest.approx(230.0, abs=6.0)
    assert find_any_brain(scan.coarse(pet=False)).lower_mm == pytest.approx(270.0, abs=8.0)


def test_cold_tissue_that_bone_encloses_below_a_brain_is_not_brain() -> None:
    """Enclose soft tissue in a tube of bone from the brain down to z = 180, as a jaw and a palate may."""
    scan = Scan().with_brain()
    outside = ~make_ball(BRAIN_MM, BRAIN_RADIUS_MM)
    scan.fill(make_tube(0, 50, 180, 250) & outside, 900, 0.5).fill(make_tube(0, 40, 180, 250) & outside, 40, 1.0)
    assert find_any_brain(scan.coarse()).lower_mm == pytest.approx(230.0, abs=6.0)
    assert find_any_brain(scan.coarse(pet=False)).lower_mm < 212


def test_a_brain_in_an_open_skull_is_found_by_its_uptake() -> None:
    """Without bone left of the midline no slice is closed, and the CT shows no brain."""
    scan = Scan().with_brain()
    x, _, _ = make_coordinates()
    scan.fill((scan.ct > 200) & (x > 0), 40)
    brain = find_any_brain(scan.coarse())
    assert brain.found_by == "brain's uptake"
    np.testing.assert_allclose(brain.centre_mm, BRAIN_MM, atol=4.0)
    assert brain.lower_mm == pytest.approx(230.0, abs=6.0)
    assert find_brain(scan.coarse(pet=False), APEX_MM) is None


def make_thin_skull(suv: float) -> Scan:
    """Make a skull of 2 mm and 400 HU in voxels of 5 mm, with gaps of 24 mm in front and behind.

    By partial volume it has 40 + 2 / 5 x (400 - 40) = 184 HU, less than bone.
    """
    scan = Scan().with_brain(suv=suv)
    x, _, _ = make_coordinates()
    skull = make_ball(BRAIN_MM, 66) & ~make_ball(BRAIN_MM, BRAIN_RADIUS_MM) & (np.abs(x) >= 12)
    return scan.fill(scan.ct == 900, 40).fill(skull, 184)


@pytest.mark.parametrize("pet", [True, False])
def test_a_brain_in_a_thin_skull_with_gaps(pet: bool) -> None:
    brain = find_any_brain(make_thin_skull(9.0).coarse(pet=pet))
    np.testing.assert_allclose(brain.centre_mm, BRAIN_MM, atol=4.0)
    if pet:
        assert brain.lower_mm == pytest.approx(230.0, abs=6.0)


@pytest.mark.parametrize(("radius", "is_brain"), [(0.0, False), (40.0, False), (52.0, True)])
def test_a_gap_needs_tissue_as_hot_as_a_brain(radius: float, is_brain: bool) -> None:
    """Tumours of SUV 9 in cold tissue within a thin skull fill less than half of it at 40 mm (8/27), more at 52 mm."""
    scan = make_thin_skull(0.8).fill(make_ball(BRAIN_MM, radius), 40, 9.0)
    assert (find_brain(scan.coarse(), APEX_MM) is not None) == is_brain


def test_a_part_enclosed_by_bone_without_uptake_is_no_brain() -> None:
    assert find_brain(Scan().with_brain(suv=0.8).coarse(), APEX_MM) is None


@pytest.mark.parametrize("padded", [True, False])
def test_a_pet_that_ends_below_the_head_does_not_speak_against_a_brain(padded: bool) -> None:
    """The PET covers z below 200 only or holds zeros from there, the brain lies from 230 upwards."""
    scan = Scan().with_brain()
    scan.suv[150:] = 0.0
    slices = 200 if padded else 150
    pet = Volume(scan.suv[:slices], GRID.crop((0, 0, 0), (*GRID.size[:2], slices)))
    brain = find_any_brain(make_coarse_picture(Case(scan.case().scan, pet, Patient())))
    assert brain.found_by == "brain case"
    np.testing.assert_allclose(brain.centre_mm, BRAIN_MM, atol=2.0)


@pytest.mark.parametrize("pet", [True, False])
def test_a_hot_bladder_in_a_closed_pelvis_is_no_brain(pet: bool) -> None:
    """Closed bone lies only 200 mm below the lungs; the scan ends below the head."""
    scan = Scan().with_brain((0.0, 0.0, -300.0), suv=60.0)
    coarse = scan.coarse(pet=pet, top_mm=195.0)
    assert find_brain(coarse, find_lung_apex(coarse)) is None
    assert localise(scan.case(pet=pet, top_mm=195.0)).found_by == "lung apices"


def test_lungs_that_the_scan_cuts_have_no_apex() -> None:
    assert find_lung_apex(Scan().coarse(top_mm=20.0)) is None


def test_foam_below_a_patient_is_no_lung() -> None:
    """Foam of a lung's HU lies between the back and a table up to 350 mm; it takes up no FDG. Without a PET it counts as
    lung. The apices are at their simulated height: slices are 4 mm apart, and an opening takes up to one slice.
    """
    scan = Scan()
    x, y, z = make_coordinates()
    below = (np.abs(x) < 120) & (z > -400) & (z < 350)
    scan.fill(below & (y > 90) & (y < 128) & (scan.ct < -900), -820, 0.0)
    scan.fill(below & (y >= 128), 100, 0.0)
    assert find_lung_apex(scan.coarse(pet=False)) == pytest.approx(350.0, abs=6.0)
    assert find_lung_apex(scan.coarse()) == pytest.approx(APEX_MM, abs=6.0)


def test_a_solid_table_larger_than_the_patient_is_not_the_patient() -> None:
    """Show the head (2.9 litres) and 13 litres of table 8 mm away from it."""
    scan = Scan().with_brain()
    x, y, _ = make_coordinates()
    table = (np.abs(x) < 190) & (y > 96) & np.ones(GRID.array_shape, dtype=bool)
    scan.fill(table, 100, 0.0)
    grid = GRID.crop((0, 0, 150), (100, 80, 50))
    case = Case(Volume(scan.ct[150:].astype(np.int16), grid), Volume(scan.suv[150:], grid), Patient())
    body = make_coarse_picture(case).body
    assert not (body & table[150:]).any()
    assert body[make_ball(BRAIN_MM, 50)[150:]].all()


def test_a_table_that_touches_the_patient_is_cold() -> None:
    scan = Scan().with_brain()
    _, y, _ = make_coordinates()
    table = (y > 120) & np.ones(GRID.array_shape, dtype=bool)
    scan.fill(table & (scan.ct < 0), 100, 0.0)
    coarse = scan.coarse()
    assert (coarse.body & table).any()
    assert not (remove_cold_parts(coarse) & table & (scan.suv == 0)).any()


def test_a_bag_of_urine_is_neither_the_patient_nor_a_brain() -> None:
    """Put two litres of SUV 60 into the air next to the neck."""
    scan = Scan().with_brain().fill(make_tube(150, 40, 150, 390) & (Scan().ct < -900), 5, 60.0)
    np.testing.assert_allclose(find_any_brain(scan.coarse()).centre_mm, BRAIN_MM, atol=2.0)
