"""The browser that the other tests of this folder use."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.browser.conftest import accessibility_problems


def test_a_page_without_a_title_is_an_accessibility_problem(page: Page) -> None:
    page.set_content("<main><h1>Report</h1></main>")
    rules = {line.split(":")[0] for line in accessibility_problems(page)}
    assert {"document-title", "html-has-lang"} <= rules
