"""Parts of the report page: tables and figures, cards with pictures, and the sections about masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from baseline.postprocessing.record import PostprocessingRecord
from baseline.report.masks import COLOUR, NETWORK, WorstCase
from contract.packages import PostprocessingRules
from evaluation.page.html import Cell, Row, choice, paragraph, table
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


_POSTPROCESSING: Final = (
    "Minimum volumes of 26-connected lesions on the network's grid. Masks, features and all figures of this page use "
    "the volumes that were found without the patient's fold; the package uses those found on all patients. The gains "
    "are of volumes found without the patient's fold or centre, with intervals from the paired bootstrap; a volume is "
    "stored only if the lower ends of both intervals are above 0."
)


def segmentation_section(report: Mapping[str, Any], titles: Mapping[str, str], without_mask: int) -> str:
    """The ranked metrics of the out-of-fold masks, over all patients and by centre."""
    scored = report["cases"]["used"]
    about = (
        f"{scored} patients, each segmented by a network that never saw them and scored on the CT's own grid against "
        f"the reference by the evaluation package (edition {report['provenance']['edition']})."
    )
    if without_mask:
        about += f" {without_mask} patients without a reference are not scored."
    everyone = (report["aggregates"][name] for name in titles)
    estimates = [Estimate(one["value"], one.get("ci95_low"), one.get("ci95_high")) for one in everyone]
    by_centre = [
        centre_row(centre, [group["cases"], *(group["aggregates"][name]["value"] for name in titles)])
        for centre, group in report["centres"].items()
    ]
    rows = [Row(["everyone", scored, *estimates]), *by_centre]
    caption = "Metrics of all patients with 95% intervals, and of each centre"
    return paragraph(about) + table(caption, ["Centre", "Patients", *titles.values()], rows)


def postprocessing_section(record: PostprocessingRecord) -> str:
    """The content of `postprocessing.json` as HTML."""
    if record.why_not:
        return paragraph(f"No postprocessing rules: {record.why_not}.")
    rules = [f"{PostprocessingRules.words(rule)} {value}" for rule, value in record.rules.as_json().items()]
    rows = []
    for split, figures in record.cross_fitted.items():
        for name, one in figures.items():
            gain = one.difference
            estimate = Estimate(gain.value, gain.ci95_low, gain.ci95_high)
            title = record.titles.get(name, name)
            rows.append(Row([f"{split} left out", title, one.unfiltered, one.filtered, estimate]))
    heads = ["Volumes found with", "Metric", "Unfiltered", "Filtered", "Difference"]
    caption = "Metrics on the network's grid, with 95% intervals of the difference"
    about = paragraph(f"Rules of the package: {', '.join(rules)}. {_POSTPROCESSING}")
    return about + table(caption, heads, rows, header_column=1)
