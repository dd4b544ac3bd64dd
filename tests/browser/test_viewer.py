"""Viewer in a browser: NiiVue draws, layers switch, lesions are found, and no other host is contacted."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect

from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.server import export_viewer, serve_viewer
from tests.browser.conftest import find_accessibility_problems
from tests.browser.simulated_cohort import (
    ALPHA,
    ALPHA_FALSE,
    BETA,
    BROKEN,
    FIRST,
    HOSTILE,
    NODE,
    PRIMARY,
    WITHOUT_PET,
    find_middle,
    write_cohort,
)

REFERENCE_COLOUR = (0x3D, 0xFF, 0x6E)
OPEN_MS = 60_000


# The smallest page with three columns. Without a graphics card few pixels are drawn faster.
SIZE: ViewportSize = {"width": 920, "height": 480}


@pytest.fixture
def page(page: Page) -> Page:
    page.set_viewport_size(SIZE)
    return page


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> ViewerCohort:
    return write_cohort(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def address(cohort: ViewerCohort) -> Iterator[str]:
    with serve_viewer(cohort) as address:
        yield address


@pytest.fixture(scope="module")
def exported_viewer(cohort: ViewerCohort, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Export CASE-1 to a file and return its address."""
    listed = [entry for entry in cohort.listing["cases"] if entry["case"] == FIRST]
    part = replace(cohort, cases={FIRST: cohort.cases[FIRST]}, listing={**cohort.listing, "cases": listed})
    return export_viewer(tmp_path_factory.mktemp("exported") / "viewer.html", part).as_uri()


def wait_for_case(page: Page, case: str) -> None:
    expect(page.locator("#case-title b")).to_have_text(case, timeout=OPEN_MS)
    expect(page.locator("#message")).to_be_empty()


def read_images(page: Page) -> np.ndarray:
    """Return the images on the screen, of shape (height, width, 3)."""
    picture = page.locator("#images").screenshot(timeout=OPEN_MS)
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def count_outline_pixels(pixels: np.ndarray) -> int:
    """Count the pixels with the colour of the reference's outline, up to its smoothing."""
    return int((np.abs(pixels - REFERENCE_COLOUR).max(axis=-1) <= 40).sum())


def read_position(page: Page) -> tuple[list[float], str]:
    """Return the crosshair in mm (right, front, head), and the values there."""
    text = page.locator("#readout").inner_text().replace("\N{MINUS SIGN}", "-")
    match = re.match(r"R (\S+)\s+A (\S+)\s+S (\S+) mm\s+(.*)", text)
    assert match is not None, text
    return [float(part) for part in match.groups()[:3]], " ".join(match[4].split())


@pytest.mark.parametrize("place", ["server", "file"])
def test_images_layers_and_lesions(page: Page, address: str, exported_viewer: str, place: str) -> None:
    """Box of the primary: its middle is voxel 22.5, 27.5, 23.5 of 3 mm from -88.5, -88.5, -73.5 LPS: R 21, A 6, S -3.

    The node's middle is 37.5, 32, 13.5: R -24, A -7.5, S -33. CT 40 HU, PET 8 in the primary and 1 elsewhere.
    """
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    start = address if place == "server" else exported_viewer
    page.goto(f"{start}#case={FIRST}")
    wait_for_case(page, FIRST)
    assert read_position(page) == ([21.0, 6.0, -3.0], f"HU 40 SUV 8.00 reference GTVp {ALPHA} GTVp {BETA} GTVp")
    with_outline = read_images(page)
    assert len(np.unique(with_outline.reshape(-1, 3), axis=0)) > 50
    assert count_outline_pixels(with_outline) > 100
    page.keyboard.press("0")
    assert count_outline_pixels(read_images(page)) == 0
    page.locator("#masks").get_by_label("reference").check()
    assert count_outline_pixels(read_images(page)) == count_outline_pixels(with_outline)
    page.locator("#lesions button", has_text="GTVn").first.click()
    position, values = read_position(page)
    assert (position, values) == ([-24.0, -7.5, -33.0], "HU 40 SUV 1.00 reference GTVn")
    assert find_middle(NODE) == pytest.approx(position)
    page.locator("#lesions button", has_text="false positive").click()
    assert read_position(page)[0] == pytest.approx(find_middle(ALPHA_FALSE), abs=0.06)
    assert [url for url in urls if not url.startswith((start, "data:", "blob:"))] == []


