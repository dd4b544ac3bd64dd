"""The whole page: template, style, scripts and sections in one HTML file that loads nothing from a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

from evaluation.page.colours import NEUTRAL
from evaluation.page.html import json_element, paragraph

# In this order: each script uses those before it.
SCRIPTS: Final = (
    "data.js",
    "selection.js",
    "tables.js",
    "layout.js",
    "marks.js",
    "kinds.js",
    "wide.js",
    "saving.js",
    "charts.js",
    "start.js",
)
_LIBRARIES: Final = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading; `navigation` is its name in the page's navigation."""

    anchor: str
    heading: str
    html: str
    navigation: str = ""


@dataclass(frozen=True)
class Document:
    """Content of a page.

    Attributes:
        title: heading of the page.
        lead: one line below it.
        note: a line of warning below the lead, may be empty.
        sections: in the order of the page.
        footer: origin of the figures.
        colours: of each team, for the charts.
        scripts: further scripts, after those of every page.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    scripts: Sequence[str] = ()


def document_html(document: Document) -> str:
    """The page as HTML text."""
    links = [(one.anchor, one.navigation or one.heading) for one in document.sections]
    return Template(_own("page.html")).substitute(
        title=escape(document.title),
        style=_own("page.css"),
        lead=escape(document.lead),
        note=paragraph(document.note, "note"),
        navigation=" ".join(f'<a href="#{escape(anchor)}">{escape(text)}</a>' for anchor, text in links),
        sections="\n".join(_section(one) for one in document.sections),
        footer=escape(document.footer),
        colours=json_element({"teams": dict(document.colours), "neutral": NEUTRAL}, "page-colours"),
        scripts=_scripts(document.scripts),
    )


def _section(section: Section) -> str:
    heading = f"{section.anchor}-heading"
    return (
        f'<section class="part" id="{escape(section.anchor)}" aria-labelledby="{escape(heading)}">'
        f'<h2 id="{escape(heading)}">{escape(section.heading)}</h2>{section.html}</section>'
    )


def _scripts(further: Sequence[str]) -> str:
    bundles = [
        f"<script>\n/*!\n{_own(f'vendor/{licence}').strip()}\n*/\n{_own(f'vendor/{bundle}')}\n</script>"
        for bundle, licence in _LIBRARIES
    ]
    ours = [f"<script>\n{text}</script>" for text in (*map(_own, SCRIPTS[:-1]), *further, _own(SCRIPTS[-1]))]
    return "\n".join([*bundles, *ours])


@cache
def _own(name: str) -> str:
    return files("evaluation.page").joinpath(name).read_text(encoding="utf-8")
