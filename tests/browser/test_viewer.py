"""The case viewer in a real browser, from the server of `hecktor view` and as a static folder."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from evaluation.page.colours import TEAM_COLOURS
from evaluation.viewer.cohort import ViewerCohort
from evaluation.viewer.export import export_viewer
from evaluation.viewer.server import serving
from tests.browser.conftest import accessibility_problems
from tests.browser.viewer_cohort import (
    ALPHA,
    ALPHA_FALSE,
    ALPHA_PRIMARY,
    BETA,
    BROKEN,
    CASES,
    FIRST,
    HOSTILE,
    HOT,
    METAL,
    NODE,
    PRIMARY,
    SPACING,
    WITHOUT_PET,
    Box,
    middle,
    ras_mm,
    write_cohort,
)

AXIAL, CORONAL, SAGITTAL = 0, 1, 2
REFERENCE_COLOUR = (0x3D, 0xFF, 0x6E)
ALPHA_COLOUR = tuple(bytes.fromhex(TEAM_COLOURS[0][1:]))
OPEN_MS = 30_000


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> ViewerCohort:
    return write_cohort(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def address(cohort: ViewerCohort) -> Iterator[str]:
    with serving(cohort) as address:
        yield address


@pytest.fixture
def viewer(page: Page, address: str) -> Page:
    """The page with CASE-1 open."""
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    return page


def wait_for_case(page: Page, case: str) -> None:
    expect(page.locator("#status")).to_contain_text("Opened in", timeout=OPEN_MS)
    expect(page.locator("#case-title b")).to_have_text(case)


def position(page: Page) -> list[float]:
    """The crosshair in mm (right, front, head), as the line below the images shows it."""
    text = page.locator("#readout").inner_text().replace("\N{MINUS SIGN}", "-")
    found = re.match(r"R (\S+)\s+A (\S+)\s+S (\S+) mm", text)
    assert found is not None, text
    return [float(part) for part in found.groups()]


def pixel_of(page: Page, plane: int, mm: list[float]) -> tuple[float, float]:
    """The pixel of the images at a position, in a plane."""
    x, y = page.evaluate("([plane, mm]) => window.viewer.pixelOf(plane, mm)", [plane, mm])
    return float(x), float(y)


def stage(page: Page) -> np.ndarray:
    """The images as they are on the screen, of shape (height, width, 3)."""
    picture = page.locator("#stage").screenshot()
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def near(pixels: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """Where pixels have a colour, up to the smoothing of a line's edge."""
    return np.abs(pixels - np.array(colour)).max(axis=-1) <= 40


def has_colour(pixels: np.ndarray, pixel: tuple[float, float], colour: tuple[int, ...]) -> bool:
    x, y = (round(value) for value in pixel)
    return bool(near(pixels[y - 2 : y + 3, x - 2 : x + 3], colour).any())


def show_only(page: Page, name: str) -> None:
    page.get_by_role("button", name="None").click()
    page.locator("#masks").get_by_label(name).check()


def frame(page: Page) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_the_list_holds_every_case_and_marks_the_open_one(viewer: Page) -> None:
    assert set(viewer.locator("#cases li span:first-child").all_text_contents()) == set(CASES)
    assert viewer.locator("#cases [aria-selected=true]").inner_text().startswith(FIRST)


def test_planes_show_the_patient_as_radiologists_see_them(viewer: Page) -> None:
    """Metal lies on the patient's right, in front of and above the middle: on the left of the axial and coronal planes."""
    viewer.keyboard.press("p")
    viewer.get_by_role("button", name="None").click()
    at = middle(METAL)
    viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", at)
    frame(viewer)
    pixels = stage(viewer)
    inset = 1.2
    for plane, axes in ((AXIAL, (0, 1)), (CORONAL, (0, 2)), (SAGITTAL, (1, 2))):
        for signs in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            for factor, bright in ((-inset, True), (inset, False)):
                mm = list(at)
                for axis, sign in zip(axes, signs, strict=True):
                    half = (METAL[axis][1] - METAL[axis][0] + 1) * SPACING / 2
                    mm[axis] += sign * (half + factor * SPACING)
                x, y = (round(value) for value in pixel_of(viewer, plane, mm))
                assert (pixels[y, x].min() > 200) == bright, (plane, signs, factor, pixels[y, x])
    heart = [0.0, 0.0, 0.0]
    assert pixel_of(viewer, AXIAL, at)[0] < pixel_of(viewer, AXIAL, heart)[0]
    assert pixel_of(viewer, AXIAL, at)[1] < pixel_of(viewer, AXIAL, heart)[1]
    assert pixel_of(viewer, CORONAL, at)[0] < pixel_of(viewer, CORONAL, heart)[0]
    assert pixel_of(viewer, CORONAL, at)[1] < pixel_of(viewer, CORONAL, heart)[1]
    assert pixel_of(viewer, SAGITTAL, at)[0] < pixel_of(viewer, SAGITTAL, heart)[0]


