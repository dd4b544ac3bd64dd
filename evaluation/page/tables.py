"""HTML tables with a caption and headers of columns and rows; the page's scripts make them sortable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from evaluation.statistics.bootstrap import Estimate

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


def table(caption: str, heads: Sequence[str], rows: Sequence[Row], *, header_column: int = 0) -> str:
    """A table; the cell in `header_column` names its row.

    Texts and counts are shown as they are, values with three digits, estimates with their interval, None as a dash.
    """
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    wide = ' class="wide"' if len(heads) > WIDE_TABLE else ""
    body = "\n".join(_row(row, header_column) for row in rows)
    return (
        f'<div class="scroll"><table{wide}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def value_cell(value: float | None, low: float | None, high: float | None, *, best: bool = False) -> Cell:
    """A value with its 95% interval below it."""
    if value is None:
        return Cell("-")
    interval = "" if low is None or high is None else f' <span class="interval">{low:.3f} to {high:.3f}</span>'
    return Cell(f'<span class="value{" best" if best else ""}">{value:.3f}</span>{interval}', value)


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
    return Cell(str(content) if isinstance(content, int) else f"{content:.3f}", float(content))


def _cell(cell: Cell, *, header: bool) -> str:
    sort = "" if cell.sort is None else f' data-sort="{cell.sort:.6g}"'
    span = "" if cell.span == 1 else f' colspan="{cell.span}"'
    return f'<th scope="row"{sort}{span}>{cell.html}</th>' if header else f"<td{sort}{span}>{cell.html}</td>"
