"""Render analyses as figures of a page: data that the browser draws, or a table if an analysis has no chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final, Literal

from reporting.analyses.analysis import Analysis
from reporting.page.html import Cell, Row, render_choice, render_json, render_notes, render_table

# Columns whose values a reader can select.
KEYS: Final = ("team", "centre", "case")
# Charts that do not need the page's width: two of them are placed in one line.
_NARROW_KINDS: Final = frozenset({"points", "bars", "lines"})
# A chart with more bars takes the whole width.
_MAX_NARROW_BARS: Final = 16
_SIGNIFICANT_DIGITS: Final = 4


def render_figure(analysis: Analysis, anchor: str, *, fold: Literal["", "open", "closed"] = "") -> str:
    """Render an analysis with its heading, caption, chart and notes.

    A chart of a single bar or point says no more than its number: it is rendered as a table, and omitted if the figure
    can be collapsed. An analysis without rows is rendered as an empty string, and so is a matrix whose cells are all
    equal.

    Args:
        analysis: The analysis.
        anchor: The id of the figure, which is unique on the page.
        fold: State of a collapsible figure when the page opens; empty for a figure that cannot be collapsed.
    """
    kind = str(analysis.chart.get("kind", ""))
    if kind == "matrix":
        analysis = _remove_constant_panels(analysis)
    has_one_row = len(analysis.rows) == 1
    if not analysis.rows or (fold and kind and has_one_row):
        return ""
    if not kind or has_one_row:
        rows = [_make_row(row, analysis.columns) for row in analysis.rows]
        css_class, content = "listing", render_table(analysis.title, list(analysis.columns.values()), rows)
    else:
        is_narrow = not fold and _fits_half_width(analysis)
        css_class, content = f"chart {kind}{' narrow' if is_narrow else ''}", render_json(build_chart_data(analysis))
    heading = f"<h3>{escape(analysis.title)}</h3>"
    about = analysis.caption + (f" Source: {analysis.source}." if analysis.source else "")
    body = f'<p class="about">{escape(about)}</p>{content}{render_notes(analysis.notes, "remarks")}'
    if fold:
        is_open = " open" if fold == "open" else ""
        html = f"<details{is_open}><summary>{heading}</summary>{body}</details>"
    else:
        html = f"{heading}{body}"
    return f'<section class="{css_class}" id="{escape(anchor)}">{html}</section>'


def _remove_constant_panels(analysis: Analysis) -> Analysis:
    """Return a matrix without the panels whose cells are all equal."""
    facet = analysis.chart.get("facet", "")
    shown_keys = [analysis.chart.get(role, "") for role in ("value", "text")]
    cells: dict[Any, set[Any]] = {}
    for row in analysis.rows:
        cells.setdefault(row.get(facet), set()).add(tuple(row.get(key) for key in shown_keys))
    return replace(analysis, rows=[row for row in analysis.rows if len(cells[row.get(facet)]) > 1])


def _fits_half_width(analysis: Analysis) -> bool:
    """Return whether the chart needs no more than half of the page's width."""
    chart = analysis.chart
    if chart["kind"] not in _NARROW_KINDS or "facet" in chart:
        return False
    return chart["kind"] != "bars" or len({row.get(chart["y"]) for row in analysis.rows}) <= _MAX_NARROW_BARS


def build_chart_data(analysis: Analysis) -> dict[str, Any]:
    """Return the declaration of a chart and its data by column, as the page's scripts read them."""
    columns = {
        key: {"title": title, **encode_column([row.get(key) for row in analysis.rows])}
        for key, title in analysis.columns.items()
    }
    return {"name": analysis.name, "chart": dict(analysis.chart), "columns": columns}


def encode_column(values: Sequence[Any]) -> dict[str, Any]:
    """Encode a column for JSON.

    Returns:
        `values` for a column of numbers or of lists of numbers, with four significant digits. For a column of strings
        or booleans, `texts` contains the distinct strings, and `codes` the index of each row's string in `texts`.
    """
    if not any(isinstance(value, str | bool) for value in values):
        return {"values": [list(map(_round, value)) if isinstance(value, list) else _round(value) for value in values]}
    texts = list(dict.fromkeys(_format_text(value) for value in values if value is not None))
    codes = {text: code for code, text in enumerate(texts)}
    return {"texts": texts, "codes": [None if value is None else codes[_format_text(value)] for value in values]}


def _round(value: Any) -> float | int | None:
    """Round to four significant digits, or to a whole number from 10,000 on; return None for None, NaN and inf."""
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    if abs(number) >= 10**_SIGNIFICANT_DIGITS:
        return round(number)
    rounded = float(f"{number:z.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _format_text(value: str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _make_row(row: Mapping[str, Any], columns: Mapping[str, str]) -> Row:
    keys = {key: str(row[key]) for key in KEYS if key in columns and row.get(key) is not None}
    cells = [Cell(render_choice(key, keys[key])) if key in keys else _make_cell(row.get(key)) for key in columns]
    return Row(cells, keys)


def _make_cell(value: Any) -> Cell:
    if isinstance(value, bool | str):
        return Cell(escape(_format_text(value)))
    if isinstance(value, list):
        numbers = [number for number in map(_round, value) if number is not None]
        return Cell(", ".join(map(_format_number, numbers)) or "-")
    number = _round(value)
    return Cell("-") if number is None else Cell(_format_number(number), number)


def _format_number(number: float) -> str:
    """Format a number with as many digits as a reader needs, as the page's scripts do."""
    if isinstance(number, int):
        return str(number)
    if abs(number) < 0.001:
        return f"{number:z.1e}"
    decimals = 3 if abs(number) < 10 else 1 if abs(number) < 1000 else 0
    return f"{number:z.{decimals}f}"
