"""Planes through a point: known places appear in the radiological convention for any orientation of the scan."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from reporting.report.pictures import (
    FIELD_MM,
    PIXEL_MM,
    VIEWS,
    Plane,
    _draw_picture,
    _find_lesion_points,
    _trace_contours,
    compute_grid_centre_mm,
    cut_plane,
)

# LPS: +x is the patient's left, +y the back, +z the head.
AXES = {"L": (1, 0, 0), "R": (-1, 0, 0), "P": (0, 1, 0), "A": (0, -1, 0), "S": (0, 0, 1), "I": (0, 0, -1)}
COS, SIN = np.cos(0.3), np.sin(0.3)
ORIENTATIONS = {
    "straight": (1.0, 0, 0, 0, 1.0, 0, 0, 0, 1.0),
    "flipped": (-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0),
    "axes swapped": (0, 0, 1.0, 1.0, 0, 0, 0, 1.0, 0),
    "oblique": (COS, -SIN, 0, SIN, COS, 0, 0, 0, 1.0),
}


def make_ball(direction, ball_mm):
    """Return a grid around (0, 0, 0) with a ball of 9 mm at a place in LPS."""
    size, spacing = np.array([90, 80, 60]), np.array([2.0, 2.5, 3.0])
    matrix = np.asarray(direction, dtype=float).reshape(3, 3)
    origin = -matrix @ ((size - 1) / 2 * spacing)
    geometry = Geometry(
        tuple(size.tolist()), tuple(spacing.tolist()), tuple(origin.tolist()), tuple(map(float, direction))
    )
    z, y, x = np.meshgrid(*(np.arange(n) for n in size[::-1]), indexing="ij")
    places = np.stack([x, y, z], axis=-1) * spacing @ matrix.T + origin
    return Volume((((places - ball_mm) ** 2).sum(axis=-1) < 81).astype(np.uint8), geometry)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_ball_off_the_centre_appears_at_its_letter(view, orientation):
    """Balls 45 mm towards each of the four letters lie 45 mm / 0.75 mm = 60 pixels from the middle."""
    middle = (FIELD_MM / PIXEL_MM - 1) / 2
    for letter, right, down in ((view.left, -1, 0), (view.right, 1, 0), (view.top, 0, -1), (view.bottom, 0, 1)):
        scan = make_ball(ORIENTATIONS[orientation], 45.0 * np.array(AXES[letter]))
        rows, columns = np.nonzero(cut_plane(scan, Plane(view, np.zeros(3)), outside=0.0) > 0.5)
        assert columns.mean() == pytest.approx(middle + 60 * right, abs=1.5)
        assert rows.mean() == pytest.approx(middle + 60 * down, abs=1.5)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_ball_is_round_in_every_plane_of_an_anisotropic_scan(view):
    """Discs of radius 9 mm cover pi 81 / 0.75^2 = 452 pixels, 24 across."""
    ball = make_ball(ORIENTATIONS["straight"], np.zeros(3))
    picture = cut_plane(ball, Plane(view, np.zeros(3)), outside=0.0) > 0.5
    assert picture.sum() == pytest.approx(452, rel=0.12)
    assert np.ptp(np.nonzero(picture)[0]) == pytest.approx(np.ptp(np.nonzero(picture)[1]), abs=4)


def test_outside_the_scan_and_a_plane_that_misses_it():
    scan = Volume(np.ones((2, 2, 2), np.float32), Geometry((2, 2, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    picture = cut_plane(scan, Plane(VIEWS[0], np.array([0.5, 0.5, 0.5])), outside=-1024.0)
    assert picture.max() == 1.0
    assert picture[0, 0] == -1024.0
    assert (cut_plane(scan, Plane(VIEWS[0], np.array([0.0, 0, 500])), outside=-7.0) == -7.0).all()


def test_only_one_label_is_shown():
    scan = Volume(np.full((4, 4, 4), 2, np.uint8), Geometry((4, 4, 4), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0)))
    centre = compute_grid_centre_mm(scan.geometry)
    assert centre.tolist() == [7.5, 7.5, 7.5]
    plane = Plane(VIEWS[0], centre)
    assert cut_plane(scan, plane, outside=0.0, label=1).max() == 0.0
    assert cut_plane(scan, plane, outside=0.0, label=2).max() == 1.0
    gtvp, gtvn = _trace_contours(Figure().subplots(), scan, plane, None, 1.0)
    assert (gtvp, gtvn[0]) == ("", "M")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_mask_that_fills_the_picture_has_no_outline(view):
    """GTVp of 500 mm around a picture of 171 mm: matplotlib gives one line without points."""
    assert FIELD_MM < 450
    mask = Volume(np.ones((50, 50, 50), np.uint8), Geometry((50, 50, 50), (10.0, 10.0, 10.0), (0.0, 0.0, 0.0)))
    axes = Figure().subplots()
    plane = Plane(view, compute_grid_centre_mm(mask.geometry))
    assert _trace_contours(axes, mask, plane, None, 1.0) == ("", "")


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_planes_go_through_the_largest_lesion(orientation):
    """The reference is empty; the other mask has a ball and a single voxel of GTVp, and no GTVn."""
    scan = make_ball(ORIENTATIONS[orientation], np.array([20.0, -15.0, 10.0]))
    empty = Volume(np.zeros_like(scan.array), scan.geometry)
    scan.array[0, 0, 0] = 1
    ((name, point),) = _find_lesion_points([empty, scan])
    assert name == "GTVp"
    np.testing.assert_allclose(point, [20.0, -15.0, 10.0], atol=1.6)
    assert _find_lesion_points([empty]) == []


def test_settings_of_the_process_change_no_picture():
    """Settings such as nnU-Net's progress plot leaves behind do not change letters and contours."""
    ball = make_ball(ORIENTATIONS["straight"], np.zeros(3))
    pieces = ((ball, ball), {"": ball}, [("GTVp", np.zeros(3))], {"": "#3dff6e"})
    picture = _draw_picture(*pieces)
    left_behind = {"font.size": 30.0, "font.family": ["serif"], "axes.facecolor": "#EAEAF2", "lines.linewidth": 3.75}
    with mpl.rc_context(left_behind):
        assert _draw_picture(*pieces) == picture
        assert {name: mpl.rcParams[name] for name in left_behind} == left_behind
