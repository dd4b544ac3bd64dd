"""Render a whole page: one HTML file with template, style, scripts and sections that loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Final, Literal

from reporting.page.html import NEUTRAL, REFERENCE_COLOUR, TEAM_COLOURS, render_json, render_paragraph

# The scripts of every page. A script uses the scripts before it; a page's own scripts run last.
SCRIPTS: Final = tuple(
    f"page/{name}.js" for name in ("data", "svg", "selection", "tables", "marks", "kinds", "wide", "charts")
)
# The policy allows the page's own scripts by their hashes, and scripts that these load, such as the contours of
# pictures. Images are drawn by the page or lie in files next to it; `file:` is the source of a page that is opened from
# a disk. Everything else is forbidden.
_POLICY: Final = (
    "default-src 'none'; script-src {hashes} 'strict-dynamic'; style-src 'unsafe-inline'; "
    "img-src 'self' file: data: blob:; base-uri 'none'; form-action 'none'"
)
_LIBRARIES: Final = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading.

    Attributes:
        anchor: The id of the section.
        heading: The text of the heading.
        html: The content below the heading.
        fold: State of a collapsible section when the page opens; empty for a section that cannot be collapsed.
    """

    anchor: str
    heading: str
    html: str
    fold: Literal["", "open", "closed"] = ""


@dataclass(frozen=True)
class HtmlPage:
    """Content of a page.

    Attributes:
        title: The heading of the page.
        lead: One line below the heading.
        sections: The sections in their order on the page.
        footer: The origin of the figures.
        note: A warning below the lead; it may be empty.
        colours: The colour of each team in the charts.
        scripts: Further scripts, such as `report/cases.js`, which run after the scripts of every page.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    scripts: Sequence[str] = ()


@dataclass(frozen=True)
class _Script:
    text: str
    is_module: bool = False

    @property
    def source_hash(self) -> str:
        """Return the hash of the script in the notation of a content security policy."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    def render(self) -> str:
        kind = ' type="module"' if self.is_module else ""
        return f"<script{kind}>{self.text}</script>"


def render_page(page: HtmlPage) -> str:
    """Render a page as one HTML document."""
    scripts = _load_scripts(page.scripts)
    colours = {
        "teams": dict(page.colours),
        "leading": TEAM_COLOURS,
        "neutral": NEUTRAL,
        "reference": REFERENCE_COLOUR,
    }
    links = [f'<a href="#{escape(section.anchor)}">{escape(section.heading)}</a>' for section in page.sections]
    return Template(_read_resource("page/page.html")).substitute(
        policy=_POLICY.format(hashes=" ".join(script.source_hash for script in scripts)),
        title=escape(page.title),
        style=_read_resource("page/page.css"),
        lead=escape(page.lead),
        note=render_paragraph(page.note, "note"),
        navigation=" ".join(links),
        sections="\n".join(_render_section(section) for section in page.sections),
        footer=escape(page.footer),
        colours=render_json(colours, "page-colours"),
        scripts="\n".join(script.render() for script in scripts),
    )


def _render_section(section: Section) -> str:
    anchor = escape(section.anchor)
    heading = f'<h2 id="{anchor}-heading">{escape(section.heading)}</h2>'
    if section.fold:
        is_open = " open" if section.fold == "open" else ""
        return f'<details class="part fold" id="{anchor}"{is_open}><summary>{heading}</summary>{section.html}</details>'
    return f'<section class="part" id="{anchor}" aria-labelledby="{anchor}-heading">{heading}{section.html}</section>'


def _load_scripts(page_scripts: Sequence[str]) -> list[_Script]:
    """Load the libraries with their licences, and the scripts of the page as one module."""
    scripts = []
    for bundle, licence in _LIBRARIES:
        notice = _read_resource(f"page/vendor/{licence}").strip()
        scripts.append(_Script(f"\n/*!\n{notice}\n*/\n{_read_resource(f'page/vendor/{bundle}')}\n"))
    texts = [_read_resource(name) for name in (*SCRIPTS, *page_scripts)]
    scripts.append(_Script("\n".join(["", *texts, ""]), is_module=True))
    return scripts


@cache
def _read_resource(name: str) -> str:
    return files("reporting").joinpath(name).read_text(encoding="utf-8")
