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
from reporting.page.charts import render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import assign_colours
from reporting.report.page import build_page
from tests.browser.conftest import find_accessibility_problems
from tests.browser.report_page import DRAWN, FIRST, TEAMS, WIDTHS, find_chart, open_page, read_teams, select_figures
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


def test_an_address_opens_the_folds_around_its_figure(page: Page, report: str) -> None:
    open_page(page, f"{report}#task1-gtvp-dsc-by-case")
    expect(page.locator("#task1-gtvp-dsc-by-case .panels svg").first).to_be_in_viewport()


def test_one_panel_is_picked_of_many(page: Page, small_report: str) -> None:
    """Task 1 ranks two metrics: the map of one is drawn, 8 x 7 cells."""
    open_page(page, small_report)
    section = page.locator("#task1-significance")
    options = section.locator(".pick select").locator("option").all_inner_texts()
    assert options == ["GTVp mean DSC", "GTVn aggregated DSC"]
    section.locator(".pick select").select_option("GTVn aggregated DSC")
    expect(section.locator(".panel-title")).to_have_text("GTVn aggregated DSC")
    expect(section.locator('[aria-label="cell"] [data-row]')).to_have_count(56)


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


def test_a_selected_team_beyond_ten_has_a_colour(page: Page, report: str) -> None:
    open_page(page, report)
    swatches = page.locator("#task1 tbody .swatch")
    colour = "node => getComputedStyle(node).backgroundColor"
    grey = swatches.nth(20).evaluate(colour)
    assert swatches.nth(30).evaluate(colour) == grey
    for place in (20, 30):
        page.locator("#task1 tbody button.choice").nth(place).click()
    own = {swatches.nth(place).evaluate(colour) for place in (20, 30, 31)}
    assert len(own) == 3
    assert swatches.nth(31).evaluate(colour) == grey


def test_a_long_table_is_searched(page: Page, report: str) -> None:
    """Cases CHUM-003, CHUM-006 ... CHUM-060 belong to CHUM: 20 of 60."""
    open_page(page, report, ".fold")
    search = page.locator("#by-case").get_by_label("Search")
    search.fill("chum")
    expect(page.locator("#by-case > .scroll tbody tr:visible")).to_have_count(20)
    expect(page.locator("#by-case .search [role=status]")).to_have_text("20 of 60 rows")


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


def test_the_selection_is_in_the_address_and_comes_from_it(page: Page, report: str) -> None:
    open_page(page, f"{report}#task2&team=Team%2002%20of%20the%20University%20Hospital&centre=MDA")
    buttons = page.locator("#selection button").all_inner_texts()
    assert buttons == [f"team {TEAMS[1]} \u00d7", "centre MDA \u00d7", "Clear"]
    page.locator("#by-case > summary").click()
    expect(page.locator("#by-case > .scroll tbody tr:visible")).to_have_count(20)
    page.get_by_role("button", name=f"Remove team {TEAMS[1]}").click()
    expect(page).to_have_url(f"{report}#task2&centre=MDA")
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


def test_three_contours_are_chosen_below_the_reference(page: Page, report: str) -> None:
    """At first the best team and the selected one are shown, not team 7; the reference is drawn last, hence on top."""
    open_page(page, f"{report}#team=Team%2020%20of%20the%20University%20Hospital&case=CHUM-003", ".fold")
    card = page.locator('[id="case-CHUM-003"]')
    selects = card.locator(".contours select")
    expect(selects).to_have_count(3)
    assert [selects.nth(place).input_value() for place in range(3)] == [FIRST, TEAMS[19], ""]
    card.locator("img").scroll_into_view_if_needed()
    expect(card.locator(".picture path")).to_have_count(6)
    lines = "all => all.map((node) => node.getAttribute('d'))"
    expected = ["M0,1L9,9", "", "M19,1L9,9", "", "M0,0L30,10", "M1,1L2,2"]
    assert card.locator(".picture path").evaluate_all(lines) == expected
    strokes = card.locator(".picture path").evaluate_all("all => all.map((node) => node.getAttribute('stroke'))")
    assert len(set(strokes)) == 3
    selects.nth(0).select_option("")
    selects.nth(2).select_option(TEAMS[4])
    assert card.locator(".picture path").evaluate_all(lines)[::2] == ["M19,1L9,9", "M4,1L9,9", "M0,0L30,10"]


def test_a_link_to_a_case_opens_it(page: Page, report: str) -> None:
    open_page(page, report, ".fold")
    page.locator("#by-case > .scroll tbody tr", has_text="MDA-002").get_by_role("link").click()
    expect(page.locator('[id="case-MDA-002"]')).to_be_visible()
    expect(page.locator('[id="case-MDA-002"]')).to_be_in_viewport()


def test_summaries_of_cases_are_of_the_selected_teams(page: Page, report: str) -> None:
    open_page(page, report, ".fold")
    row = page.locator("#by-case > .scroll tbody tr").first
    place = page.locator("#by-case thead th").all_inner_texts().index("GTVp DSC, median of teams")
    before = row.locator("td, th").nth(place).inner_text()
    page.locator("#task1 tbody button.choice", has_text="Team 40").first.click()
    after = float(row.locator("td, th").nth(place).inner_text())
    answer = page.evaluate("JSON.parse(document.getElementById('page-cases').textContent).columns[0].values[39]")
    assert after == pytest.approx(answer, abs=5e-4)
    assert str(after) != before


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


