"""Markdown for model cards and README files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FIGURE: Final = re.compile(r"-?\d[\d.]*( |$)|-$|undefined$")


def section(level: int, title: str, *parts: str) -> str:
    """A heading with its paragraphs and tables; empty parts are left out."""
    return "\n\n".join([f"{'#' * level} {plain(title)}", *filter(None, parts)])


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with right-aligned columns of figures; an empty text for no rows."""
    if not rows:
        return ""
    figures = [all(_FIGURE.match(str(row[column])) for row in rows) for column in range(len(heads))]
    lines = [heads, ["---:" if is_figure else "---" for is_figure in figures], *rows]
    return "\n".join("| " + " | ".join(plain(str(cell)) for cell in line) + " |" for line in lines)


def bullets(lines: Sequence[str]) -> str:
    """A bullet list."""
    return "\n".join(f"- {line}" for line in lines)


def plain(text: str) -> str:
    """The text on one line, with bars escaped so that they do not end a table cell."""
    return " ".join(text.split()).replace("|", r"\|")
