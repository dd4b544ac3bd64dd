"""The whole page: template, style, scripts and sections in one HTML file that loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final, Literal

from reporting.page.html import NEUTRAL, REFERENCE_COLOUR, TEAM_COLOURS, json_element, paragraph

# Plain scripts of every page, in the order in which they need each other; a page's own run after them.
_NAMES: Final = ("data", "svg", "selection", "tables", "marks", "kinds", "wide", "charts")
SCRIPTS: Final = tuple(f"page/{name}.js" for name in _NAMES)
# The page runs its own scripts, which the policy names by their hashes, and scripts that these load, such as contours
# of pictures. Images are files next to the page, or drawn by the page. `file:` is the source of a page that is opened
# from a disk. Nothing else is loaded.
_POLICY: Final = (
    "default-src 'none'; script-src {hashes} 'strict-dynamic'; style-src 'unsafe-inline'; "
    "img-src 'self' file: data: blob:; base-uri 'none'; form-action 'none'"
)
_LIBRARIES: Final = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading; with a `fold`, open or closed, it folds away behind it."""

    anchor: str
    heading: str
    html: str
    fold: Literal["", "open", "closed"] = ""


@dataclass(frozen=True)
class HtmlPage:
    """Content of a page.

    Attributes:
        title: heading of the page.
        lead: one line below it.
        note: a line of warning below the lead, may be empty.
        sections: in the order of the page.
        footer: origin of the figures.
        colours: of each team, for the charts.
        scripts: further scripts, such as `report/cases.js`, that run after those of every page.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    scripts: Sequence[str] = ()


def document_html(document: HtmlPage) -> str:
    """The page as HTML text."""
    links = [(one.anchor, one.heading) for one in document.sections]
    scripts = _script_texts(document.scripts)
    return Template(_own("page/page.html")).substitute(
        policy=_POLICY.format(hashes=" ".join(f"'{_source_hash(script)}'" for _, script in scripts)),
        title=escape(document.title),
        style=_own("page/page.css"),
        lead=escape(document.lead),
        note=paragraph(document.note, "note"),
        navigation=" ".join(f'<a href="#{escape(anchor)}">{escape(text)}</a>' for anchor, text in links),
        sections="\n".join(_section(one) for one in document.sections),
        footer=escape(document.footer),
        colours=json_element(_colours(document.colours), "page-colours"),
        scripts="\n".join(f"<script{attributes}>{script}</script>" for attributes, script in scripts),
    )


def _colours(of_teams: Mapping[str, str]) -> dict[str, Any]:
    return {"teams": dict(of_teams), "leading": TEAM_COLOURS, "neutral": NEUTRAL, "reference": REFERENCE_COLOUR}


def _section(section: Section) -> str:
    anchor, heading = escape(section.anchor), escape(section.heading)
    title = f'<h2 id="{anchor}-heading">{heading}</h2>'
    if section.fold:
        is_open = " open" if section.fold == "open" else ""
        return f'<details class="part fold" id="{anchor}"{is_open}><summary>{title}</summary>{section.html}</details>'
    return f'<section class="part" id="{anchor}" aria-labelledby="{anchor}-heading">{title}{section.html}</section>'


def _script_texts(further: Sequence[str]) -> list[tuple[str, str]]:
    """Return the attributes and the text of each script element of the page."""
    libraries = [
        ("", f"\n/*!\n{_own(f'page/vendor/{licence}').strip()}\n*/\n{_own(f'page/vendor/{bundle}')}\n")
        for bundle, licence in _LIBRARIES
    ]
    module = "\n".join(["", *map(_own, (*SCRIPTS, *further)), ""])
    return [*libraries, (' type="module"', module)]


def _source_hash(script: str) -> str:
    """Return the hash by which a content security policy allows an inline script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _own(name: str) -> str:
    return files("reporting").joinpath(name).read_text(encoding="utf-8")
