"""What a radiologist measures and switches in the images: values, rulers, spheres, CT and PET, crosshair, first view."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from algorithm.heads.features.intensity import intensity_peak
from algorithm.heads.features.structure import Structure
from contract.images.geometry import Geometry
from tests.browser.viewer.screen import (
    AXIAL,
    CORONAL,
    REFERENCE_COLOUR,
    SAGITTAL,
    frame,
    has_colour,
    near,
    pixel_of,
    stage,
    wait_for_case,
)
from tests.browser.viewer.simulated_cohort import (
    ALPHA,
    FIRST,
    HOT,
    NODE,
    PRIMARY,
    SPACING,
    WITHOUT_PET,
    middle,
    ras_mm,
)

VALUES = """async ({dims, spacing, affine, values, centre, radius}) => {
  const { sphereValues } = await import(new URL("measure.js", location.href));
  const volume = { grid: { dims, spacing }, affine, voxels: values, slope: 1, intercept: 0 };
  return sphereValues(volume, centre, radius);
}"""


@pytest.mark.parametrize("seed", range(6))
def test_sphere_values_equal_the_features_of_the_heads(viewer: Page, seed: int) -> None:
    """On voxels of unequal sides along turned axes, against numpy and the feature of the heads.

    Their spheres of 1 ml reach beyond the sphere and stop at the image's end.
    """
    rng = np.random.default_rng(seed)
    spacing = tuple(rng.uniform(1.5, 6.0, 3))
    axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    grid = Geometry((9, 8, 7), spacing, tuple(rng.uniform(-50, 50, 3)), tuple(axes.ravel()))
    image = rng.random(grid.array_shape).astype(np.float32)
    matrix = grid.index_to_physical_matrix()
    index = np.stack(np.meshgrid(*map(np.arange, grid.array_shape), indexing="ij"), axis=-1)[..., ::-1]
    points = index @ matrix[:3, :3].T + matrix[:3, 3]
    centre = points[3, 4, 4] + rng.uniform(-1, 1, 3)
    radius = float(rng.uniform(3.0, 12.0))
    inside = ((points - centre) ** 2).sum(axis=-1) <= radius**2
    shown = viewer.evaluate(
        VALUES,
        {
            "dims": list(grid.size),
            "spacing": list(spacing),
            "affine": matrix[:3].tolist(),
            "values": image.ravel().tolist(),
            "centre": centre.tolist(),
            "radius": radius,
        },
    )
    whole = Structure(inside, (slice(None),) * 3, grid.array_spacing_mm, 1.0)
    expected = {"max": image[inside].max(), "mean": image[inside].mean(), "peak": intensity_peak(whole, image)}
    assert shown == pytest.approx({name: float(value) for name, value in expected.items()}, rel=1e-5)


def test_a_sphere_without_a_voxel_has_no_values(viewer: Page) -> None:
    """A sphere of 2 mm in the middle of eight voxels of 4 mm, whose centres are 3.5 mm away."""
    affine = [[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 0]]
    volume = {"dims": [2, 2, 2], "spacing": [4, 4, 4], "affine": affine, "values": [1] * 8}
    assert viewer.evaluate(VALUES, {**volume, "centre": [2, 2, 2], "radius": 2}) is None


def drag(page: Page, plane: int, start: list[float], end: list[float]) -> None:
    box = page.locator("#stage").bounding_box()
    assert box is not None
    for mm, action in ((start, page.mouse.down), (end, page.mouse.up)):
        x, y = pixel_of(page, plane, mm)
        page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
        action()


def test_a_sphere_shows_maximum_mean_and_peak(viewer: Page) -> None:
    """A sphere of 4 mm around the voxel of SUV 20 holds it and the six of SUV 8 that share a face with it.

    The mean is (20 + 6 x 8) / 7 = 9.71. A sphere of 1 ml, 6.2 mm, holds the 33 voxels up to 2 voxels away
    (1 + 6 + 12 + 8 + 6), all of them in the primary: (20 + 32 x 8) / 33 = 8.36. The volume is 0.27 ml. The display's
    pixels are about 2 mm, so that the radius is set and not dragged.
    """
    hot = ras_mm(*HOT)
    viewer.evaluate(
        "([from, to]) => { const { measurements } = window.viewer;"
        " measurements.start('sphere', 0, from); measurements.extend(to); return measurements.finish(); }",
        [hot, [hot[0] + 4.0, *hot[1:]]],
    )
    row = viewer.locator("#measurements li button").first
    expect(row).to_have_text("Sphere SUVmax 20.00, SUVmean 9.71, SUVpeak 8.36, 0.27 ml, r 4.0 mm")


def test_a_ruler_is_drawn_measured_and_removed(viewer: Page) -> None:
    """30 mm to the left and 40 mm to the back are 50 mm, up to the pixels of the mouse."""
    viewer.keyboard.press("r")
    at = middle(PRIMARY)
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    frame(viewer)
    drag(viewer, AXIAL, [20.0, 30.0, at[2]], [-10.0, -10.0, at[2]])
    row = viewer.locator("#measurements li button").first
    expect(row).to_contain_text("Ruler")
    assert float(row.inner_text().split()[1]) == pytest.approx(50.0, abs=1.0)
    frame(viewer)
    x, y = pixel_of(viewer, AXIAL, [5.0, 10.0, at[2]])
    assert has_colour(stage(viewer), (x, y), (0xFF, 0xE1, 0x4D))
    viewer.keyboard.press("Delete")
    expect(viewer.locator("#measurements-section")).to_be_hidden()


def click_sphere(page: Page, plane: int) -> tuple[float, float]:
    """Make a sphere by a click at the GTVp; returns the pixel."""
    page.keyboard.press("s")
    x, y = pixel_of(page, plane, middle(PRIMARY))
    page.locator("#stage").click(position={"x": x, "y": y})
    return x, y


def test_a_click_makes_a_sphere_of_10_mm_and_escape_puts_the_tool_away(viewer: Page) -> None:
    """4/3 pi x 1 cm^3 = 4.19 ml. After Esc a click moves the crosshair again."""
    x, y = click_sphere(viewer, SAGITTAL)
    expect(viewer.locator("#measurements")).to_contain_text("4.19 ml, r 10.0 mm")
    viewer.keyboard.press("Escape")
    viewer.locator("#stage").click(position={"x": x + 5, "y": y})
    assert viewer.locator("#measurements li").count() == 1


def test_without_a_pet_a_sphere_has_a_size_alone(page: Page, address: str) -> None:
    page.goto(f"{address}#case={WITHOUT_PET}")
    wait_for_case(page, WITHOUT_PET)
    click_sphere(page, AXIAL)
    expect(page.locator("#measurements")).to_contain_text("Sphere 4.19 ml, r 10.0 mm, no PET values")


def test_measurements_end_with_their_case(viewer: Page) -> None:
    viewer.keyboard.press("s")
    x, y = pixel_of(viewer, AXIAL, middle(PRIMARY))
    viewer.locator("#stage").dblclick(position={"x": x, "y": y})
    expect(viewer.locator("#measurements li")).to_have_count(2)
    assert viewer.evaluate("window.viewer.view.planes") == [AXIAL, CORONAL, SAGITTAL]
    viewer.keyboard.press("j")
    wait_for_case(viewer, "CASE-2")
    expect(viewer.locator("#measurements-section")).to_be_hidden()


def test_voxels_that_cannot_be_read_are_named(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.route("**/pet-voxels.nii.gz", lambda route: route.fulfill(status=500, json={"error": "the disk is gone"}))
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    click_sphere(page, AXIAL)
    expect(page.locator("#measurements")).to_contain_text("no PET values")
    expect(page.locator("#status")).to_have_text("the disk is gone")
    page.close()


def test_values_are_those_under_the_cursor(viewer: Page) -> None:
    """The crosshair stays in the primary, of SUV 8; the cursor is in tissue of SUV 1, then beside the images."""
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", middle(PRIMARY))
    frame(viewer)
    box = viewer.locator("#stage").bounding_box()
    assert box is not None
    x, y = pixel_of(viewer, CORONAL, middle(NODE))
    viewer.mouse.move(box["x"] + x, box["y"] + y)
    expect(viewer.locator("#cursor")).to_contain_text("SUV 1.00")
    expect(viewer.locator("#readout")).to_contain_text("SUV 8.00")
    viewer.mouse.move(5, 5)
    expect(viewer.locator("#cursor")).to_be_empty()


def test_ct_pet_and_both_are_shown_alone_and_side_by_side(viewer: Page) -> None:
    """Below the background's SUV of 2 the fused image is the CT; PET alone has the map's colours there.

    Side by side the same position lies a third of the stage apart: grey, coloured, grey.
    """
    at = middle(NODE)
    viewer.get_by_role("button", name="None").click()
    viewer.keyboard.press("x")
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    shown = {}
    for name in ("fused", "ct", "pet"):
        frame(viewer)
        x, y = (round(value) for value in pixel_of(viewer, AXIAL, at))
        shown[name] = stage(viewer)[y, x].tolist()
        viewer.keyboard.press("v")
    assert shown["fused"] == shown["ct"]
    assert len(set(shown["ct"])) == 1
    assert shown["pet"][0] > shown["pet"][1] + 20
    frame(viewer)
    copies = viewer.evaluate("window.viewer.view.copies")
    x, y = pixel_of(viewer, AXIAL, at)
    pixels = [stage(viewer)[round(y + down), round(x + right)].tolist() for right, down in copies]
    assert [len(set(pixel)) == 1 for pixel in pixels] == [True, False, True]
    box = viewer.locator("#stage").bounding_box()
    assert box is not None
    viewer.mouse.click(box["x"] + x + copies[2][0], box["y"] + y + copies[2][1])
    frame(viewer)
    assert viewer.evaluate("window.viewer.view.position") == pytest.approx(at, abs=SPACING)


def test_the_opacity_of_a_fused_pet_begins_above_the_background(viewer: Page) -> None:
    """Of SUV 0 to 10, SUV 2 is still clear and SUV 4 has the whole opacity; SUV 3 has half of it."""
    alpha = viewer.evaluate(
        "async () => { const { fusedLayer } = await import(new URL('layers.js', location.href));"
        " const { table } = fusedLayer({}, { range: [0, 10], map: 'hot', opacity: 0.6 });"
        " return [1, 2, 3, 4, 10].map((suv) => table[4 * Math.round(25.5 * suv) + 3] / 255); }"
    )
    assert alpha == pytest.approx([0, 0, 0.3, 0.6, 0.6], abs=0.01)


def test_a_key_hides_the_crosshair(viewer: Page) -> None:
    viewer.get_by_role("button", name="None").click()
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", [40.0, 40.0, 40.0])
    frame(viewer)
    x, y = pixel_of(viewer, AXIAL, [60.0, 40.0, 40.0])
    row = slice(round(y) - 1, round(y) + 2)
    blue = [stage(viewer)[row, round(x)].astype(int)]
    viewer.keyboard.press("x")
    frame(viewer)
    blue.append(stage(viewer)[row, round(x)].astype(int))
    assert [(pixels[:, 2] > pixels[:, 0] + 30).any() for pixels in blue] == [True, False]


def test_the_reference_is_drawn_over_the_teams(viewer: Page) -> None:
    """The second team's primary is the reference's: the reference's line lies on it, the team's, which is
    magenta, shows on both sides.
    """
    viewer.locator("#masks").get_by_label(ALPHA).uncheck()
    at = middle(PRIMARY)
    viewer.evaluate("(mm) => window.viewer.view.jump(mm)", at)
    frame(viewer)
    edge = [at[0] + (PRIMARY[0][1] - PRIMARY[0][0] + 1) * SPACING / 2, at[1] + 2 * SPACING, at[2]]
    x, y = (round(value) for value in pixel_of(viewer, AXIAL, edge))
    line = stage(viewer)[y, x - 4 : x + 5]
    reference = np.flatnonzero(near(line, REFERENCE_COLOUR))
    team = np.flatnonzero((line[:, [0, 2]] > line[:, [1]] + 20).all(axis=1))
    assert team.min() < reference.min() <= reference.max() < team.max()


def test_the_first_view_shows_the_region_with_lesions(page: Page, address: str) -> None:
    """The reference's lesions and 25 mm around them fill a panel in one direction; `f` shows the whole images."""
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    assert page.evaluate("window.viewer.view.zoom") > 1.2
    for box in (PRIMARY, NODE):
        for plane in (AXIAL, CORONAL, SAGITTAL):
            x, y = pixel_of(page, plane, middle(box))
            assert page.evaluate("([x, y]) => window.viewer.view.panelAt(x, y).panel", [x, y]) == plane
    page.keyboard.press("f")
    assert page.evaluate("window.viewer.view.zoom") == 1
    page.keyboard.press("f")
    assert page.evaluate("window.viewer.view.zoom") > 1.2


def test_a_jump_beside_the_images_moves_them(page: Page, address: str) -> None:
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    corner = page.evaluate("window.viewer.view.grid.origin")
    page.evaluate("(mm) => { window.viewer.view.zoomBy(4); window.viewer.view.jump(mm); }", corner)
    x, y = pixel_of(page, AXIAL, corner)
    assert page.evaluate("([x, y]) => window.viewer.view.panelAt(x, y).panel", [x, y]) == AXIAL
