"""The images of the viewer: planes, projection, contours, uncertainty, and moves with the pointer."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.viewer.screen import (
    ALPHA_COLOUR,
    AXIAL,
    CORONAL,
    SAGITTAL,
    frame,
    has_colour,
    near,
    pixel_of,
    position,
    show_only,
    stage,
    wait_for_case,
)
from tests.browser.viewer.simulated_cohort import (
    ALPHA,
    ALPHA_PRIMARY,
    HOT,
    METAL,
    PRIMARY,
    SPACING,
    WITHOUT_PET,
    Box,
    middle,
    ras_mm,
)


def test_planes_show_the_patient_as_radiologists_see_them(viewer: Page) -> None:
    """Metal lies on the patient's right, in front of and above the middle: on the left of the axial and coronal planes.

    It is bright inside its edges, and the tissue outside is not.
    """
    viewer.keyboard.press("p")
    viewer.get_by_role("button", name="None").click()
    at = middle(METAL)
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    frame(viewer)
    pixels = stage(viewer)
    for plane, axes in ((AXIAL, (0, 1)), (CORONAL, (0, 2)), (SAGITTAL, (1, 2))):
        for sign, voxels, bright in ((-1, -1.2, True), (1, -1.2, True), (-1, 1.2, False), (1, 1.2, False)):
            mm = list(at)
            for axis in axes:
                mm[axis] += sign * (half_mm(METAL, axis) + voxels * SPACING)
            x, y = (round(value) for value in pixel_of(viewer, plane, mm))
            assert (pixels[y, x].min() > 200) == bright, (plane, sign, voxels, pixels[y, x])
    heart = [0.0, 0.0, 0.0]
    left = {plane: pixel_of(viewer, plane, at)[0] < pixel_of(viewer, plane, heart)[0] for plane in (AXIAL, CORONAL)}
    above = {plane: pixel_of(viewer, plane, at)[1] < pixel_of(viewer, plane, heart)[1] for plane in (AXIAL, CORONAL)}
    assert left == above == {AXIAL: True, CORONAL: True}
    assert pixel_of(viewer, SAGITTAL, at)[0] < pixel_of(viewer, SAGITTAL, heart)[0]


def half_mm(box: Box, axis: int) -> float:
    return (box[axis][1] - box[axis][0] + 1) * SPACING / 2


def test_contours_run_along_the_edges_of_the_lesion_in_the_teams_colour(viewer: Page) -> None:
    """The edge lies half a voxel outside the last voxels' centres; beside the crosshair in each plane."""
    show_only(viewer, ALPHA)
    at = middle(ALPHA_PRIMARY)
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    frame(viewer)
    pixels = stage(viewer)
    for plane, axes in ((AXIAL, (0, 1)), (CORONAL, (0, 2)), (SAGITTAL, (1, 2))):
        for axis, beside in (axes, axes[::-1]):
            for sign in (-1, 1):
                mm = list(at)
                mm[axis] += sign * half_mm(ALPHA_PRIMARY, axis)
                mm[beside] += SPACING
                assert has_colour(pixels, pixel_of(viewer, plane, mm), ALPHA_COLOUR), (plane, axis, sign)
        assert not has_colour(pixels, pixel_of(viewer, plane, [one + SPACING for one in at]), ALPHA_COLOUR)


def test_switching_a_team_off_removes_its_pixels(viewer: Page) -> None:
    show_only(viewer, ALPHA)
    viewer.locator("#lesions button").first.click()
    frame(viewer)
    assert near(stage(viewer), ALPHA_COLOUR).sum() > 100
    viewer.locator("#masks").get_by_label(ALPHA).uncheck()
    frame(viewer)
    assert near(stage(viewer), ALPHA_COLOUR).sum() == 0


def test_a_click_on_a_plane_moves_the_crosshair_there(viewer: Page) -> None:
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", middle(PRIMARY))
    frame(viewer)
    to = [30.0, -20.0, middle(PRIMARY)[2]]
    x, y = pixel_of(viewer, AXIAL, to)
    viewer.locator("#stage").click(position={"x": x, "y": y})
    frame(viewer)
    assert np.abs(np.subtract(position(viewer), to)).max() < 1