@pytest.mark.parametrize("plane", [AXIAL, CORONAL, SAGITTAL])
def test_contour_runs_along_the_edges_of_the_lesion_in_the_teams_colour(viewer: Page, plane: int) -> None:
    """The edge lies half a voxel outside the last voxels' centres, on all four sides in every plane."""
    show_only(viewer, ALPHA)
    at = middle(ALPHA_PRIMARY)
    viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", at)
    frame(viewer)
    pixels = stage(viewer)
    for axis in ({0, 1, 2} - {2 - plane}) if plane != CORONAL else {0, 2}:
        half = (ALPHA_PRIMARY[axis][1] - ALPHA_PRIMARY[axis][0] + 1) * SPACING / 2
        across = next(other for other in (0, 1, 2) if other != axis and other != 2 - plane)
        for sign in (-1, 1):
            mm = list(at)
            mm[axis] += sign * half
            mm[across] += SPACING  # beside the crosshair
            assert has_colour(pixels, pixel_of(viewer, plane, mm), ALPHA_COLOUR), (axis, sign)
    inside = [at[0] + SPACING, at[1] + SPACING, at[2] + SPACING]
    assert not has_colour(pixels, pixel_of(viewer, plane, inside), ALPHA_COLOUR)


def test_gtvn_has_a_dashed_line(viewer: Page) -> None:
    """Along an edge of the node the reference's colour comes and goes; along one of the primary it is throughout."""
    show_only(viewer, "reference")
    shares = {}
    for box in (PRIMARY, NODE):
        viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", middle(box))
        frame(viewer)
        pixels = stage(viewer)
        shares[box] = np.mean([has_colour(pixels, one, REFERENCE_COLOUR) for one in left_edge(viewer, box)])
    assert shares[PRIMARY] == 1
    assert 0.4 < shares[NODE] < 1


def left_edge(page: Page, box: Box) -> list[tuple[float, float]]:
    (first, _), (low, high), (bottom, top) = box
    z = (bottom + top) / 2
    steps = np.linspace(low + 0.1, high - 0.1, 40)
    return [pixel_of(page, AXIAL, ras_mm(first - 0.5, float(y), z)) for y in steps]


def test_switching_a_team_off_removes_its_pixels(viewer: Page) -> None:
    show_only(viewer, ALPHA)
    viewer.locator("#lesions button").first.click()
    frame(viewer)
    assert near(stage(viewer), ALPHA_COLOUR).sum() > 100
    viewer.locator("#masks").get_by_label(ALPHA).uncheck()
    frame(viewer)
    assert near(stage(viewer), ALPHA_COLOUR).sum() == 0


def test_a_click_on_a_lesion_moves_the_crosshair_to_its_centroid(viewer: Page) -> None:
    """Within half a voxel of 3 mm, to which the crosshair's figures of one decimal add 0.05 mm."""
    for label, box in (("GTVp", PRIMARY), ("GTVn", NODE)):
        viewer.locator("#lesions button", has_text=label).first.click()
        frame(viewer)
        assert np.abs(np.subtract(position(viewer), middle(box))).max() <= SPACING / 2 + 0.05


def test_enter_on_a_teams_lesion_jumps_there(viewer: Page) -> None:
    button = viewer.locator("#lesions button", has_text="false positive").first
    button.focus()
    viewer.keyboard.press("Enter")
    frame(viewer)
    assert np.abs(np.subtract(position(viewer), middle(ALPHA_FALSE))).max() <= SPACING / 2 + 0.05


def test_a_click_on_a_plane_moves_the_crosshair_there(viewer: Page) -> None:
    viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", middle(PRIMARY))
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
    assert 1.5 < viewer.evaluate("window.viewer.images.zoom") < 2
    assert pixel_of(viewer, AXIAL, [-20.0, -10.0, 0.0]) == pytest.approx((x, y), abs=1)
    assert position(viewer)[:2] == before[:2]


def test_a_panel_is_enlarged_by_a_double_click(viewer: Page) -> None:
    """Then only the coronal plane is shown; the key brings the others back."""
    at = [20.0, 0.0, 0.0]
    x, y = pixel_of(viewer, CORONAL, at)
    viewer.locator("#stage").dblclick(position={"x": x, "y": y})
    frame(viewer)
    assert viewer.evaluate("window.viewer.images.planes") == [CORONAL]
    viewer.keyboard.press("e")
    frame(viewer)
    assert viewer.evaluate("window.viewer.images.planes") == [AXIAL, CORONAL, SAGITTAL]
    assert pixel_of(viewer, CORONAL, at) == pytest.approx((x, y), abs=0.5)


