"""Figures as HTML: data by column, escaped, and tables of analyses without a chart."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

from reporting.analyses.analysis import Analysis
from reporting.page.charts import build_chart_data, encode_column, render_figure

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


def test_an_analysis_of_one_row_or_without_a_chart_is_a_table():
    assert "<script" not in render_figure(make_analysis(rows=[{"team": "a"}]), "x")
    html = render_figure(make_analysis(chart={}), "x")
    assert "<script" not in html
    assert html.count("<tr") == 4
    assert '<tr data-team="a">' in html
    assert '<td data-sort="0.1235">0.123</td>' in html
    assert re.findall(r"<th scope=\"col\">(.*?)</th>", html) == list(COLUMNS.values())
    assert render_figure(make_analysis(rows=()), "x") == ""


def test_a_figure_with_content_is_folded_behind_its_title():
    """Charts of one bar repeat the board; a table of one line does not."""
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
