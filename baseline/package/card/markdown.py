"""The few pieces of Markdown that the written records are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FIGURE: Final = re.compile(r"-?\d[\d.]*( |$)|-$|undefined$")


def section(level: int, title: str, *parts: str) -> str:
    """A heading with its paragraphs and tables; empty parts are left out."""
    return "\n\n".join([f"{'#' * level} {plain(title)}", *filter(None, parts)])


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table, columns of figures to the right; nothing where there is no row."""
    if not rows:
        return ""
    figures = [all(_FIGURE.match(str(row[column])) for row in rows) for column in range(len(heads))]
    lines = [heads, ["---:" if one else "---" for one in figures], *rows]
    return "\n".join("| " + " | ".join(plain(str(cell)) for cell in line) + " |" for line in lines)


def bullets(lines: Sequence[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)


def plain(text: str) -> str:
    """One line in which a bar does not end a table's cell."""
    return " ".join(text.split()).replace("|", r"\|")
