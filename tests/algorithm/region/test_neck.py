"""Necks of simulated scans: raised arms, the back of the neck, and scans without a landmark."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.masks.segmentation import segment_by_threshold
from algorithm.region.localise import HALF_WIDTH_MM, MAX_DEPTH_MM, SKIN_MM, Region, localise
from tests.algorithm.region.simple_scan import BRAIN_MM, GRID, Scan, make_ball, make_coordinates, make_tube


def find_region(scan: Scan) -> Region:
    return localise(scan.case())


def test_a_region_reaches_from_above_the_brains_lower_end_to_below_the_apices() -> None:
    """Brain down to 230: 92 mm above it is 322. Apices at 60 and found up to 6 mm lower: 45 mm below is 9 to 15."""
    region = find_region(Scan().with_brain())
    assert region.sure
    assert region.brain_lower_mm == pytest.approx(230, abs=4)
    assert region.upper_mm[2] == pytest.approx(322, abs=4)
    assert 9 - 2 <= region.lower_mm[2] <= 15 + 2
    assert region.upper_mm[0] - region.lower_mm[0] == 2 * HALF_WIDTH_MM


def test_one_raised_arm_does_not_move_the_region() -> None:
    """Arms of 40 mm radius are separate at 150 mm; at 100 mm they lie in the head, 88 mm wide, and touch the neck."""
    for x_mm in (150, -100):
        scan = Scan()
        # A tube from the shoulder at z = 100 to the top of the scan.
        scan.fill(make_tube(x_mm, 40, 90, 400) & (scan.ct < 0), 40, 0.8).with_brain()
        region = find_region(scan)
        assert (region.lower_mm[0] + region.upper_mm[0]) / 2 == pytest.approx(0, abs=4)


def test_the_region_lies_between_a_brain_and_a_neck_that_are_not_above_each_other() -> None:
    """The brain's centre lies 30 mm to the left of the neck's axis; the middle of both is at 15 mm."""
    x, y, z = BRAIN_MM
    region = find_region(Scan().with_brain((x + 30, y, z)))
    assert (region.lower_mm[0] + region.upper_mm[0]) / 2 == pytest.approx(15, abs=4)


def test_the_back_of_the_neck_is_in_the_region() -> None:
    """Muscles from the spine at y = 0 to 135 mm behind it: 17 mm more than half the usual depth."""
    scan = Scan()
    _, y, _ = make_coordinates()
    scan.fill(make_tube(0, 60, 100, 220) & (y > 0), 40, 0.8)
    x, y, z = make_coordinates()
    scan.fill((np.abs(x) < 50) & (y > 0) & (y < 135) & (z > 100) & (z < 200), 40, 0.8).with_brain()
    region = find_region(scan)
    assert region.upper_mm[1] >= 135 + SKIN_MM - 4
    assert region.lower_mm[1] <= -60
    assert region.upper_mm[1] - region.lower_mm[1] <= MAX_DEPTH_MM


def test_legs_have_no_landmark() -> None:
    scan = Scan()
    scan.ct[:], scan.suv[:] = -1000, 0
    for x_mm in (-80, 80):
        scan.fill(make_tube(x_mm, 70, -398, 398), 40, 0.6).fill(make_tube(x_mm, 14, -398, 398), 900, 0.4)
    region = find_region(scan)
    assert (region.has_no_landmark, region.sure, region.is_empty) == (True, False, False)


def test_a_tumour_that_fills_a_neck_without_a_landmark_is_in_the_region() -> None:
    """A trunk reaches from z = -400 to 120, a neck of 60 mm radius with a spine to 300, a windpipe lies below 110."""
    scan, tumour = Scan(), make_tube(0, 40, 180, 230)
    scan.ct[:], scan.suv[:] = -1000, 0
    scan.fill(make_tube(0, 130, -398, 120) | make_tube(0, 60, 100, 300), 40, 0.8)
    scan.fill(make_tube(0, 15, -398, 300), 700, 0.5).fill(make_tube(40, 8, -398, 110), -1000, 0.0)
    scan.fill(tumour, 40, 8.0)
    region = find_region(scan)
    assert (region.has_no_landmark, region.sure, region.is_empty) == (True, False, False)
    assert region.upper_mm[0] - region.lower_mm[0] == pytest.approx(340, abs=4)
    assert region.lower_mm[2] < 180 < 230 < region.upper_mm[2]
    mask = segment_by_threshold(scan.case(), region).mask_on(GRID) > 0
    assert 2 * np.count_nonzero(mask & tumour) / (mask.sum() + tumour.sum()) > 0.9


def test_a_scan_of_air_without_uptake_is_empty() -> None:
    scan = Scan()
    scan.ct[:], scan.suv[:] = -1000, 0.2
    assert find_region(scan).is_empty
    scan.fill(make_ball((0, 0, 0), 30), -1000, 8.0)
    assert not find_region(scan).is_empty


def test_supraclavicular_lesions_widen_a_sure_region() -> None:
    """Put a node of SUV 8 between x = 140 and 164, and then one on the other side, into arms that reach 175 mm: more
    than the half width of 125.
    """
    scan = Scan()
    x, y, z = make_coordinates()
    scan.fill((np.abs(x) < 175) & (np.abs(y) < 100) & (z > 60) & (z < 112), 40, 0.8).with_brain()
    plain = find_region(scan)
    assert plain.upper_mm[0] - plain.lower_mm[0] == 2 * HALF_WIDTH_MM
    nodes = (np.abs(x) > 138) & (np.abs(x) < 164) & (np.abs(y) < 14) & (z > 70) & (z < 96)
    left = find_region(scan.fill(nodes & (x > 0), 40, 8.0))
    assert left.sure
    assert 164 + 4 <= left.upper_mm[0] <= 174
    assert left.lower_mm == plain.lower_mm
    both = find_region(scan.fill(nodes, 40, 8.0))
    assert 164 + 4 <= -both.lower_mm[0] <= 174


def test_an_unsure_region_holds_the_front_of_the_jaw() -> None:
    """Most of the body lies behind, from y = 20 to 154; the front of the jaw is at -98."""
    scan = Scan()
    x, y, z = make_coordinates()
    scan.ct[:], scan.suv[:] = -1000, 0
    trunk = (np.abs(x) < 120) & (y > 20) & (y < 154) & (z < 120)
    jaw = (np.abs(x) < 60) & (y > -98) & (y < 90) & (z > 100) & (z < 260)
    scan.fill(trunk | jaw, 40, 0.8)
    region = find_region(scan)
    assert not region.sure
    assert region.lower_mm[1] <= -98 - SKIN_MM + 4


def test_a_tumour_below_the_brain_does_not_lower_the_top() -> None:
    """Uptake below the brain moves its lower end from z = 230 to 195, the limit of 95 mm below the centre at 290.

    92 mm above that is 287, below the brain's centre; the top stays 32 mm above it, at about 322.
    """
    scan = Scan().with_brain()
    region = find_region(scan.fill(make_tube(0, 24, 180, 240), 40, 9.0))
    assert region.brain_lower_mm is not None
    assert region.brain_lower_mm < 215
    assert region.upper_mm[2] >= 310


def test_without_a_pet_the_region_reaches_lower_and_is_not_sure() -> None:
    """Without lungs in view the region reaches 230 + 115 mm below the brain's end, which may be 115 mm too high."""
    scan = Scan().with_brain()
    scan.fill((scan.ct < -500) & (scan.ct > -900), 40)
    region = localise(scan.case(pet=False))
    assert (region.found_by, region.sure) == ("brain case", False)
    assert region.brain_lower_mm is not None
    assert region.lower_mm[2] == pytest.approx(region.brain_lower_mm - 345)


def test_a_skull_with_gaps_is_found_without_a_pet() -> None:
    """With a PET the brain's uptake bridges the gap of 28 mm across the whole case."""
    scan = Scan().with_brain()
    x, y, _ = make_coordinates()
    scan.fill(np.broadcast_to((np.abs(x) < 14) & (y < 0), scan.ct.shape) & (scan.ct == 900), 40)
    region = localise(scan.case(pet=False))
    assert (region.found_by, region.sure) == ("brain case", False)
    assert localise(scan.case()).sure
