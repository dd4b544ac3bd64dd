"""Building blocks of a page: colours, paragraphs, lists, marks of teams, tables, and JSON within HTML."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from evaluation.statistics.bootstrap import Estimate

# Each has a contrast of at least 3 : 1 to the page in its light and its dark scheme, and is bright enough on a CT.
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


def colours_of(teams: Sequence[str]) -> dict[str, str]:
    """A colour for each team: its own for the leading ten, grey for the others."""
    colours = [*TEAM_COLOURS, *[NEUTRAL] * len(teams)]
    return dict(zip(teams, colours, strict=False))


# The three characters that can end a script element, open a comment in it or start an entity.
_SCRIPT_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}
_FEW_LINES: Final = 6


def paragraph(text: str, css_class: str = "") -> str:
    """A paragraph of plain text; empty without text."""
    return f"<p{_class(css_class)}>{escape(text)}</p>" if text else ""


def bullets(lines: Sequence[str], css_class: str = "") -> str:
    """A list of plain texts; empty without lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul{_class(css_class)}>{items}</ul>" if items else ""


def notes(lines: Sequence[str], css_class: str = "warnings") -> str:
    """Lines of warning or remarks; more than six are folded away behind their number."""
    text = bullets(lines, css_class)
    return f"<details><summary>{len(lines)} notes</summary>{text}</details>" if len(lines) > _FEW_LINES else text


def swatch(colour: str) -> str:
    """A small square of a colour, before a name."""
    return f'<span class="swatch" style="background:{escape(colour)}"></span>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A line of colours and what they stand for."""
    items = "".join(f"<li>{swatch(colour)}{escape(text)}</li>" for colour, text in entries)
    return f'<ul class="legend">{items}</ul>'


def choice(key: str, value: str) -> str:
    """A name that selects a team, centre or case of the page by a click; plain text where scripts do not run.

    `key` is `team`, `centre` or `case`.
    """
    return f'<span class="choice" data-key="{key}" data-value="{escape(value)}">{escape(value)}</span>'


def json_element(value: Any, element_id: str = "") -> str:
    """A script element that holds data; no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
    place = f' id="{element_id}"' if element_id else ""
    return f'<script type="application/json"{place}>{text}</script>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


# Tables with more columns have smaller letters.
WIDE_TABLE = 9


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        html: its content.
        sort: the number to sort by; without one the text is compared, and an empty one stays last.
        span: the number of columns it takes.
    """

    html: str
    sort: float | None = None
    span: int = 1


@dataclass(frozen=True)
class Row:
    """A line of a table; `keys` (team, centre, case) are what a selection on the page matches."""

    cells: Sequence[Cell | str | float | Estimate | None]
    keys: Mapping[str, str] = field(default_factory=dict)
    css_class: str = ""


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Row],
    *,
    header_column: int = 0,
    best_last: Collection[str] = (),
    css_class: str = "",
) -> str:
    """A table; the cell in `header_column` names its row.

    Texts and counts are shown as they are, values with three digits, estimates with their interval, None as a dash.
    The first click on a header sorts in ascending order, or in descending order for a header in `best_last`.
    """
    falling = (' data-first="descending"' if text in best_last else "" for text in heads)
    head = "".join(f'<th scope="col"{first}>{escape(text)}</th>' for text, first in zip(heads, falling, strict=True))
    wide = _class(" ".join(filter(None, [css_class, "wide" if len(heads) > WIDE_TABLE else ""])))
    body = "\n".join(_row(row, header_column) for row in rows)
    return (
        f'<div class="scroll"><table{wide}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def value_cell(value: float | None, low: float | None, high: float | None, *, best: bool = False) -> Cell:
    """A value with its 95% interval below it."""
    if value is None:
        return Cell("-")
    interval = "" if low is None or high is None else f' <span class="interval">{low:z.3f} to {high:z.3f}</span>'
    return Cell(f'<span class="value{" best" if best else ""}">{value:z.3f}</span>{interval}', value)


def _row(row: Row, header_column: int) -> str:
    keys = "".join(f' data-{key}="{escape(value)}"' for key, value in row.keys.items())
    css = f' class="{row.css_class}"' if row.css_class else ""
    cells = [_cell(_as_cell(content), header=place == header_column) for place, content in enumerate(row.cells)]
    return f"<tr{keys}{css}>{''.join(cells)}</tr>"


def _as_cell(content: Cell | str | float | Estimate | None) -> Cell:
    if isinstance(content, Cell):
        return content
    if isinstance(content, Estimate):
        return value_cell(content.value, content.ci95_low, content.ci95_high)
    if isinstance(content, str):
        return Cell(escape(content))
    if content is None:
        return Cell("-")
    return Cell(str(content) if isinstance(content, int) else f"{content:z.3f}", float(content))


def _cell(cell: Cell, *, header: bool) -> str:
    # JavaScript reads the word Infinity alone.
    sort = "" if cell.sort is None else f' data-sort="{cell.sort:z.6g}"'.replace("inf", "Infinity")
    span = "" if cell.span == 1 else f' colspan="{cell.span}"'
    return f'<th scope="row"{sort}{span}>{cell.html}</th>' if header else f"<td{sort}{span}>{cell.html}</td>"
