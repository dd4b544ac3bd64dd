"""Leaderboards of a report in a browser: columns, on screen and on paper."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from reporting.analyses.tasks import compare_tasks
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import Row, make_value_cell, render_table
from reporting.report.page import BETWEEN_TASKS, build_page
from tests.browser.report_page import FIRST, TEAMS, open_page, read_teams, select_figures
from tests.evaluation.builders import with_board
from tests.reporting.report.challenge import build_content, name_cases, name_teams


def test_a_table_is_sorted_by_its_headers(page: Page, report: str) -> None:
    """GTVp mean DSC falls with the rank: rising order is from the last team to the first, and the best come first."""
    open_page(page, report)
    head = page.locator("#task1 thead th").filter(has_text="GTVp mean DSC").first
    assert read_teams(page)[0] == FIRST
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert read_teams(page) == TEAMS
    head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert read_teams(page) == TEAMS[::-1]
    rank = page.locator("#task1 thead th").filter(has_text="Rank").first
    rank.get_by_role("button").click()
    expect(rank).to_have_attribute("aria-sort", "ascending")
    assert read_teams(page) == TEAMS


def test_the_board_is_saved_as_csv(page: Page, report: str) -> None:
    """GTVp mean DSC of the first team is 0.9 from 0.86 to 0.92, each in its own column."""
    open_page(page, report)
    with page.expect_download() as waiting:
        page.locator("#task1 > .tools").get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == "task1-leaderboard.csv"
    lines = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text("utf-8"))))
    assert len(lines) == 41
    assert lines[0][:5] == ["Rank", "Team", "GTVp mean DSC", "GTVp mean DSC, 95% interval from", "to"]
    assert lines[1][:5] == ["1", FIRST, "0.900", "0.860", "0.920"]
    assert {len(line) for line in lines} == {len(lines[0])}


def test_the_team_stays_and_more_columns_are_announced(page: Page, report: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    open_page(page, report)
    more = page.locator("#task1 > .tools .more")
    expect(more).to_be_visible()
    left = "document.querySelector('#task1 tbody th').getBoundingClientRect().left"
    page.evaluate("document.querySelector('#task1 .scroll').scrollLeft = 100000")
    expect(more).to_be_hidden()
    edge = page.evaluate("document.querySelector('#task1 .scroll').getBoundingClientRect().left")
    assert page.evaluate(left) == pytest.approx(edge, abs=1)


def test_a_long_name_wraps(browser: Browser, tmp_path: Path) -> None:
    long = "A" * 90
    (tmp_path / "r.html").write_text(build_page(build_content([long, "b"], name_cases(6))), encoding="utf-8")
    page = open_page(browser.new_page(), (tmp_path / "r.html").as_uri())
    name = page.locator("#task1 tbody button.choice").first
    box, cell = name.bounding_box(), page.locator("#task1 tbody th").first.bounding_box()
    assert box is not None
    assert cell is not None
    assert box["x"] + box["width"] <= cell["x"] + cell["width"] + 1 <= 600
    page.close()


def test_methods_are_searched_and_entries_out_of_competition_marked(page: Page, tmp_path: Path) -> None:
    """Of three teams one has SegResNet. Next to the teams' boxes the baseline appears only for the shared metric."""
    page_content = build_content(name_teams(3), name_cases(6))
    entry = {
        "team": "Baseline",
        "metrics": {name: {"value": 0.7} for name in page_content.results[0].board.metrics},
        "place": 3,
    }
    methods = {name_teams(3)[1]: {"Network": "SegResNet"}}
    first = with_board(page_content.results[0], methods=methods, out_of_competition=[entry])
    second = replace(first.profile, algorithm=first.task.with_number(2))
    both = [first, replace(first, profile=second)]
    shown = replace(page_content, results=both, analyses={BETWEEN_TASKS: compare_tasks(both)})
    (tmp_path / "page.html").write_text(build_page(shown), encoding="utf-8")
    open_page(page, (tmp_path / "page.html").as_uri(), *select_figures("between-tasks-spread-over-teams"))
    page.get_by_label("Search").first.fill("segres")
    rows = page.locator("table.board").first.locator("tbody tr:visible")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(name_teams(3)[1])
    marks = page.locator("#between-tasks-spread-over-teams .drawing svg").get_by_text("Baseline", exact=True)
    expect(marks).to_have_count(2 * len(both[0].board.metrics))


def test_no_column_of_the_board_is_lost_on_paper(page: Page, small_report: str) -> None:
    """A4 is 182 mm or 688 CSS pixels wide between its margins; the board's eight columns fit."""
    page.set_viewport_size({"width": 688, "height": 1017})
    page.emulate_media(media="print")
    open_page(page, small_report)
    right = page.locator("#task1 table.board thead th").evaluate_all(
        "all => all.map((node) => node.getBoundingClientRect().right)"
    )
    assert len(right) == 8
    assert max(right) <= 688
    expect(page.locator("#task1 table.board thead th").nth(3)).to_have_css("overflow-wrap", "normal")  # whole words


def test_a_board_is_not_split_over_pages(page: Page, small_report: str) -> None:
    page.emulate_media(media="print")
    open_page(page, small_report)
    expect(page.locator(".scroll", has=page.locator("> table.board")).first).to_have_css("break-inside", "avoid")


def test_a_figure_is_printed_on_one_page_with_its_heading(page: Page, small_report: str) -> None:
    """A4 is 269 mm or 1,017 CSS pixels high between its margins; of a longer figure the first panels fit."""
    page.set_viewport_size({"width": 688, "height": 1017})
    page.emulate_media(media="print")
    open_page(page, small_report)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    figures = page.locator(".figures > .chart")
    breaks = figures.evaluate_all("all => all.map((node) => getComputedStyle(node).breakInside)")
    heights = figures.evaluate_all(
        "all => all.map((node) => node.querySelector('.panels').getBoundingClientRect().bottom - node.getBoundingClientRect().top)"
    )
    assert set(breaks) == {"avoid"}
    assert len(heights) > 10
    assert max(heights) <= 1017


def test_a_wide_board_turns_the_paper(page: Page, tmp_path: Path) -> None:
    """Sixteen columns on A4 across: 842 x 595 points, and 269 mm or 1,017 CSS pixels between the margins."""
    heads = ["Rank", "Team", *(f"GTVn aggregated DSC {number}" for number in range(14))]
    rows = [Row([1, f"Team {number}", *[make_value_cell(0.5, 0.4, 0.6)] * 14]) for number in range(3)]
    board = render_table("Leaderboard", heads, rows, header_column=1, css_class="board")
    html = render_page(HtmlPage("t", "l", [Section("a", "A", board)], "f"))
    (tmp_path / "r.html").write_text(html, encoding="utf-8")
    page.set_viewport_size({"width": 1017, "height": 688})
    open_page(page, (tmp_path / "r.html").as_uri())
    pages = re.findall(rb"/MediaBox \[0 0 (\d+)[.\d]* (\d+)", page.pdf(prefer_css_page_size=True))
    assert pages == [(b"841", b"594")]
    page.emulate_media(media="print")
    right = page.locator("thead th").evaluate_all("all => all.map((node) => node.getBoundingClientRect().right)")
    assert len(right) == 16
    assert max(right) <= 1017
