"""The whole page: template, style, scripts and sections in one HTML file that loads nothing from a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final, Literal

from evaluation.page.html import NEUTRAL, REFERENCE_COLOUR, json_element, paragraph

# Plain scripts of every page, in the order in which they need each other; a page's own run after them.
_NAMES: Final = ("data", "svg", "selection", "tables", "marks", "kinds", "wide", "charts")
SCRIPTS: Final = tuple(f"page/{name}.js" for name in _NAMES)
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
    return Template(_own("page/page.html")).substitute(
        title=escape(document.title),
        style=_own("page/page.css"),
        lead=escape(document.lead),
        note=paragraph(document.note, "note"),
        navigation=" ".join(f'<a href="#{escape(anchor)}">{escape(text)}</a>' for anchor, text in links),
        sections="\n".join(_section(one) for one in document.sections),
        footer=escape(document.footer),
        colours=json_element(_colours(document.colours), "page-colours"),
        scripts=_scripts(document.scripts),
    )


def _colours(of_teams: Mapping[str, str]) -> dict[str, Any]:
    return {"teams": dict(of_teams), "neutral": NEUTRAL, "reference": REFERENCE_COLOUR}


def _section(section: Section) -> str:
    anchor, heading = escape(section.anchor), escape(section.heading)
    title = f'<h2 id="{anchor}-heading">{heading}</h2>'
    if section.fold:
        is_open = " open" if section.fold == "open" else ""
        return f'<details class="part fold" id="{anchor}"{is_open}><summary>{title}</summary>{section.html}</details>'
    return f'<section class="part" id="{anchor}" aria-labelledby="{anchor}-heading">{title}{section.html}</section>'


def _scripts(further: Sequence[str]) -> str:
    libraries = [
        f"<script>\n/*!\n{_own(f'page/vendor/{licence}').strip()}\n*/\n{_own(f'page/vendor/{bundle}')}\n</script>"
        for bundle, licence in _LIBRARIES
    ]
    return "\n".join([*libraries, '<script type="module">', *map(_own, (*SCRIPTS, *further)), "</script>"])


@cache
def _own(name: str) -> str:
    return files("evaluation").joinpath(name).read_text(encoding="utf-8")
