"""The viewer around its images: list of cases, lesions, keys, errors, accessibility, addresses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from evaluation.viewer.case import export_viewer
from evaluation.viewer.cohort import ViewerCohort
from tests.browser.conftest import accessibility_problems
from tests.browser.viewer.screen import (
    ALPHA_COLOUR,
    OPEN_MS,
    frame,
    near,
    position,
    stage,
    wait_for_case,
)
from tests.browser.viewer.simulated_cohort import (
    ALPHA,
    ALPHA_FALSE,
    BETA,
    BROKEN,
    FIRST,
    HOSTILE,
    NODE,
    PRIMARY,
    SPACING,
    WITHOUT_PET,
    middle,
)


def test_enter_on_a_teams_lesion_jumps_there(viewer: Page) -> None:
    button = viewer.locator("#lesions button", has_text="false positive").first
    button.focus()
    viewer.keyboard.press("Enter")
    frame(viewer)
    assert np.abs(np.subtract(position(viewer), middle(ALPHA_FALSE))).max() <= SPACING / 2 + 0.05


def test_an_uncertainty_map_stays_on_in_the_next_case_only_if_that_has_it(viewer: Page) -> None:
    viewer.locator("#uncertainty").select_option(f"{ALPHA}: entropy")
    expect(viewer.locator("#status")).to_have_text(f"Uncertainty of {ALPHA} shown: entropy.")
    viewer.keyboard.press("j")
    wait_for_case(viewer, "CASE-2")
    expect(viewer.locator("#uncertainty-tools")).to_be_hidden()


def test_keys_open_the_next_and_the_previous_case(viewer: Page) -> None:
    """The list is sorted by name here, so that CASE-2 follows CASE-1."""
    for key, case in (("j", "CASE-2"), ("k", FIRST), ("ArrowDown", "CASE-2"), ("ArrowUp", FIRST)):
        viewer.keyboard.press(key)
        wait_for_case(viewer, case)
        assert viewer.locator("#cases [aria-selected=true]").inner_text().startswith(case)


def test_the_server_prepares_the_next_case_meanwhile(page: Page, address: str) -> None:
    """A while after CASE-1 is shown, CASE-2 is asked for, so that it opens at once."""
    with page.expect_response("**/case/CASE-2/case.json") as response:
        page.goto(f"{address}#case={FIRST}")
        wait_for_case(page, FIRST)
    assert response.value.ok
    assert page.locator("#case-title b").inner_text() == FIRST


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


@pytest.mark.parametrize(
    ("team", "expected"),
    [
        ("alpha", [BROKEN, FIRST, "CASE-2", HOSTILE, WITHOUT_PET]),
        ("mean of all teams", [BROKEN, "CASE-2", FIRST, HOSTILE, WITHOUT_PET]),
    ],
)
def test_cases_are_sorted_by_a_teams_metric_worst_first(viewer: Page, team: str, expected: list[str]) -> None:
    """Means are 0.7, 0.5, 0.8 and 0.2; cases without a value stay last in both directions.

    The 0.8 is of 0.6 and of a team that rightly marks nothing, which counts as 1.
    """
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
    only = "color-contrast" if theme == "light" else ""
    viewer.locator("#lesions button").first.click()
    assert accessibility_problems(viewer, only) == []
    viewer.keyboard.press("?")
    expect(viewer.get_by_role("dialog")).to_be_visible()
    assert accessibility_problems(viewer, only) == []
    viewer.keyboard.press("Escape")
    expect(viewer.get_by_role("dialog")).to_be_hidden()


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


def test_an_address_restores_case_and_position(page: Page, address: str) -> None:
    page.goto(f"{address}#case=CASE-2&pos=12.0,-9.0,30.0")
    wait_for_case(page, "CASE-2")
    assert position(page) == pytest.approx([12, -9, 30], abs=0.06)
    page.evaluate("location.hash = '#case=CASE-2&pos=-30.0,6.0,3.0'")
    frame(page)
    assert position(page) == pytest.approx([-30, 6, 3], abs=0.06)


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


def test_a_viewer_that_is_opened_as_a_file_says_what_to_do(
    browser: Browser, cohort: ViewerCohort, tmp_path: Path
) -> None:
    """A browser refuses the modules of a file, which it says on its console."""
    export_viewer(tmp_path / "viewer", replace(cohort, cases={}, listing={**cohort.listing, "cases": []}))
    page = browser.new_page()
    page.goto((tmp_path / "viewer" / "index.html").as_uri())
    expect(page.locator("#message")).to_contain_text("python3 -m http.server")
    page.close()


@pytest.mark.parametrize(("width", "height"), [(900, 900), (390, 844)])
def test_the_page_fits_narrow_screens(viewer: Page, width: int, height: int) -> None:
    """Nothing is cut off at the side; images, status and buttons are on the screen. On a phone the page scrolls down."""
    viewer.set_viewport_size({"width": width, "height": height})
    frame(viewer)
    assert viewer.evaluate("document.documentElement.scrollWidth") == width
    for name in ("#stage", "#status", "#zoom-in", "#case-title", "#answers", "#ruler", "#help"):
        box = viewer.locator(name).bounding_box()
        assert box is not None, name
        assert box["width"] > 0, name
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= width, name
    assert (viewer.locator("#stage").bounding_box() or {})["height"] > 400
    assert accessibility_problems(viewer) == []


def test_patient_and_answers_are_shown(viewer: Page) -> None:
    expect(viewer.locator("#answers tr").nth(1)).to_contain_text("reference")
    expect(viewer.locator("#answers tr").nth(1)).to_contain_text("812 days, relapse")
    expect(viewer.locator("#clinical")).to_contain_text("Age")
    expect(viewer.locator("#clinical")).to_contain_text("61 years")


def test_the_help_lists_every_key(viewer: Page) -> None:
    """The keys of the page and of the images; `=` is `+` without the shift key."""
    viewer.keyboard.press("?")
    keys = {text for text in viewer.locator("#keys kbd").all_text_contents() if len(text) == 1}
    assert keys == set("jkn0bcxvpwrsf+e/?") | set("\N{MINUS SIGN}←→↑↓")


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        pass