def test_windows_and_views_change_the_images(page: Page, exported_viewer: str) -> None:
    page.goto(exported_viewer)
    wait_for_case(page, FIRST)
    before = read_images(page)
    for change in (
        # Water lies in the middle of the soft tissue and the brain window.
        lambda: (page.keyboard.press("w"), page.keyboard.press("w")),
        lambda: page.keyboard.press("p"),
        lambda: page.locator("#fill").fill("0.41"),
        lambda: page.locator("#view").select_option("Axial"),
    ):
        change()
        after = read_images(page)
        assert (after.shape != before.shape) or np.abs(after - before).max() > 20
        before = after
    page.locator("#images").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageUp")
    # The screen's right is the patient's left; from the primary's middle, between voxels, to a voxel's centre.
    x, y, z = read_position(page)[0]
    right, front, head = find_middle(PRIMARY)
    assert -4.6 <= x - right <= -1.4
    assert abs(y - front) <= 1.6
    assert 1.4 <= z - head <= 4.6


def test_the_list_sorts_filters_and_moves(page: Page, address: str) -> None:
    """GTVp DSC of alpha: 0.5, 0.8, none, 0.1; means of both teams 0.7, 0.5, 0.8 and 0.2; one case has no value.

    In the mean of 0.8 are 0.6 and a team that rightly marks nothing, which counts as 1.
    """
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    names = page.locator("#cases button span:first-child")
    page.locator("#sort").select_option("GTVp DSC")
    assert names.all_text_contents() == [BROKEN, "CASE-2", FIRST, HOSTILE, WITHOUT_PET]
    page.locator("#team").select_option(ALPHA)
    assert names.all_text_contents() == [BROKEN, FIRST, "CASE-2", HOSTILE, WITHOUT_PET]
    page.locator("#sort").select_option("GTVp volume (ml)")
    assert page.locator("#cases .figure").all_text_contents() == ["5.0", "4.0", "3.0", "2.0", "1.0"]
    page.locator("#filter").fill("case-")
    assert names.all_text_contents() == [FIRST, "CASE-2"]
    page.locator("#title").click()
    page.keyboard.press("j")
    wait_for_case(page, "CASE-2")
    page.keyboard.press("n")
    expect(page.locator("#lesions [aria-current]")).to_contain_text("GTVn")


def test_a_case_that_cannot_be_shown_says_so_and_the_next_opens(browser: Browser, address: str) -> None:
    """Any dialog that a name opens would fail the test, because it stays open. Without a PET the CT is shown."""
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{address}#case={BROKEN}")
    message = page.locator("#message")
    expect(message).to_contain_text(f"{BROKEN} cannot be shown.\n{BROKEN}__CT.nii.gz", timeout=OPEN_MS)
    page.locator("#cases button", has_text=HOSTILE).click()
    wait_for_case(page, HOSTILE)
    expect(page.locator("img")).to_have_count(0)
    expect(page.locator("#masks")).to_contain_text(BETA)
    page.locator("#cases button", has_text=WITHOUT_PET).click()
    wait_for_case(page, WITHOUT_PET)
    expect(page.locator("#pet-tools")).to_be_hidden()
    expect(page.locator("#notes")).to_contain_text(f"PET: {WITHOUT_PET}__PT.nii.gz")
    assert "SUV" not in read_position(page)[1]
    page.close()


@pytest.mark.parametrize(("scheme", "only"), [("light", ""), ("dark", "color-contrast")])
def test_the_page_fits_and_is_accessible(page: Page, exported_viewer: str, scheme: str, only: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(exported_viewer)
    wait_for_case(page, FIRST)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("#answers")).to_contain_text("812 days, relapse")
    expect(page.locator("#clinical")).to_contain_text("61 years")
    assert find_accessibility_problems(page, only) == []
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert find_accessibility_problems(page, only) == []