def test_a_chart_is_saved_without_styles_of_the_page(page: Page, report: str) -> None:
    open_page(page, report, ".fold")
    text = download(page, "task1-metrics", "SVG")
    assert ET.fromstring(text).find(".//{http://www.w3.org/2000/svg}circle") is not None
    assert "var(" not in text


def test_the_data_of_a_chart_are_saved_as_csv(page: Page, report: str) -> None:
    """Two metrics of 40 teams give 80 lines: the first is the first team's first metric, 0.9 from 0.86 to 0.92."""
    open_page(page, report, ".fold")
    lines = list(csv.reader(io.StringIO(download(page, "task1-metrics", "CSV"))))
    assert len(lines) == 81
    assert {FIRST, "GTVp mean DSC", "0.9", "0.86", "0.92"} <= set(lines[1])


def test_no_name_is_a_formula(browser: Browser, tmp_path: Path) -> None:
    teams = ["=1+1", "-x", "@y", "plain"]
    (tmp_path / "r.html").write_text(build_page(build_content(teams, name_cases(12))), encoding="utf-8")
    page = open_page(browser.new_page(), (tmp_path / "r.html").as_uri(), ".fold")
    lines = list(csv.reader(io.StringIO(download(page, "task2-metrics", "CSV"))))
    assert [line[1] for line in lines[1:]] == ["'=1+1", "'-x", "'@y", "plain"]
    page.close()


def test_the_figures_of_a_chart_are_a_table(page: Page, report: str) -> None:
    open_page(page, report, ".fold")
    section = page.locator("#task1-metrics")
    section.locator(".tools summary").press("Enter")
    expect(section.locator("tbody tr")).to_have_count(80)  # filled after the toggle event
    assert section.locator("caption").inner_text() == section.locator("h3").inner_text()
    assert section.locator("thead th[scope=col]").count() == section.locator("tbody tr").first.locator("th, td").count()


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
def test_the_page_of_40_teams_does_not_scroll_sideways(page: Page, report: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_an_open_page_does_not_scroll_sideways(page: Page, small_report: str, width: int) -> None:
    """Open sections, figures, cases, and the table below each chart; tables scroll by themselves."""
    page.set_viewport_size({"width": width, "height": 900})
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


def test_a_pair_that_cannot_be_tested_is_marked(page: Page, tmp_path: Path) -> None:
    """Of two ordered pairs of two teams one has a p; without such a pair the legend does not name the sign."""
    columns = {"team": "Team", "than": "better than", "p_holm": "p after Holm"}
    chart = {"kind": "matrix", "x": "than", "y": "team", "value": "p_holm", "scale": "significance"}
    rows = [{"team": "a", "than": "b", "p_holm": 0.004}, {"team": "b", "than": "a", "p_holm": None}]
    for second, signs in ((None, ["\u00d7"]), (0.9, [])):
        rows[1]["p_holm"] = second
        open_page(
            page, write_figure_page(tmp_path, Analysis("significance", "Tests", "", columns, rows, chart), ["a", "b"])
        )
        assert page.locator("#figure .panels text", has_text="\u00d7").all_text_contents() == signs
        expect(page.locator("#figure .legend li", has_text="not tested: too few patients")).to_have_count(len(signs))


def test_charts_fit_on_paper_when_printed(page: Page, report: str) -> None:
    """A4 less two margins of 14 mm is 182 mm, 688 CSS pixels wide and 1,017 high."""
    open_page(page, report, ".fold", ".figures details")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    sizes = page.locator(".panels").evaluate_all(
        "all => all.map((node) => [node.closest('section').id, node.lastElementChild.getBoundingClientRect().right - node.getBoundingClientRect().left, node.scrollHeight])"
    )
    assert len(sizes) > page.locator("section.chart").count()
    assert [size for size in sizes if size[1] > 688 or size[2] > 1017] == []


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    """Names that end scripts, open comments and hold markup are shown and run nothing."""
    hostile = ['<img src=x onerror="window.hacked=1">', "<!--<script>", "a&b=c 'd' \"e\""]
    (tmp_path / "r.html").write_text(
        build_page(build_content(hostile, name_cases(12), title="</script><i>x</i>")), encoding="utf-8"
    )
    page = open_page(browser.new_page(), (tmp_path / "r.html").as_uri())
    assert sorted(read_teams(page)) == sorted(hostile)
    page.locator("#task1 tbody button.choice").nth(2).click()
    page.wait_for_function(DRAWN)
    page.reload()
    page.wait_for_function(DRAWN)
    assert page.locator("tr.chosen").first.get_attribute("data-team") == hostile[2]
    assert page.evaluate("window.hacked") is None
    assert page.title() == "</script><i>x</i>"
    page.close()


def test_tables_are_there_without_scripts(browser: Browser, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("#task1 tbody tr").count() >= 40
    expect(page.locator("#by-case > .scroll tbody tr")).to_have_count(60)
    context.close()
