"""Building blocks of a page: paragraphs, lists, marks of teams, and JSON within HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

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


def choice(key: str, value: str, text: str | None = None) -> str:
    """A name that selects a team, centre or case of the page by a click; plain text where scripts do not run.

    `key` is `team`, `centre` or `case`.
    """
    return f'<span class="choice" data-key="{key}" data-value="{escape(value)}">{escape(text or value)}</span>'


def json_element(value: Any, element_id: str = "") -> str:
    """A script element that holds data; no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
    return f'<script type="application/json"{_id(element_id)}>{text}</script>'


def _id(name: str) -> str:
    return f' id="{name}"' if name else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
