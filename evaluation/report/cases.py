"""The section on cases: a table of all of them, and for each a card with its picture and every team's answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final
from urllib.parse import quote

from evaluation.analyses.sources import TaskResults
from evaluation.page.charts import column
from evaluation.page.colours import CT_WINDOW_HU, PET_SHOWN_SUV, REFERENCE_COLOUR
from evaluation.page.html import bullets, choice, json_element, legend, paragraph
from evaluation.page.tables import Cell, Row, table
from evaluation.report.patient_table import CaseTable, Value, case_table

# With more cases a card is hidden until its case is chosen in the table.
_FEW_CASES: Final = 12
_LINES: Final = (
    '<ul class="legend"><li><span class="stroke"></span>GTVp</li><li><span class="stroke dashed"></span>GTVn</li></ul>'
)


@dataclass(frozen=True)
class CasePicture:
    """A picture's address relative to the page, and notes on masks that could not be drawn."""

    case: str
    address: str
    notes: tuple[str, ...] = ()


def cases_html(
    results: Sequence[TaskResults],
    pictures: Sequence[CasePicture],
    colours: Mapping[str, str],
    picture_notes: Sequence[str] = (),
) -> str:
    """Table and cards of the cases; empty if there are neither rows nor pictures."""
    cases = case_table(results)
    by_case = {picture.case: picture for picture in pictures}
    names = [*cases.cases, *(case for case in by_case if case not in cases.cases)]
    if not names:
        return ""
    known = {case: centre for result in results for case, centre in result.centres.items()}
    centres = {case: known.get(case) for case in names}
    cards = [_card(case, cases, by_case.get(case), centres[case], opened=len(names) <= _FEW_CASES) for case in names]
    return (
        f"{about_pictures(pictures, colours)}{bullets(picture_notes, 'warnings')}{_table(cases, centres, by_case)}"
        f'<div class="cards" data-few="{_FEW_CASES}">{"".join(cards)}</div>'
        f"{json_element(_answers(cases), 'page-cases')}"
    )


def about_pictures(pictures: Sequence[CasePicture], colours: Mapping[str, str]) -> str:
    """What the pictures show, and a legend of their contours."""
    if not pictures:
        return paragraph("There are no pictures: the report was written without the scans (--cohort).")
    shown = [("reference", REFERENCE_COLOUR), *colours.items()]
    text = (
        f"Pictures: planes through the reference's GTVp and its largest GTVn. CT from {CT_WINDOW_HU[0]:g} to "
        f"{CT_WINDOW_HU[1]:g} HU, PET over it from {PET_SHOWN_SUV[0]:g} to {PET_SHOWN_SUV[1]:g} SUV. R, L, A, P, S, I: "
        "the patient's right, left, front, back, head and feet."
    )
    return paragraph(text) + legend((colour, name) for name, colour in shown) + _LINES


def _table(cases: CaseTable, centres: Mapping[str, str | None], pictures: Mapping[str, CasePicture]) -> str:
    if not cases.cases:
        return ""
    measured = [one for one in cases.columns if one.summary]
    has_centres = any(centres.values())
    heads = ["Case", *(["Centre"] if has_centres else []), *cases.facts, *(one.summary for one in measured), "Details"]
    rows = []
    for place, case in enumerate(cases.cases):
        centre = centres[case]
        cells = [Cell(choice("case", case))]
        cells += [Cell(choice("centre", centre) if centre else "-")] if has_centres else []
        cells += [_cell(values[place]) for values in cases.facts.values()]
        cells += [_summary(one.values[place], one.summary, is_absent=place in one.absent) for one in measured]
        cells.append(Cell(f'<a href="#{quote(f"case-{case}")}">{"picture" if case in pictures else "answers"}</a>'))
        rows.append(Row(cells, _keys(case, centre)))
    return table("Cases, with the reference and a summary of all teams", heads, rows)


def _summary(values: Sequence[Value], title: str, *, is_absent: bool) -> Cell:
    """Median of the teams, or the fraction of correct ones; the page's script repeats it for selected teams.

    A median over teams that rightly mark nothing has no meaning: of a structure that is absent, the teams that mark
    one are counted.
    """
    numbers = [value for value in values if isinstance(value, float | int)]
    if not numbers:
        return Cell("-")
    if is_absent:
        return Cell(f"{numbers.count(0)} of {len(numbers)} teams false")
    figure = statistics.fmean(numbers) if "fraction" in title else statistics.median(numbers)
    return Cell(f"{figure:.3f}", figure)


def _cell(value: Value) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(escape(value)) if isinstance(value, str) else Cell(_number(value), value)


def _number(value: float) -> str:
    """Counts and days as they are, volumes with one decimal."""
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _keys(case: str, centre: str | None) -> dict[str, str]:
    return {"case": case, **({"centre": centre} if centre else {})}


def _card(case: str, cases: CaseTable, picture: CasePicture | None, centre: str | None, *, opened: bool) -> str:
    image = notes = ""
    if picture is not None:
        alt = f"CT and PET of {case} in three planes with contours"
        image = f'<img loading="lazy" width="1080" height="360" alt="{escape(alt)}" src="{quote(picture.address)}">'
        notes = bullets(picture.notes, "warnings")
    keys = "".join(f' data-{key}="{escape(value)}"' for key, value in _keys(case, centre).items())
    facts = escape(_facts_of(case, cases))
    return (
        f'<details class="card" id="{escape(f"case-{case}")}"{keys}{" open" if opened else ""}>'
        f"<summary><b>{escape(case)}</b> <span>{facts}</span></summary><div>{image}{notes}</div></details>\n"
    )


def _facts_of(case: str, cases: CaseTable) -> str:
    """The reference in one line: volumes, lesions, follow-up and classes, as far as the rows hold them."""
    if case not in cases.cases:
        return ""
    place = cases.cases.index(case)
    facts = {title: values[place] for title, values in cases.facts.items()}
    return " · ".join(_fact(title, value) for title, value in facts.items() if value is not None)


def _fact(title: str, value: Value) -> str:
    """A fact with its unit behind the number: `GTVp 4.5 ml`."""
    name, _, unit = title.rstrip(")").partition(" (")
    shown = _number(value) if isinstance(value, float | int) else value
    return f"{name} {shown} {unit}".rstrip()


def _answers(cases: CaseTable) -> dict[str, Any]:
    """The answers for the page's script, each column by case and within it by team."""
    columns = [
        {
            "title": one.title,
            "summary": one.summary,
            "absent": sorted(one.absent),
            **column([value for of_case in one.values for value in of_case]),
        }
        for one in cases.columns
    ]
    return {"cases": list(cases.cases), "teams": list(cases.teams), "columns": columns}
