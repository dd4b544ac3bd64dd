"""Figures of a page: an Analysis with its data, drawn in the browser, or as a table if it has no chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final, Literal

from reporting.analyses.analysis import Analysis
from reporting.page.html import Cell, Row, choice, json_element, notes, table

# Columns whose values a reader can select.
KEYS: Final = ("team", "centre", "case")
# Charts that do not need the page's width and stand side by side.
_NARROW: Final = frozenset({"points", "bars", "lines"})
# Bars with more lines take the whole width.
_MOST_LINES: Final = 16
_FIGURES: Final = 4


def figure(analysis: Analysis, anchor: str, *, fold: Literal["", "open", "closed"] = "") -> str:
    """An analysis with heading, caption, chart and notes; empty without rows, as is a matrix in which nothing varies.

    `anchor` is its id, unique on the page. With a `fold`, open or closed, it folds away behind its heading; a chart
    of a single bar or point is then left out, otherwise it is a table.
    """
    kind = str(analysis.chart.get("kind", ""))
    if kind == "matrix":
        analysis = _with_varying_panels(analysis)
    if not analysis.rows or (fold and kind and len(analysis.rows) == 1):
        return ""
    about = analysis.caption + (f" Source: {analysis.source}." if analysis.source else "")
    head, caption = f"<h3>{escape(analysis.title)}</h3>", f'<p class="about">{escape(about)}</p>'
    if not kind or len(analysis.rows) == 1:  # a chart of one bar or point says less than its number
        rows = [_row(row, analysis.columns) for row in analysis.rows]
        content, css = table(analysis.title, list(analysis.columns.values()), rows), "listing"
    else:
        narrow = not fold and kind in _NARROW and "facet" not in analysis.chart and _lines(analysis) <= _MOST_LINES
        content, css = json_element(compact(analysis)), f"chart {kind}{' narrow' if narrow else ''}"
    content = f"{caption}{content}{notes(analysis.notes, 'remarks')}"
    is_open = " open" if fold == "open" else ""
    html = f"<details{is_open}><summary>{head}</summary>{content}</details>" if fold else f"{head}{content}"
    return f'<section class="{css}" id="{escape(anchor)}">{html}</section>'


def _with_varying_panels(analysis: Analysis) -> Analysis:
    """A matrix without the panels in which all cells are equal."""
    cells: dict[Any, set[Any]] = {}
    facet, shown = analysis.chart.get("facet", ""), [analysis.chart.get(key, "") for key in ("value", "text")]
    for row in analysis.rows:
        cells.setdefault(row.get(facet), set()).add(tuple(map(row.get, shown)))
    return replace(analysis, rows=[row for row in analysis.rows if len(cells[row.get(facet)]) > 1])


def _lines(analysis: Analysis) -> int:
    """The number of lines of a chart of bars; 0 for other kinds."""
    return len({row.get(analysis.chart["y"]) for row in analysis.rows}) if analysis.chart["kind"] == "bars" else 0


def compact(analysis: Analysis) -> dict[str, Any]:
    """The chart and its data by column: numbers with four significant digits, texts by their place in a dictionary."""
    columns = {
        key: {"title": title, **column([row.get(key) for row in analysis.rows])}
        for key, title in analysis.columns.items()
    }
    return {"name": analysis.name, "chart": dict(analysis.chart), "columns": columns}


def column(values: Sequence[Any]) -> dict[str, Any]:
    """One column as JSON: `values`, numbers or lists of them, or `texts` and the `codes` that point into them."""
    if not any(isinstance(value, str | bool) for value in values):
        return {"values": [list(map(_number, one)) if isinstance(one, list) else _number(one) for one in values]}
    texts = {text: code for code, text in enumerate(dict.fromkeys(_text(v) for v in values if v is not None))}
    return {"texts": list(texts), "codes": [None if value is None else texts[_text(value)] for value in values]}


def _number(value: Any) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    short = float(f"{number:z.{_FIGURES}g}") if abs(number) < 10**_FIGURES else round(number)
    return int(short) if short == int(short) else short


def _text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _row(row: Mapping[str, Any], columns: Mapping[str, str]) -> Row:
    keys = {key: str(row[key]) for key in KEYS if key in columns and row.get(key) is not None}
    cells = [Cell(choice(key, keys[key])) if key in keys else _plain(row.get(key)) for key in columns]
    return Row(cells, keys)


def _plain(value: Any) -> Cell:
    if value is None:
        return Cell("-")
    if isinstance(value, bool | str):
        return Cell(escape(_text(value)))
    if isinstance(value, list):
        return Cell(", ".join(_shown(number) for one in value if (number := _number(one)) is not None) or "-")
    number = _number(value)
    return Cell("-") if number is None else Cell(_shown(number), number)


def _shown(number: float) -> str:
    """A number with as many digits as a reader needs, as in the page's scripts."""
    if isinstance(number, int):
        return str(number)
    if abs(number) < 0.001:
        return f"{number:z.1e}"
    return f"{number:z.{3 if abs(number) < 10 else 1 if abs(number) < 1000 else 0}f}"
