"""The neck of made-up scans: raised arms, the back of the neck, and scans that show none."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.region.localise import DEEPEST_MM, HALF_WIDTH_MM, SKIN_MM, Region, localise
from algorithm.region.neck import shows_neck
from tests.algorithm.region.simple_scan import Scan, coordinates, tube


def raised_arm(x_mm: float, radius: float) -> np.ndarray:
    """A tube from the shoulder at z = 100 to the top of the scan."""
    return tube(x_mm, radius, 90, 400)


def region_of(scan: Scan) -> Region:
    return localise(scan.case())


def centre_x(region: Region) -> float:
    return (region.lower_mm[0] + region.upper_mm[0]) / 2


def test_a_region_reaches_from_above_the_brains_lower_end_to_below_the_apices() -> None:
    """Brain down to 230: 92 mm above it is 322. Apices at 60 and found up to 6 mm lower: 45 mm below is 9 to 15."""
    region = region_of(Scan().with_brain())
    assert region.sure
    assert region.brain_lower_mm == pytest.approx(230, abs=4)
    assert region.upper_mm[2] == pytest.approx(322, abs=4)
    assert 9 - 2 <= region.lower_mm[2] <= 15 + 2
    assert region.upper_mm[0] - region.lower_mm[0] == 2 * HALF_WIDTH_MM


@pytest.mark.parametrize("x_mm", [150, 100, -100])
def test_one_raised_arm_does_not_move_the_region(x_mm: float) -> None:
    """An arm of 40 mm radius at 150 mm is free; at 100 mm it lies in the head, 88 mm wide, and touches the neck."""
    plain = Scan().with_brain()
    scan = Scan()
    scan.fill(raised_arm(x_mm, 40) & (scan.ct < 0), 40, 0.8).with_brain()
    assert centre_x(region_of(scan)) == pytest.approx(centre_x(region_of(plain)), abs=4)


def test_the_back_of_the_neck_is_in_the_region() -> None:
    """Muscles from the spine at y = 0 to 135 mm behind it: 17 mm more than half the usual depth."""
    scan = Scan()
    _, y, _ = coordinates()
    scan.fill(tube(0, 60, 100, 220) & (y > 0), 40, 0.8)
    x, y, z = coordinates()
    scan.fill((np.abs(x) < 50) & (y > 0) & (y < 135) & (z > 100) & (z < 200), 40, 0.8).with_brain()
    region = region_of(scan)
    assert region.upper_mm[1] >= 135 + SKIN_MM - 4
    assert region.lower_mm[1] <= -60
    assert region.upper_mm[1] - region.lower_mm[1] <= DEEPEST_MM


def limb(x_mm: float) -> np.ndarray:
    return tube(x_mm, 70, -398, 398)


def legs() -> Scan:
    scan = Scan()
    scan.ct[:], scan.suv[:] = -1000, 0
    for x_mm in (-80, 80):
        scan.fill(limb(x_mm), 40, 0.6).fill(tube(x_mm, 14, -398, 398), 900, 0.4)
    return scan


def test_legs_show_no_neck() -> None:
    region = region_of(legs())
    assert region.no_neck == "no brain, no lung apices and no airway of a neck"
    assert not region.sure


def test_a_body_without_bone_cannot_be_told_from_a_neck() -> None:
    scan = legs()
    scan.fill(scan.ct > 100, 40)
    assert region_of(scan).no_neck == ""


def test_a_ct_without_air_cannot_be_told_from_a_neck() -> None:
    """A display window has taken the air of the same legs."""
    scan = legs()
    scan.ct = np.maximum(scan.ct, -160)
    assert region_of(scan).no_neck == ""


@pytest.mark.parametrize(("height_mm", "shown"), [(40, True), (12, False)])
def test_an_airway_shows_a_neck(height_mm: float, shown: bool) -> None:
    """A windpipe of 8 mm radius in each of the limbs, one of which is the patient: 24 mm of it or more are needed."""
    scan = legs()
    for x_mm in (-40, 40):
        scan.fill(tube(x_mm, 8, 0, height_mm), -1000, 0.0)
    assert shows_neck(scan.coarse()) == shown


def test_gas_in_an_abdomen_is_no_airway() -> None:
    """A trunk of 130 mm radius, 531 cm2, with bone and gas, and without lungs."""
    scan = Scan()
    scan.ct[:], scan.suv[:] = -1000, 0
    scan.fill(tube(0, 130, -398, 398), 40, 1.0).fill(tube(0, 20, -398, 398), 400, 1.0)
    scan.fill(tube(60, 15, -200, 200), -1000, 0.0)
    assert region_of(scan).no_neck != ""


def test_lungs_that_the_upper_end_cuts_show_no_neck() -> None:
    """The scan ends at z = 0 within the chest; its sections are those of a trunk of 130 mm radius."""
    scan = Scan()
    scan.fill(tube(0, 15, -398, 398), 400, 1.0)
    assert localise(scan.case(top_mm=0)).no_neck != ""
    assert localise(scan.case(top_mm=190)).no_neck == ""


def test_a_head_at_the_lower_end_is_named() -> None:
    scan = Scan().with_brain()
    scan.ct, scan.suv = scan.ct[::-1].copy(), scan.suv[::-1].copy()
    region = region_of(scan)
    assert region.no_neck == "the head lies at the lower end of the scan"
    assert not region.sure


def test_a_head_alone_is_not_upside_down() -> None:
    """The body ends 30 mm below the brain, at z = 200."""
    scan = Scan().with_brain()
    _, _, z = coordinates()
    scan.fill(np.broadcast_to(z < 200, scan.ct.shape), -1000, 0.0)
    assert region_of(scan).no_neck == ""
    assert region_of(scan).sure
