"""Parts of the report page: grids of tables and figures, centres, and cards with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from baseline.report.masks import COLOUR, NETWORK, WorstCase
from evaluation.page.html import Cell, Row, choice, paragraph
from evaluation.report.cases import CasePicture, about_pictures
from evaluation.statistics.bootstrap import Estimate

Content = Cell | str | float | Estimate | None


def grid(parts: Sequence[str]) -> str:
    """Tables and figures below each other."""
    content = "\n".join(parts)
    return f'<div class="figures">\n{content}\n</div>'


def listing(title: str, table: str, about: str = "") -> str:
    """A table with a heading, and a paragraph between them."""
    return f'<section class="listing"><h3>{escape(title)}</h3>{paragraph(about, "about")}{table}</section>'


def centre_row(centre: str, cells: Sequence[Content]) -> Row:
    """A table's row about one centre, whose name selects it."""
    return Row([Cell(choice("centre", centre)), *cells], {"centre": centre})


def signed(value: float | None) -> Cell:
    """A number with its sign."""
    return Cell("-") if value is None else Cell(f"{value:+.3f}", value)


def worst_cases_html(cases: Sequence[WorstCase], addresses: Mapping[str, str]) -> str:
    """Cards of the worst cases with their pictures, whose addresses are relative to the page."""
    about = about_pictures([CasePicture(*one) for one in addresses.items()], {NETWORK: COLOUR})
    return about + "".join(_card(case, addresses[case.case]) for case in cases)


def _card(case: WorstCase, address: str) -> str:
    name = escape(case.case)
    alt = f"CT and PET of {name} in three planes with contours"
    image = f'<img loading="lazy" width="1080" height="360" alt="{alt}" src="{quote(address)}">'
    return (
        f'<details class="card" id="case-{name}" data-case="{name}" open>'
        f"<summary><b>{name}</b> <span>{escape(case.facts)}</span></summary><div>{image}</div></details>\n"
    )
