"""The page as a whole and its figures: parts, escaping, bundles with their licences, colours, scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import reporting.page
from reporting.analyses.analysis import Analysis
from reporting.page.charts import build_chart_data, encode_column, render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import NEUTRAL, TEAM_COLOURS, Cell, Row, assign_colours, render_table


def compute_luminance(colour: str) -> float:
    """Return the relative luminance of a hexadecimal colour (WCAG 2)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compute_contrast(first: str, second: str) -> float:
    light, dark = sorted((compute_luminance(first), compute_luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_of_teams_stand_out_from_the_page_in_both_schemes() -> None:
    """WCAG 2.1 asks for 3 : 1 for graphical objects; black on white has 21 : 1."""
    assert compute_contrast("#000000", "#ffffff") == 21
    style = render_page(HtmlPage("t", "l", (), "f"))
    backs = re.findall(r"--back: (#\w+)", style)
    assert len(backs) == 2
    assert all(compute_contrast(colour, back) >= 3 for colour in (*TEAM_COLOURS, NEUTRAL) for back in backs)
    assert len(set(TEAM_COLOURS)) == 10
    colours = assign_colours([f"t{place}" for place in range(12)])
    assert list(colours.values()) == [*TEAM_COLOURS, NEUTRAL, NEUTRAL]
    for words in ("Observable, Inc.", "Mike Bostock", "Permission to use, copy, modify"):  # licences of the bundles
        assert words in style


def test_texts_are_escaped_and_sections_linked() -> None:
    html = render_page(
        HtmlPage("<t>", "<l>", [Section("a", "<h>", "<p>x</p>")], "<f>", "<n>", {"</script>": "#1f86d6"})
    )
    for text in ("<t>", "<l>", "<h>", "<f>", "<n>"):
        assert text not in html
    assert '<a href="#a">&lt;h&gt;</a>' in html
    assert '<section class="part" id="a" aria-labelledby="a-heading">' in html
    colours = json.loads(re.search(r"id=\"page-colours\">(.*?)</script>", html).group(1))
    assert colours["teams"] == {"</script>": "#1f86d6"}


def test_the_policy_allows_only_the_scripts_of_the_page() -> None:
    """Browsers hash the text between the tags of each script with SHA-256."""
    html = render_page(HtmlPage("t", "l", (), "f", scripts=("report/cases.js",)))
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html).group(1)
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", html, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert len(hashes) == 3
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == [*(f"'sha256-{digest}'" for digest in hashes), "'strict-dynamic'"]
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_a_table_has_a_caption_and_headers() -> None:
    html = render_table("About", ["Team", "n"], [Row([Cell("<b>a</b>"), 3], {"team": 'x"y'}), Row(["b", None])])
    assert "<caption>About</caption>" in html
    assert '<tr data-team="x&quot;y"><th scope="row"><b>a</b></th><td data-sort="3">3</td></tr>' in html
    assert '<tr><th scope="row">b</th><td>-</td></tr>' in html


VENDOR = Path(reporting.page.__file__).parent / "vendor"
BUNDLES = json.loads((VENDOR / "vendor.json").read_text())["bundles"]


@pytest.mark.parametrize("bundle", BUNDLES, ids=[bundle["package"] for bundle in BUNDLES])
def test_a_bundle_is_the_published_one_and_has_its_licence(bundle: dict[str, str]) -> None:
    assert hashlib.sha256((VENDOR / bundle["file"]).read_bytes()).hexdigest() == bundle["sha256"]
    assert "Copyright" in (VENDOR / bundle["licence_file"]).read_text()


def test_no_other_bundle_is_there() -> None:
    listed = {bundle[key] for bundle in BUNDLES for key in ("file", "licence_file")}
    assert {path.name for path in VENDOR.iterdir()} == listed | {"vendor.json"}


REPORTING = Path(__file__).resolve().parents[3] / "reporting"


def test_scripts_agree_with_their_types() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc found, expected TypeScript (npm install --global typescript)")
    done = subprocess.run([tsc, "-p", REPORTING / "jsconfig.json"], capture_output=True, text=True, check=False)
    assert done.stdout == ""


ROWS = (
    {"team": "a", "value": 0.123456, "n": 3, "good": True},
    {"team": "b", "value": None, "n": 12345, "good": None},
    {"team": "a", "value": 123456.7, "n": 0, "good": False},
)
COLUMNS = {"team": "Team", "value": "Value", "n": "Cases", "good": "Good"}


def make_analysis(**changes):
    return replace(Analysis("one", "T", "C", COLUMNS, ROWS, {"kind": "intervals"}), **changes)


def test_numbers_have_four_digits_and_texts_a_dictionary():
    """0.123456 to four significant digits, 123456.7 to a whole number; counts stay; yes and no are texts."""
    assert encode_column([math.inf, math.nan, -0.0]) == {"values": [None, None, 0]}
    assert build_chart_data(make_analysis()) == {
        "name": "one",
        "chart": {"kind": "intervals"},
        "columns": {
            "team": {"title": "Team", "texts": ["a", "b"], "codes": [0, 1, 0]},
            "value": {"title": "Value", "values": [0.1235, None, 123457]},
            "n": {"title": "Cases", "values": [3, 12345, 0]},
            "good": {"title": "Good", "texts": ["yes", "no"], "codes": [0, None, 1]},
        },
    }


def test_no_text_ends_the_script_that_holds_the_data():
    hostile = "</script><!--<script>&amp;"
    html = render_figure(make_analysis(rows=[{"team": hostile}] * 2, title=hostile, notes=(hostile,)), "x")
    data = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    assert len(data) == 1
    assert "<" not in data[0]
    assert json.loads(data[0])["columns"]["team"]["texts"] == [hostile]
    assert html.count("<script") == 1


def test_an_analysis_of_one_row_or_without_a_chart_is_a_table_and_others_are_folded():
    """Behind the title of a figure with content is a fold. Charts of one bar repeat the board; a table of a line does not."""
    assert "<script" not in render_figure(make_analysis(rows=[{"team": "a"}]), "x")
    html = render_figure(make_analysis(chart={}), "x")
    assert "<script" not in html
    assert html.count("<tr") == 4
    assert '<tr data-team="a">' in html
    assert '<td data-sort="0.1235">0.123</td>' in html
    assert re.findall(r"<th scope=\"col\">(.*?)</th>", html) == list(COLUMNS.values())
    assert render_figure(make_analysis(rows=()), "x") == ""
    html = render_figure(make_analysis(), "x", fold="open")
    assert html.startswith('<section class="chart intervals" id="x"><details open><summary><h3>T</h3></summary>')
    assert "<details><summary><h3>T</h3></summary>" in render_figure(make_analysis(), "x", fold="closed")
    assert render_figure(make_analysis(rows=[{"team": "a"}]), "x", fold="closed") == ""
    assert "<table" in render_figure(make_analysis(rows=[{"team": "a"}], chart={}), "x", fold="closed")


def test_constant_panels_of_a_matrix_are_left_out():
    """One of two metrics separates no teams; a matrix of only that metric is no figure."""
    chart = {"kind": "matrix", "x": "than", "y": "team", "value": "p", "facet": "metric"}
    names = ("metric", "team", "than", "p")
    lines = [("m", "a", "b", 0.01), ("m", "b", "a", 1.0), ("n", "a", "b", 1.0), ("n", "b", "a", 1.0)]
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    columns = {name: name for name in names}
    html = render_figure(make_analysis(chart=chart, columns=columns, rows=rows), "x")
    assert '"metric":{"title":"metric","texts":["m"],' in html
    assert render_figure(make_analysis(chart=chart, columns=columns, rows=rows[2:]), "x") == ""
