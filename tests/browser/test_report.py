"""Reports of a challenge in a browser: 40 teams and 60 cases."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import Browser, Page, expect

from reporting.analyses.analysis import Analysis
from reporting.analyses.tasks import compare_tasks
from reporting.page.charts import render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import Row, assign_colours, make_value_cell, render_table
from reporting.report.page import BETWEEN_TASKS, build_page
from tests.browser.conftest import find_accessibility_problems
from tests.browser.report_page import DRAWN, FIRST, TEAMS, WIDTHS, find_chart, open_page, read_teams, select_figures
from tests.evaluation.builders import with_board
from tests.reporting.report.challenge import build_content, lose_nodes, name_cases, name_teams


def download(page: Page, section: str, button: str) -> str:
    with page.expect_download() as waiting:
        page.locator(f"#{section}").get_by_role("button", name=re.compile(f"as {button}$")).click()
    assert waiting.value.suggested_filename == f"{section}.{button.lower()}"
    return Path(waiting.value.path()).read_bytes().decode("utf-8")


def test_all_charts_are_drawn_as_svg_with_a_name(page: Page, small_report: str) -> None:
    open_page(page, small_report, ".fold", ".figures details")
    sections = page.locator("section.chart").count()
    assert sections > 20
    expect(page.locator("section.chart .drawing > [role=img][aria-label]")).to_have_count(sections)


def test_a_fold_is_drawn_when_it_opens(page: Page, report: str) -> None:
    """With three tasks and rivals only the three stabilities are drawn at first: maps of 40 teams are closed."""
    open_page(page, report)
    assert page.locator("details.fold[open]").evaluate_all("all => all.map((node) => node.id)") == ["result"]
    drawn = page.locator("section.chart:has(.panels)").evaluate_all("all => all.map((node) => node.id)")
    assert drawn == [f"task{number}-rank-stability" for number in (1, 2, 3)]
    page.locator("#by-answer > summary").click()
    expect(page.locator("#task1-metrics svg").first).to_be_visible()
    expect(page.locator("#task1-dsc-by-team svg")).to_have_count(0)
    page.locator("#task1-dsc-by-team > details > summary").click()
    expect(page.locator("#task1-dsc-by-team svg").first).to_be_visible()


def test_an_address_opens_the_folds_around_its_figure(page: Page, small_report: str) -> None:
    open_page(page, f"{small_report}#task1-gtvp-dsc-by-case")
    expect(page.locator("#task1-gtvp-dsc-by-case .panels svg").first).to_be_in_viewport()


def test_outliers_are_drawn_where_they_lie(page: Page, small_report: str) -> None:
    """Team 02 misses case 8: one point at 0 for each structure. All other DSCs lie between 0.5 and 0.9."""
    open_page(page, small_report, *select_figures("task1-dsc-by-team", "task1-gtvp-dsc-by-case"))
    points = page.locator("#task1-dsc-by-team circle").evaluate_all(
        "dots => dots.filter((dot) => 'outlier' in dot.pageRow)"
        ".map((dot) => [dot.pageRow.team, dot.pageRow.outlier, dot.getBoundingClientRect().left])"
    )
    assert [(team, value) for team, value, _ in points] == [(TEAMS[1], 0)] * 2
    zeros = page.locator("#task1-dsc-by-team svg text", has_text=re.compile(r"^0\.0$")).evaluate_all(
        "texts => texts.map((text) => { const box = text.getBoundingClientRect(); return (box.left + box.right) / 2; })"
    )
    assert [left for *_, left in points] == pytest.approx(zeros, abs=4)
    rows = page.locator("#task1-gtvp-dsc-by-case circle").evaluate_all(
        "dots => dots.map(({ pageRow }) => [pageRow.case, pageRow.outlier])"
    )
    assert [case for case, value in rows if value == 0] == ["MDA-008"]


def test_values_are_read_by_arrow_keys(page: Page, small_report: str) -> None:
    """Arrow keys start at the first mark of the first chart, the first team's interval."""
    open_page(page, small_report)
    page.locator("#task1-rank-stability .drawing").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip")).to_contain_text(name_teams(8)[0])
    first = page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text() != first
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()