def test_an_uncertainty_map_stays_on_in_the_next_case_only_if_that_has_it(viewer: Page) -> None:
    viewer.locator("#uncertainty").select_option(f"{ALPHA}: entropy")
    expect(viewer.locator("#status")).to_have_text(f"Uncertainty of {ALPHA} shown: entropy.")
    viewer.keyboard.press("j")
    wait_for_case(viewer, "CASE-2")
    expect(viewer.locator("#uncertainty-tools")).to_be_hidden()


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_a_click_on_the_projection_goes_to_the_hottest_voxel(viewer: Page, angle: int) -> None:
    """One voxel has SUV 20. From another voxel on the same ray, a click on the crosshair's place goes there."""
    viewer.locator("#angle").fill(str(angle))
    hot = ras_mm(*HOT)
    along = 1 if angle % 180 == 0 else 0
    viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", [*hot[:along], -50.0, *hot[along + 1 :]])
    frame(viewer)
    x, y = viewer.evaluate("window.viewer.overlay.projected(window.viewer.tools.angle)")
    viewer.locator("#stage").click(position={"x": x, "y": y})
    frame(viewer)
    assert np.abs(np.subtract(position(viewer), hot)).max() <= SPACING / 2 + 0.05
    expect(viewer.locator("#readout")).to_contain_text("SUV 20.00")


def test_keys_open_the_next_and_the_previous_case(viewer: Page) -> None:
    """The list is sorted by name here, so that CASE-2 follows CASE-1."""
    for key, case in (("j", "CASE-2"), ("k", FIRST), ("ArrowDown", "CASE-2"), ("ArrowUp", FIRST)):
        viewer.keyboard.press(key)
        wait_for_case(viewer, case)


def test_keys_go_from_lesion_to_lesion(viewer: Page) -> None:
    """The list starts with the reference's primary and node."""
    for key, label, box in (("n", "GTVp", PRIMARY), ("n", "GTVn", NODE), ("b", "GTVp", PRIMARY)):
        viewer.keyboard.press(key)
        frame(viewer)
        expect(viewer.locator("#lesions button[aria-current]")).to_contain_text(label)
        assert np.abs(np.subtract(position(viewer), middle(box))).max() <= SPACING / 2 + 0.05


def test_number_keys_switch_contours(viewer: Page) -> None:
    for key, name in (("0", "reference"), ("1", ALPHA), ("2", BETA)):
        box = viewer.locator("#masks").get_by_label(name)
        expect(box).to_be_checked()
        viewer.keyboard.press(key)
        expect(box).not_to_be_checked()
        viewer.keyboard.press(key)
        expect(box).to_be_checked()


def test_help_opens_and_closes_by_keys(viewer: Page) -> None:
    dialog = viewer.get_by_role("dialog")
    viewer.keyboard.press("?")
    expect(dialog).to_be_visible()
    viewer.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_arrows_in_the_images_move_the_crosshair_by_a_voxel(viewer: Page) -> None:
    """In the axial plane the left of the screen is the patient's right, and up is to the front."""
    viewer.locator("#stage").focus()
    before = position(viewer)
    for key in ("ArrowLeft", "ArrowUp", "PageUp"):
        viewer.keyboard.press(key)
    frame(viewer)
    assert np.subtract(position(viewer), before) == pytest.approx([SPACING] * 3, abs=0.11)


@pytest.mark.parametrize(
    ("team", "expected"),
    [
        ("alpha", [BROKEN, FIRST, "CASE-2", HOSTILE, WITHOUT_PET]),
        ("mean of all teams", [BROKEN, "CASE-2", FIRST, HOSTILE, WITHOUT_PET]),
    ],
)
def test_cases_are_sorted_by_a_teams_metric_worst_first(viewer: Page, team: str, expected: list[str]) -> None:
    """Means are 0.7, 0.5, 0.8 and 0.2; cases without a value stay last in both directions."""
    viewer.get_by_label("Sort by").select_option("GTVp DSC")
    viewer.get_by_label("Team", exact=True).select_option(team)
    names = viewer.locator("#cases li span:first-child")
    assert names.all_text_contents() == expected
    viewer.get_by_role("button", name="Sort direction").click()
    missing = 5 - (2 if team == "alpha" else 1)
    assert names.all_text_contents()[missing:] == expected[missing:]
    assert names.all_text_contents()[0] == ("CASE-2" if team == "alpha" else HOSTILE)


