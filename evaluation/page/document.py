"""The whole page: template, style, scripts and sections in one HTML file that loads nothing from a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from posixpath import normpath
from string import Template
from typing import Any, Final, Literal

from evaluation.page.html import NEUTRAL, REFERENCE_COLOUR, json_element, paragraph

# Makes tables and charts of every page work; other scripts run after it.
_MAIN: Final = "page/charts.js"
_IMPORT: Final = re.compile(r'^import \{ (.+) \} from "(.+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_LIBRARIES: Final = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading.

    `navigation` is its name in the page's navigation. With a `fold`, open or closed, it folds away behind its heading.
    """

    anchor: str
    heading: str
    html: str
    navigation: str = ""
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
        scripts: further modules, such as `report/cases.js`, that run after those of every page.
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
    links = [(one.anchor, one.navigation or one.heading) for one in document.sections]
    return Template(_own("page.html")).substitute(
        title=escape(document.title),
        style=_own("page.css"),
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
        f"<script>\n/*!\n{_own(f'vendor/{licence}').strip()}\n*/\n{_own(f'vendor/{bundle}')}\n</script>"
        for bundle, licence in _LIBRARIES
    ]
    return "\n".join([*libraries, f'<script type="module">\n{bundled((_MAIN, *further))}</script>'])


def bundled(modules: Sequence[str]) -> str:
    """ES modules of this package and all that they import as one script, each run once after its imports.

    Browsers load no modules into a page that was opened as a file. So each module becomes a function that returns its
    exports. It takes `import { a, b } from "./file.js";` on one line, and exported functions, constants and classes.
    """
    parts: dict[str, str] = {}
    for name in modules:
        _add_module(name, parts)
    return "\n".join(["const modules = {};", *parts.values(), ""])


def _add_module(name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = files("evaluation").joinpath(name).read_text(encoding="utf-8")
    paths = {address: normpath(f"{name}/../{address}") for _, address in _IMPORT.findall(text)}
    for path in paths.values():
        _add_module(path, parts)
    text = _IMPORT.sub(lambda found: f'const {{ {found[1]} }} = modules["{paths[found[2]]}"];', text)
    exports = ", ".join(export for _, export in _EXPORT.findall(text))
    body = _EXPORT.sub(r"\1 \2", text)
    parts[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {exports} }};\n}})();'


@cache
def _own(name: str) -> str:
    return files("evaluation.page").joinpath(name).read_text(encoding="utf-8")