def test_a_click_on_a_team_marks_it_everywhere(page: Page, report: str) -> None:
    open_page(page, report, *select_figures("task2-metrics", "task2-survival"))
    find_chart(page, "task1-metrics").locator("text", has_text="Team 03").first.click()
    page.wait_for_function(DRAWN)
    expect(page.locator("#selection")).to_contain_text(TEAMS[2])
    chosen = page.locator("tr.chosen").evaluate_all("rows => rows.map((row) => row.dataset.team)")
    assert len(chosen) >= 3
    assert set(chosen) == {TEAMS[2]}
    faded = page.locator("#task2-metrics circle").evaluate_all(
        "circles => circles.map(c => [c.pageRow.team, c.getAttribute('fill-opacity') ?? c.parentNode.getAttribute('fill-opacity')])"
    )
    assert {team for team, opacity in faded if opacity in {None, "1"}} == {TEAMS[2]}
    expect(page.locator("#task2-survival .panel-title")).to_have_count(1)
    page.get_by_role("button", name="Clear", exact=True).click()
    page.wait_for_function(DRAWN)
    expect(page.locator("#selection")).to_be_hidden()
    expect(page.locator("tr.chosen")).to_have_count(0)
    expect(page.locator("#task2-survival .panel-title")).to_have_count(40)


def test_the_selection_is_in_the_address_and_comes_from_it(page: Page, small_report: str) -> None:
    open_page(page, f"{small_report}#task2&team=Team%2002%20of%20the%20University%20Hospital&centre=MDA")
    buttons = page.locator("#selection button").all_inner_texts()
    assert buttons == [f"team {TEAMS[1]} \u00d7", "centre MDA \u00d7", "Clear"]
    page.locator("#by-case > summary").click()
    expect(page.locator("#by-case > .scroll tbody tr:visible")).to_have_count(3)
    page.get_by_role("button", name=f"Remove team {TEAMS[1]}").click()
    expect(page).to_have_url(f"{small_report}#task2&centre=MDA")
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    expect(page.locator("tr.chosen")).to_have_count(0)


def test_a_case_is_chosen_by_keyboard_and_shows_its_picture_and_answers(page: Page, report: str) -> None:
    open_page(page, report, ".fold")
    card = page.locator('[id="case-CHUM-003"]')
    expect(card).to_be_hidden()
    page.locator("#by-case button.choice", has_text="CHUM-003").press("Enter")
    expect(card).to_be_visible()
    expect(card.locator("tbody tr")).to_have_count(40)
    card.scroll_into_view_if_needed()
    expect(page.locator(".card[open] img")).to_have_js_property("naturalWidth", 30)
    expect(page.locator("#selection a")).to_have_text("Show CHUM-003")


def test_three_contours_are_chosen_below_the_reference(page: Page, small_report: str) -> None:
    """At first the best team and the selected one are shown, not team 7; the reference is drawn last, hence on top."""
    open_page(page, f"{small_report}#team=Team%2006%20of%20the%20University%20Hospital&case=CHUM-003", ".fold")
    card = page.locator('[id="case-CHUM-003"]')
    selects = card.locator(".contours select")
    expect(selects).to_have_count(3)
    assert [selects.nth(place).input_value() for place in range(3)] == [FIRST, TEAMS[5], ""]
    card.locator("img").scroll_into_view_if_needed()
    expect(card.locator(".picture path")).to_have_count(6)
    lines = "all => all.map((node) => node.getAttribute('d'))"
    expected = ["M0,1L9,9", "", "M5,1L9,9", "", "M0,0L30,10", "M1,1L2,2"]
    assert card.locator(".picture path").evaluate_all(lines) == expected
    strokes = card.locator(".picture path").evaluate_all("all => all.map((node) => node.getAttribute('stroke'))")
    assert len(set(strokes)) == 3
    selects.nth(0).select_option("")
    selects.nth(2).select_option(TEAMS[4])
    assert card.locator(".picture path").evaluate_all(lines)[::2] == ["M5,1L9,9", "M4,1L9,9", "M0,0L30,10"]


def test_teams_that_mark_an_absent_structure_are_counted(browser: Browser, tmp_path: Path) -> None:
    """Team 2 of three marks a GTVn that is not there; the third has no usable mask."""
    (tmp_path / "r.html").write_text(
        build_page(lose_nodes(build_content(name_teams(3), name_cases(6)))), encoding="utf-8"
    )
    page = open_page(browser.new_page(), (tmp_path / "r.html").as_uri(), ".fold", ".card")
    row = page.locator(f'#by-case > .scroll tbody tr[data-case="{name_cases(1)[0]}"]')
    expect(row).to_contain_text("1 of 2 teams wrong")
    for team, shown in ((0, "0 of 1 teams wrong"), (1, "1 of 2 teams wrong")):
        page.locator("#task1 tbody button.choice").nth(team).click()
        expect(row).to_contain_text(shown)
    answers = page.locator(f'[id="case-{name_cases(1)[0]}"] tbody tr')
    expect(answers.nth(1)).to_contain_text("wrongly marked")
    expect(answers.filter(has_text="wrongly marked")).to_have_count(1)
    expect(answers.filter(has_text="false")).to_have_count(0)
    page.close()


