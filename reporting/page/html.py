"""Render the elements of a page as HTML: paragraphs, lists, tables, names that a reader can select, and JSON data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, TypeAlias

from evaluation.statistics.bootstrap import Estimate

# Every colour has a contrast of at least 3 : 1 to the page in its light and its dark scheme, and is visible on a CT.
TEAM_COLOURS: Final = (
    "#1f86d6",
    "#d6409f",
    "#8b6cf0",
    "#d9480f",
    "#0f9d82",
    "#b07a10",
    "#0e93b0",
    "#7d8a12",
    "#a86a4b",
    "#c2559d",
)
NEUTRAL: Final = "#7c8794"
REFERENCE_COLOUR: Final = "#3dff6e"
CT_WINDOW_HU: Final = (-160.0, 240.0)
PET_SHOWN_SUV: Final = (2.0, 14.0)
# The three characters that can end a script element, open a comment in it or start an entity.
_SCRIPT_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}
_MAX_UNFOLDED_NOTES: Final = 6
# A table with more columns is set in a smaller font.
_MAX_COLUMNS: Final = 9


def assign_colours(teams: Sequence[str]) -> dict[str, str]:
    """Assign a colour to each team: the first ten teams have their own colour, all others are grey."""
    colours = [*TEAM_COLOURS, *[NEUTRAL] * len(teams)]
    return dict(zip(teams, colours, strict=False))


def render_paragraph(text: str, css_class: str = "") -> str:
    """Render plain text as a paragraph, or return an empty string if there is no text."""
    return f"<p{_format_class(css_class)}>{escape(text)}</p>" if text else ""


def render_list(lines: Sequence[str], css_class: str = "") -> str:
    """Render plain texts as a list, or return an empty string if there are no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul{_format_class(css_class)}>{items}</ul>" if items else ""


def render_notes(lines: Sequence[str], css_class: str = "warnings") -> str:
    """Render warnings or remarks as a list, which is collapsed if it has more than six lines."""
    items = render_list(lines, css_class)
    if len(lines) <= _MAX_UNFOLDED_NOTES:
        return items
    return f"<details><summary>{len(lines)} notes</summary>{items}</details>"


def render_swatch(colour: str) -> str:
    """Render a small square of a colour, which is shown before a name."""
    return f'<span class="swatch" style="background:{escape(colour)}"></span>'


def render_legend(entries: Iterable[tuple[str, str]]) -> str:
    """Render pairs of a colour and its meaning as a legend."""
    items = "".join(f"<li>{render_swatch(colour)}{escape(text)}</li>" for colour, text in entries)
    return f'<ul class="legend">{items}</ul>'


def render_choice(key: str, value: str) -> str:
    """Render a name that a reader selects by a click. Without scripts it is plain text.

    Args:
        key: What is selected: `team`, `centre` or `case`.
        value: The name.
    """
    return f'<span class="choice" data-key="{key}" data-value="{escape(value)}">{escape(value)}</span>'


def render_json(value: Any, element_id: str = "") -> str:
    """Render data as a script element, which no text within the data can end."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
    attribute = f' id="{element_id}"' if element_id else ""
    return f'<script type="application/json"{attribute}>{text}</script>'


def _format_class(name: str) -> str:
    return f' class="{name}"' if name else ""


@dataclass(frozen=True)
class Column:
    """The header of a table's column.

    Attributes:
        title: The text of the header.
        highest_first: Whether the first click on the header sorts in descending order.
    """

    title: str
    highest_first: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        html: The content.
        sort: The number by which the row is sorted. None sorts by the cell's text; an empty cell comes last.
        span: The number of columns that the cell takes.
    """

    html: str
    sort: float | None = None
    span: int = 1


Content: TypeAlias = Cell | str | float | Estimate | None


@dataclass(frozen=True)
class Row:
    """A row of a table; a selection on the page is compared with its `keys` (team, centre, case)."""

    cells: Sequence[Content]
    keys: Mapping[str, str] = field(default_factory=dict)
    css_class: str = ""


def render_table(
    caption: str, columns: Sequence[Column | str], rows: Sequence[Row], *, header_column: int = 0, css_class: str = ""
) -> str:
    """Render a table that a reader can sort.

    Strings and whole numbers are shown unchanged, other numbers with three decimals, estimates with their interval and
    None as a dash.

    Args:
        caption: The caption above the table.
        columns: The headers; a string is the header of a column that the first click sorts in ascending order.
        rows: The rows.
        header_column: The index of the column that names the rows.
        css_class: Further classes of the table.
    """
    headers = "".join(_render_header(column) for column in columns)
    classes = " ".join(filter(None, [css_class, "wide" if len(columns) > _MAX_COLUMNS else ""]))
    body = "\n".join(_render_row(row, header_column) for row in rows)
    return (
        f'<div class="scroll"><table{_format_class(classes)}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{headers}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def make_value_cell(value: float | None, low: float | None, high: float | None, *, best: bool = False) -> Cell:
    """Make the cell of a value with its 95% interval below it; `best` highlights the value."""
    if value is None:
        return Cell("-")
    interval = "" if low is None or high is None else f' <span class="interval">{low:z.3f} to {high:z.3f}</span>'
    return Cell(f'<span class="value{" best" if best else ""}">{value:z.3f}</span>{interval}', value)


def _render_header(column: Column | str) -> str:
    header = Column(column) if isinstance(column, str) else column
    first_order = ' data-first="descending"' if header.highest_first else ""
    return f'<th scope="col"{first_order}>{escape(header.title)}</th>'


def _render_row(row: Row, header_column: int) -> str:
    keys = "".join(f' data-{key}="{escape(value)}"' for key, value in row.keys.items())
    cells = [
        _render_cell(_make_cell(content), is_header=index == header_column) for index, content in enumerate(row.cells)
    ]
    return f"<tr{keys}{_format_class(row.css_class)}>{''.join(cells)}</tr>"


def _make_cell(content: Content) -> Cell:
    if isinstance(content, Cell):
        return content
    if isinstance(content, Estimate):
        return make_value_cell(content.value, content.ci95_low, content.ci95_high)
    if isinstance(content, str):
        return Cell(escape(content))
    if content is None:
        return Cell("-")
    return Cell(str(content) if isinstance(content, int) else f"{content:z.3f}", float(content))


def _render_cell(cell: Cell, *, is_header: bool) -> str:
    # JavaScript reads "Infinity" as a number, but not "inf".
    sort = "" if cell.sort is None else f' data-sort="{cell.sort:z.6g}"'.replace("inf", "Infinity")
    span = "" if cell.span == 1 else f' colspan="{cell.span}"'
    return f'<th scope="row"{sort}{span}>{cell.html}</th>' if is_header else f"<td{sort}{span}>{cell.html}</td>"
