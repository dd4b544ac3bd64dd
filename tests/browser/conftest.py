"""Pages in a real browser: headless Chromium, controlled by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.report_page import TEAMS, write_report
from tests.reporting.report.challenge import name_teams

ARGUMENTS = (
    "--no-sandbox",
    # WebGL 2 without a graphics card, for the viewer.
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, before `-m` selects."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium; if it is not installed, skip the tests, or fail them in CI (HECKTOR_REQUIRE_BROWSER)."""
    executable = os.environ.get("HECKTOR_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        message = "no Chromium found, expected `chromium` (apt-get install chromium) or its path in HECKTOR_BROWSER"
        if os.environ.get("HECKTOR_REQUIRE_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open an empty page of 1280 x 900 pixels; fail the test if the console has an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    yield page
    context.close()
    assert problems == []


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a report of 40 teams and 60 cases, one with a picture; return its address."""
    return write_report(tmp_path_factory.mktemp("report"), TEAMS, 60)


@pytest.fixture(scope="session")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a report with everything that the large one has, for 8 teams and 9 cases; return its address."""
    return write_report(tmp_path_factory.mktemp("small-report"), name_teams(8), 9)


def find_accessibility_problems(page: Page, only: str = "") -> list[str]:
    """Return a line for each problem that axe-core finds: the rule, and the first element.

    For another colour scheme of a page the rule "color-contrast" suffices: the other rules read what both schemes
    share.
    """
    options = {"resultTypes": ["violations"]} | ({"runOnly": [only]} if only else {})
    violations: list[dict[str, Any]] = Axe().run(page, options=options).response["violations"]
    return [f"{violation['id']}: {violation['nodes'][0]['html'][:200]}" for violation in violations]
