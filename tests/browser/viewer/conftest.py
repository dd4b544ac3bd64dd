"""A small cohort with lesions of known position, served as `hecktor view` does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from evaluation.viewer.cohort import ViewerCohort
from evaluation.viewer.server import serving
from tests.browser.viewer.screen import wait_for_case
from tests.browser.viewer.simulated_cohort import FIRST, write_cohort


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> ViewerCohort:
    return write_cohort(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="session")
def address(cohort: ViewerCohort) -> Iterator[str]:
    with serving(cohort) as address:
        yield address


@pytest.fixture
def viewer(page: Page, address: str) -> Page:
    """The page with CASE-1 open, and its images shown whole."""
    page.goto(f"{address}#case={FIRST}")
    wait_for_case(page, FIRST)
    page.keyboard.press("f")
    return page
