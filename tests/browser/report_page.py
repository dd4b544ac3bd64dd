"""Write and open the report of a challenge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from reporting.report.cases import CasePicture, format_contours_script
from reporting.report.page import build_page
from tests.reporting.report.challenge import build_content, name_cases, name_teams

TEAMS = name_teams(40)
FIRST = TEAMS[0]
# Charts are drawn as they come into view; this draws all that no closed fold hides.
DRAWN = "() => window.page && (window.page.drawAll(), true)"
WIDTHS = (1280, 360)


def write_report(folder: Path, teams: list[str], number_of_cases: int) -> str:
    (folder / "report_files").mkdir()
    pictures = [CasePicture("CHUM-003", "report_files/CHUM-003.jpg", contours="report_files/CHUM-003.js")]
    contours = {team: (f"M{place},1L9,9", "") for place, team in enumerate([*teams, "7"])}
    contours |= {"": ("M0,0L30,10", "M1,1L2,2")}
    (folder / "report_files" / "CHUM-003.js").write_text(format_contours_script("CHUM-003", contours), encoding="utf-8")
    page = build_page(build_content(teams, name_cases(number_of_cases), pictures))
    (folder / "report.html").write_text(page, encoding="utf-8")
    write_picture(folder / "report_files" / "CHUM-003.jpg")
    return (folder / "report.html").as_uri()


def write_picture(path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (30, 10)).save(path)


def open_page(page: Page, address: str, *folds: str) -> Page:
    """Open the page and some of its folds, in their order."""
    page.goto(address)
    page.wait_for_function(DRAWN)
    for fold in folds:
        page.evaluate(f"for (const node of document.querySelectorAll('{fold}')) node.open = true")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")  # toggle events are tasks
    page.wait_for_function(DRAWN)
    return page


def select_figures(*names: str) -> tuple[str, str]:
    """Return the selectors of the page's folds and of some figures' folds."""
    return ".fold", ", ".join(f"#{name} > details" for name in names)


def find_chart(page: Page, name: str) -> Any:
    return page.locator(f"#{name} .drawing svg").first


def read_teams(page: Page) -> list[str]:
    return page.locator("#task1 table").first.locator("tbody button.choice").all_inner_texts()