@pytest.mark.parametrize(
    ("scheme", "only", "folds"), [("light", "", (".fold", "details")), ("dark", "color-contrast", (".fold",))]
)
def test_the_page_is_accessible(
    browser: Browser, small_report: str, scheme: Any, only: str, folds: tuple[str, ...]
) -> None:
    """On the dark page only the folds are open: the contents of the others have the same colours."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page = open_page(context.new_page(), small_report, *folds)
    page.locator("#task1 tbody button.choice").first.click()
    page.locator("#by-case button.choice").first.click()
    page.wait_for_function(DRAWN)
    problems = find_accessibility_problems(page, only)
    context.close()
    assert problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_an_open_page_does_not_scroll_sideways(page: Page, report: str, small_report: str, width: int) -> None:
    """Open sections, figures, cases, and the table below each chart; tables scroll by themselves."""
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    open_page(page, small_report, "details")
    page.locator(".tools details").evaluate_all(
        "all => all.forEach((node) => (node.open = true))"
    )  # drawn with the charts
    tables = page.locator(".tools details[open] table")
    expect(tables).to_have_count(page.locator("section.chart").count())
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_shows_all_sections_and_panels(page: Page, small_report: str) -> None:
    """Closed sections are open on paper only; their charts are drawn, and each panel that a reader may pick."""
    open_page(page, small_report)
    sections = ".fold, .figures > * > details"
    before = page.locator(sections).evaluate_all("all => all.map((node) => node.open)")
    assert not all(before)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert all(page.locator(sections).evaluate_all("all => all.map((node) => node.open)"))
    expect(page.locator("section.chart:not(:has(.drawing svg))")).to_have_count(0)
    expect(page.locator("#task1-significance .panel-title")).to_have_count(2)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(sections).evaluate_all("all => all.map((node) => node.open)") == before
    page.wait_for_function(DRAWN)
    expect(page.locator("#task1-significance .panel-title")).to_have_count(1)


def write_figure_page(folder: Path, analysis: Analysis, teams: list[str]) -> str:
    """Write a page of one figure and return its address."""
    section = Section("s", "Section", render_figure(analysis, "figure"))
    html = render_page(HtmlPage("Title", "lead", [section], "footer", colours=assign_colours(teams)))
    (folder / "page.html").write_text(html, encoding="utf-8")
    return (folder / "page.html").as_uri()


def test_series_differ_by_dash_and_marker(page: Page, tmp_path: Path) -> None:
    """Eight teams: five dashes and five markers in turn, the same ones in the legend."""
    teams = name_teams(8)
    rows = [{"team": team, "x": x, "y": x + place} for place, team in enumerate(teams) for x in (0, 1)]
    columns = {"team": "Team", "x": "X", "y": "Y"}
    lines = Analysis("lines", "Lines", "", columns, rows, {"kind": "lines", "x": "x", "y": "y", "series": "team"})
    open_page(page, write_figure_page(tmp_path, lines, teams))
    legend = page.locator("#figure .legend li")
    dashes = legend.locator("line").evaluate_all("all => all.map((node) => node.getAttribute('stroke-dasharray'))")
    markers = legend.locator("path").evaluate_all("all => all.map((node) => node.getAttribute('d'))")
    for kinds in (dashes, markers):
        assert len(set(kinds[:5])) == 5
        assert kinds[5:] == kinds[:3]
    drawn = page.locator("#figure .panels g[stroke-dasharray]")
    line_dashes = drawn.evaluate_all("all => all.map((node) => node.getAttribute('stroke-dasharray'))")
    assert line_dashes == [dash for dash in dashes if dash != "none"]
    points = replace(lines, chart={**lines.chart, "kind": "points"})
    open_page(page, write_figure_page(tmp_path, points, teams))
    assert legend.locator("path").evaluate_all("all => all.map((node) => node.getAttribute('d'))") == markers
    shapes = page.locator("#figure .panels path[data-row]").evaluate_all(
        "all => all.map((node) => node.getAttribute('d'))"
    )
    assert len(set(shapes)) == 5


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    """Names that end scripts, open comments and hold markup are shown and run nothing. In a CSV no name is a formula."""
    formulas = ["=1+1", "-x", "@y"]
    hostile = ['<img src=x onerror="window.hacked=1">', "<!--<script>", "a&b=c 'd' \"e\"", *formulas]
    (tmp_path / "r.html").write_text(
        build_page(build_content(hostile, name_cases(12), title="</script><i>x</i>")), encoding="utf-8"
    )
    page = open_page(browser.new_page(), (tmp_path / "r.html").as_uri(), ".fold")
    assert sorted(read_teams(page)) == sorted(hostile)
    lines = list(csv.reader(io.StringIO(download(page, "task2-metrics", "CSV"))))
    assert [line[1] for line in lines[4:]] == [f"'{name}" for name in formulas]
    assert {"C-index", "0.9", "0.86", "0.92"} <= set(lines[1])
    page.locator("#task1 tbody button.choice").nth(2).click()
    page.wait_for_function(DRAWN)
    page.reload()
    page.wait_for_function(DRAWN)
    assert page.locator("tr.chosen").first.get_attribute("data-team") == hostile[2]
    assert page.evaluate("window.hacked") is None
    assert page.title() == "</script><i>x</i>"
    page.close()


def test_tables_are_there_without_scripts(browser: Browser, small_report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(small_report)
    assert page.locator("#task1 tbody tr").count() >= 8
    expect(page.locator("#by-case > .scroll tbody tr")).to_have_count(9)
    context.close()


def test_the_board_is_sorted_by_its_headers_and_saved(page: Page, small_report: str) -> None:
    """GTVp mean DSC falls with the rank: rising order is from the last team to the first, and the best come first.

    In the CSV the first team's value, 0.9 from 0.86 to 0.92, has three columns. A chart is saved without styles of the
    page.
    """
    open_page(page, small_report, ".fold")
    teams = name_teams(8)
    head = page.locator("#task1 thead th").filter(has_text="GTVp mean DSC").first
    assert read_teams(page)[0] == FIRST
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert read_teams(page) == teams
    head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert read_teams(page) == teams[::-1]
    rank = page.locator("#task1 thead th").filter(has_text="Rank").first
    rank.get_by_role("button").click()
    expect(rank).to_have_attribute("aria-sort", "ascending")
    assert read_teams(page) == teams
    with page.expect_download() as waiting:
        page.locator("#task1 > .tools").get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == "task1-leaderboard.csv"
    lines = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text("utf-8"))))
    assert [len(line) for line in lines] == [len(lines[0])] * 9
    assert lines[0][:5] == ["Rank", "Team", "GTVp mean DSC", "GTVp mean DSC, 95% interval from", "to"]
    assert lines[1][:5] == ["1", FIRST, "0.900", "0.860", "0.920"]
    text = download(page, "task1-metrics", "SVG")
    assert ET.fromstring(text).find(".//{http://www.w3.org/2000/svg}circle") is not None
    assert "var(" not in text


def test_the_team_stays_and_more_columns_are_announced(page: Page, small_report: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    open_page(page, small_report)
    more = page.locator("#task1 > .tools .more")
    expect(more).to_be_visible()
    left = "document.querySelector('#task1 tbody th').getBoundingClientRect().left"
    page.evaluate("document.querySelector('#task1 .scroll').scrollLeft = 100000")
    expect(more).to_be_hidden()
    edge = page.evaluate("document.querySelector('#task1 .scroll').getBoundingClientRect().left")
    assert page.evaluate(left) == pytest.approx(edge, abs=1)


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


def test_the_board_and_each_figure_fit_on_a_page_of_paper(page: Page, small_report: str) -> None:
    """A4 is 182 mm or 688 CSS pixels wide and 269 mm or 1,017 pixels high between its margins.

    The board's eight columns fit, and a figure with its heading; of a longer figure the first panels fit.
    """
    page.set_viewport_size({"width": 688, "height": 1017})
    page.emulate_media(media="print")
    open_page(page, small_report)
    right = page.locator("#task1 table.board thead th").evaluate_all(
        "all => all.map((node) => node.getBoundingClientRect().right)"
    )
    assert len(right) == 8
    assert max(right) <= 688
    expect(page.locator("#task1 table.board thead th").nth(3)).to_have_css("overflow-wrap", "normal")  # whole words
    expect(page.locator(".scroll", has=page.locator("> table.board")).first).to_have_css("break-inside", "avoid")
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
