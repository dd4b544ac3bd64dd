"""Building blocks of the report page: a single HTML file in the style of the evaluation's report."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from baseline.report.segmentation import COLOUR, WorstCase
from evaluation.report.display import REFERENCE_COLOUR
from evaluation.statistics.bootstrap import Estimate


def page(title: str, lead: str, sections: Sequence[tuple[str, str, str]], footer: str) -> str:
    """The whole document from `sections`: anchor, heading and content of each."""
    folder = files("evaluation.report")
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=folder.joinpath("style.css").read_text(encoding="utf-8").strip(),
        lead=escape(lead),
        note="",
        navigation=" ".join(f'<a href="#{anchor}">{escape(heading)}</a>' for anchor, heading, _ in sections),
        sections="\n".join(
            f'<section id="{anchor}"><h2>{escape(heading)}</h2>{content}</section>'
            for anchor, heading, content in sections
        ),
        footer=escape(footer),
    )


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    """A heading within a section."""
    return f'<h3 style="margin-top: 24px">{escape(text)}</h3>'


def figure(caption: str, svg: str) -> str:
    """A plot with its caption."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts, counts, values and estimates with their 95% intervals; a dash for a missing value (None)."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(content: Estimate | str | float | None) -> str:
    if isinstance(content, str | int):
        return escape(str(content))
    estimate = content if isinstance(content, Estimate) else Estimate(content, None, None)
    if estimate.value is None:
        return "-"
    value = f'<span class="value">{estimate.value:.3f}</span>'
    if estimate.ci95_low is None or estimate.ci95_high is None:
        return value
    return f'{value} <span class="interval">{estimate.ci95_low:.3f} to {estimate.ci95_high:.3f}</span>'


def pictures(cases: Iterable[WorstCase]) -> str:
    """Pictures of the worst cases, with a legend of the contours."""
    swatch = '<span class="swatch" style="background:{}"></span>'.format
    legend = (
        f'<ul class="legend"><li>{swatch(REFERENCE_COLOUR)}reference</li><li>{swatch(COLOUR)}out-of-fold</li>'
        '<li><span class="line"></span>GTVp</li><li><span class="line dashed"></span>GTVn</li></ul>'
    )
    return legend + "".join(_picture(case) for case in cases)


def _picture(case: WorstCase) -> str:
    source = base64.b64encode(case.jpeg).decode("ascii")
    name = escape(case.case)
    return (
        f'<article><header><h3>{name}</h3><span class="facts">{escape(case.facts)}</span></header>'
        f'<img loading="lazy" alt="CT and PET of {name} in three planes with contours" '
        f'src="data:image/jpeg;base64,{source}"></article>'
    )