def test_cases_are_sorted_by_a_property_of_the_case(viewer: Page) -> None:
    viewer.get_by_label("Sort by").select_option("GTVp volume (ml)")
    assert viewer.get_by_label("Team", exact=True).is_disabled()
    figures = viewer.locator("#cases .figure").all_text_contents()
    assert figures == ["5.0", "4.0", "3.0", "2.0", "1.0"]


def test_the_filter_narrows_the_list(viewer: Page) -> None:
    viewer.get_by_label("Filter").fill("case-")
    assert viewer.locator("#cases li span:first-child").all_text_contents() == [FIRST, "CASE-2"]
    expect(viewer.locator("#count")).to_have_text("2 of 5 cases")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_page_is_accessible(viewer: Page, theme: str) -> None:
    if theme == "light":
        viewer.get_by_role("button", name="Light").click()
    viewer.locator("#lesions button").first.click()
    assert accessibility_problems(viewer) == []
    viewer.keyboard.press("?")
    assert accessibility_problems(viewer) == []


def test_names_are_text_and_not_markup(page: Page, address: str) -> None:
    """A dialog that a name opens would fail the test, as nobody closes it."""
    page.goto(f"{address}#case={HOSTILE.replace(' ', '%20')}")
    wait_for_case(page, HOSTILE)
    assert page.locator("img").count() == 0
    expect(page.locator("#masks")).to_contain_text(BETA)
    expect(page.locator("#sort-team")).to_contain_text(BETA)


def test_the_error_of_a_case_is_shown_and_the_next_case_opens(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}#case={BROKEN}")
    expect(page.locator("#message")).to_contain_text(f"{BROKEN} cannot be shown.", timeout=OPEN_MS)
    expect(page.locator("#message")).to_contain_text(f"{BROKEN}__CT.nii.gz")
    page.locator("#cases li", has_text=FIRST).click()
    wait_for_case(page, FIRST)
    expect(page.locator("#message")).to_be_hidden()
    page.close()


def test_a_case_without_pet_shows_the_ct(page: Page, address: str) -> None:
    page.goto(f"{address}#case={WITHOUT_PET}")
    wait_for_case(page, WITHOUT_PET)
    assert page.locator("#pet-map").is_disabled()
    expect(page.locator("#notes")).to_contain_text(f"{WITHOUT_PET}__PT.nii.gz")
    expect(page.locator("#readout")).not_to_contain_text("SUV")
    assert near(stage(page), ALPHA_COLOUR).sum() > 100


def test_an_address_restores_case_and_position(page: Page, address: str) -> None:
    page.goto(f"{address}#case=CASE-2&pos=12.0,-9.0,30.0")
    wait_for_case(page, "CASE-2")
    assert position(page) == pytest.approx([12, -9, 30], abs=0.06)
    page.evaluate("location.hash = '#case=CASE-2&pos=-30.0,6.0,3.0'")
    frame(page)
    assert position(page) == pytest.approx([-30, 6, 3], abs=0.06)


def test_an_uncertainty_map_covers_the_planes(viewer: Page) -> None:
    """The map is 1 bit, the brightest yellow, in the box of the team's primary and nothing elsewhere."""
    viewer.get_by_role("button", name="None").click()
    at = middle(ALPHA_PRIMARY)
    viewer.evaluate("(mm) => window.viewer.moves.jump(mm)", at)
    viewer.locator("#uncertainty-opacity").fill("1")
    viewer.locator("#uncertainty").select_option(f"{ALPHA}: entropy")
    expect(viewer.locator("#status")).to_have_text(f"Uncertainty of {ALPHA} shown: entropy.")
    frame(viewer)
    pixels = stage(viewer)
    x, y = (round(value) for value in pixel_of(viewer, AXIAL, [at[0] + 3, at[1] + 3, at[2]]))
    assert near(pixels[y, x], (253, 231, 37))
    assert not near(pixels[y, round(pixel_of(viewer, AXIAL, [-45.0, 0.0, 0.0])[0])], (253, 231, 37))


def test_a_browser_without_webgl2_is_told_so(page: Page, address: str) -> None:
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(address)
    expect(page.locator("#message")).to_contain_text("WebGL2")


def test_the_viewer_opens_from_a_static_folder(page: Page, cohort: ViewerCohort, tmp_path: Path) -> None:
    cases = {case: sources for case, sources in cohort.cases.items() if case == "CASE-2"}
    listed = [entry for entry in cohort.listing["cases"] if entry["case"] in cases]
    export_viewer(tmp_path / "viewer", ViewerCohort(cases, {**cohort.listing, "cases": listed}))
    handler = partial(_QuietHandler, directory=str(tmp_path / "viewer"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        wait_for_case(page, "CASE-2")
        assert near(stage(page), ALPHA_COLOUR).sum() > 100
        server.shutdown()
        thread.join()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        pass