def test_the_wheel_changes_the_slice_and_zooms_with_ctrl(viewer: Page) -> None:
    """One notch of 100 pixels is two slices, as a notch of a mouse is at least 40. Turned away it goes to the head.

    Zoomed by less than two, the voxel under the mouse stays there, but for the fraction of the mouse's pixel.
    """
    x, y = pixel_of(viewer, AXIAL, [-20.0, -10.0, 0.0])
    box = viewer.locator("#stage").bounding_box()
    assert box is not None
    viewer.mouse.move(box["x"] + x, box["y"] + y)
    before = position(viewer)
    viewer.mouse.wheel(0, -100)
    expect(viewer.locator("#readout")).to_contain_text(
        f"S {before[2] + 2 * SPACING:.1f}".replace("-", "\N{MINUS SIGN}")
    )
    viewer.keyboard.down("Control")
    viewer.mouse.wheel(0, -200)
    viewer.keyboard.up("Control")
    frame(viewer)
    assert 1.5 < viewer.evaluate("window.viewer.view.zoom") < 2
    assert pixel_of(viewer, AXIAL, [-20.0, -10.0, 0.0]) == pytest.approx((x, y), abs=1)
    assert position(viewer)[:2] == before[:2]


def test_a_panel_is_enlarged_by_a_double_click(viewer: Page) -> None:
    """Then only the coronal plane is shown; the key brings the others back."""
    at = [20.0, 0.0, 0.0]
    frame(viewer)
    x, y = pixel_of(viewer, CORONAL, at)
    viewer.locator("#stage").dblclick(position={"x": x, "y": y})
    frame(viewer)
    assert viewer.evaluate("window.viewer.view.planes") == [CORONAL]
    viewer.keyboard.press("e")
    frame(viewer)
    assert viewer.evaluate("window.viewer.view.planes") == [AXIAL, CORONAL, SAGITTAL]
    assert pixel_of(viewer, CORONAL, at) == pytest.approx((x, y), abs=0.5)


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_a_click_on_the_projection_goes_to_the_hottest_voxel(viewer: Page, angle: int) -> None:
    """One voxel has SUV 20. From another voxel on the same ray, a click on the crosshair's place goes there."""
    viewer.locator("#angle").fill(str(angle))
    hot = ras_mm(*HOT)
    along = 1 if angle % 180 == 0 else 0
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", [*hot[:along], -50.0, *hot[along + 1 :]])
    frame(viewer)
    x, y = viewer.evaluate(
        "() => { const {scene, view, tools} = window.viewer;"
        " return scene.projection.pixelOf(view.panels[3], tools.settings.angle, view.position); }"
    )
    viewer.locator("#stage").click(position={"x": x, "y": y})
    frame(viewer)
    assert np.abs(np.subtract(position(viewer), hot)).max() <= SPACING / 2 + 0.05
    expect(viewer.locator("#readout")).to_contain_text("SUV 20.00")


def test_arrows_in_the_images_move_the_crosshair_by_a_voxel(viewer: Page) -> None:
    """In the axial plane the left of the screen is the patient's right, and up is to the front."""
    viewer.locator("#stage").focus()
    before = position(viewer)
    for key in ("ArrowLeft", "ArrowUp", "PageUp"):
        viewer.keyboard.press(key)
    frame(viewer)
    assert np.subtract(position(viewer), before) == pytest.approx([SPACING] * 3, abs=0.11)


def test_a_case_without_pet_shows_the_ct(page: Page, address: str) -> None:
    page.goto(f"{address}#case={WITHOUT_PET}")
    wait_for_case(page, WITHOUT_PET)
    assert page.locator("#pet-map").is_disabled()
    expect(page.locator("#notes")).to_contain_text(f"{WITHOUT_PET}__PT.nii.gz")
    expect(page.locator("#readout")).not_to_contain_text("SUV")
    assert near(stage(page), ALPHA_COLOUR).sum() > 100


def test_an_uncertainty_map_covers_the_planes(viewer: Page) -> None:
    """The map is 1 bit, the brightest yellow, in the box of the team's primary and nothing elsewhere."""
    viewer.get_by_role("button", name="None").click()
    at = middle(ALPHA_PRIMARY)
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    viewer.locator("#uncertainty-opacity").fill("1")
    viewer.locator("#uncertainty").select_option(f"{ALPHA}: entropy")
    expect(viewer.locator("#status")).to_have_text(f"Uncertainty of {ALPHA} shown: entropy.")
    frame(viewer)
    pixels = stage(viewer)
    x, y = (round(value) for value in pixel_of(viewer, AXIAL, [at[0] + 3, at[1] + 3, at[2]]))
    assert near(pixels[y, x], (253, 231, 37))
    assert not near(pixels[y, round(pixel_of(viewer, AXIAL, [-45.0, 0.0, 0.0])[0])], (253, 231, 37))
