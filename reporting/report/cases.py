"""The report's section on cases: a table of all cases, and a card with picture and answers for each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, Final
from urllib.parse import quote

from contract.editions import AnswerSpec
from contract.io.files import format_json
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.results.task import TaskResults
from reporting.analyses.classes import format_class
from reporting.analyses.masks import LABELS
from reporting.analyses.sources import list_teams
from reporting.analyses.tables import get_answer_title
from reporting.page.charts import encode_column
from reporting.page.html import (
    CT_WINDOW_HU,
    PET_SHOWN_SUV,
    REFERENCE_COLOUR,
    Cell,
    Row,
    render_choice,
    render_json,
    render_legend,
    render_list,
    render_paragraph,
    render_table,
)

# With more cases a card is hidden until its case is chosen in the table.
_FEW_CASES: Final = 12
_SIZE: Final = 'width="1080" height="360"'
_LINES: Final = (
    '<ul class="legend"><li><span class="stroke"></span>GTVp</li><li><span class="stroke dashed"></span>GTVn</li></ul>'
)

JsonRow = Mapping[str, Any]
Value = float | str | None
Reader = Callable[[JsonRow], Value]


@dataclass(frozen=True)
class AnswerColumn:
    """One figure of every team's answer to every case.

    Attributes:
        title: heading of the column.
        values: by case and team, in the order of `CaseTable`.
        summary: heading of the figure's summary over the teams; empty without one.
        absent: places of cases whose reference lacks the structure; there a value is 1 for a team that rightly marks
            nothing, and 0 for one that marks something.
    """

    title: str
    values: tuple[tuple[Value, ...], ...]
    summary: str = ""
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CaseTable:
    """All cases with the reference's figures, and the answers of all teams.

    `facts` holds the reference by heading and case, `columns` the answers that any team has.
    """

    cases: tuple[str, ...]
    teams: tuple[str, ...]
    facts: Mapping[str, tuple[Value, ...]]
    columns: tuple[AnswerColumn, ...]


def case_table(results: Sequence[TaskResults]) -> CaseTable:
    """The cases of all tasks; teams without rows have no values.

    Headings begin with the task's number where two tasks have one name, such as the two survival tasks of 2021.
    """
    teams = tuple(list_teams(results))
    parts = [(result.task, answer, _rows(result, answer)) for result in results for answer in result.task.answers]
    cases = tuple(sorted({case for *_, rows in parts for of_team in rows.values() for case in of_team}))
    facts: dict[str, tuple[Value, ...]] = {}
    columns: list[AnswerColumn] = []
    names = [result.task.name for result in results]
    for task, answer, rows in parts:
        prefix = f"Task {task.number}: " if names.count(task.name) > 1 else ""
        reference = [next((of[case] for of in rows.values() if case in of), None) for case in cases]
        for title, read in _facts(answer).items():
            facts[f"{prefix}{title}"] = tuple(None if row is None else read(row) for row in reference)
        for title, summary, read in _figures_of(answer):
            answered = [[rows.get(team, {}).get(case) for team in teams] for case in cases]
            values = tuple(tuple(None if row is None else read(row) for row in of_case) for of_case in answered)
            if any(value is not None for of_case in values for value in of_case):
                absent = _absent(reference, title)
                columns.append(AnswerColumn(f"{prefix}{title}", values, summary and f"{prefix}{summary}", absent))
    return CaseTable(cases, teams, facts, tuple(columns))


def _absent(reference: Sequence[JsonRow | None], title: str) -> frozenset[int]:
    """Places of the cases without the structure of a column of DSCs; none for other columns."""
    label = {f"{name} DSC": label for label, name in LABELS.items()}.get(title)
    rows = enumerate(reference) if label is not None else ()
    return frozenset(place for place, row in rows if row is not None and row[f"{label}_reference_voxels"] == 0)


def _rows(result: TaskResults, answer: AnswerSpec) -> dict[str, dict[str, JsonRow]]:
    return {team: {row["case"]: row for row in result.rows_of(team, answer.name)} for team in result.teams}


def _facts(answer: AnswerSpec) -> dict[str, Reader]:
    """Figures of the reference, by heading."""
    if answer.kind == "mask":
        return {
            "GTVp (ml)": partial(_volume_ml, key="gtvp_reference_mm3"),
            "GTVn (ml)": partial(_volume_ml, key="gtvn_reference_mm3"),
            "GTVn lesions": lambda row: row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"],
        }
    if answer.kind == "risk":
        return {
            "Recurrence": lambda row: "yes" if row["relapse"] else "no",
            "Follow-up (days)": lambda row: round(row["rfs_days"]),
        }
    return {get_answer_title(answer): lambda row: format_class(row[answer.row_key])}


def _figures_of(answer: AnswerSpec) -> list[tuple[str, str, Reader]]:
    """Heading, heading of the summary and value of each figure of an answer."""
    title = get_answer_title(answer)
    if answer.kind == "mask":
        return [
            *(
                (f"{name} DSC", f"{name} DSC, median of teams", partial(_dsc, label=key))
                for key, name in LABELS.items()
            ),
            ("GTVp (ml)", "", partial(_volume_ml, key="gtvp_predicted_mm3")),
            ("GTVn (ml)", "", partial(_volume_ml, key="gtvn_predicted_mm3")),
            ("GTVn detected / false / missed", "", _lesions),
        ]
    if answer.kind == "risk":
        digits = 4 if answer.direction == "time" else 3  # thousands of days in full
        return [(f"{title} ({answer.direction})", "", partial(_risk, digits=digits))]
    key = answer.row_key
    return [
        (title, "", lambda row: None if row[f"predicted_{key}"] is None else format_class(row[f"predicted_{key}"])),
        (f"{title} correct", f"{title}, fraction of teams correct", partial(_is_correct, key=key)),
    ]


def _volume_ml(row: JsonRow, key: str) -> float:
    return round(float(row[key]) / MM3_PER_ML, 1)


def _dsc(row: JsonRow, label: str) -> float | None:
    """The DSC. Without the structure in the reference: 1 for an empty mask, 0 for another one, None for none."""
    if row[f"{label}_reference_voxels"] > 0:
        return None if row.get(f"{label}_dsc") is None else float(row[f"{label}_dsc"])
    return None if row["error"] is not None else float(row[f"{label}_predicted_voxels"] == 0)


def _lesions(row: JsonRow) -> str:
    return " / ".join(str(row[f"gtvn_lesions_{key}"]) for key in ("tp", "fp", "fn"))


def _risk(row: JsonRow, digits: int) -> float | None:
    return None if row["risk"] is None else float(f"{row['risk']:z.{digits}g}")


def _is_correct(row: JsonRow, key: str) -> int | None:
    predicted = row[f"predicted_{key}"]
    return None if predicted is None else int(predicted == row[key])


@dataclass(frozen=True)
class CasePicture:
    """A picture's address relative to the page, and notes on masks that could not be drawn.

    `contours` is the address of the script with the contours that lie over the picture, as `contours_script` writes
    it; empty where they are drawn.
    """

    case: str
    address: str
    notes: tuple[str, ...] = ()
    contours: str = ""


def contours_script(case: str, contours: Mapping[str, Sequence[str]]) -> str:
    """The contours of a case as a script, because a page opened as a file cannot load other data.

    The teams are a list of pairs, because a JavaScript object would put numeric names first.
    """
    content = format_json([case, [*contours.items()]], indent=None).strip()
    return f"window.page.addContours({content});\n"


def cases_html(
    results: Sequence[TaskResults],
    pictures: Sequence[CasePicture],
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
    cards = [_card(case, cases, by_case.get(case), centres[case]) for case in names]
    return (
        f"{describe_pictures(pictures, {})}{render_list(picture_notes, 'warnings')}{_table(cases, centres, by_case)}"
        f'<div class="cards" data-few="{_FEW_CASES}">{"".join(cards)}</div>'
        f"{render_json(_answers(cases), 'page-cases')}"
    )


def describe_pictures(pictures: Sequence[CasePicture], colours: Mapping[str, str]) -> str:
    """A description of the pictures, and a legend of their contours."""
    if not pictures:
        return render_paragraph("There are no pictures: the report was written without the scans (--cohort).")
    shown = [("reference", REFERENCE_COLOUR), *colours.items()]
    text = (
        f"The pictures show planes through the reference's GTVp and its largest GTVn: CT from {CT_WINDOW_HU[0]:g} to "
        f"{CT_WINDOW_HU[1]:g} HU, overlaid with PET from {PET_SHOWN_SUV[0]:g} to {PET_SHOWN_SUV[1]:g} SUV. R, L, A, P, "
        "S and I mark the patient's right, left, front, back, head and feet."
    )
    return render_paragraph(text) + render_legend((colour, name) for name, colour in shown) + _LINES


def _table(cases: CaseTable, centres: Mapping[str, str | None], pictures: Mapping[str, CasePicture]) -> str:
    if not cases.cases:
        return ""
    measured = [one for one in cases.columns if one.summary]
    has_centres = any(centres.values())
    heads = ["Case", *(["Centre"] if has_centres else []), *cases.facts, *(one.summary for one in measured), "Details"]
    rows = []
    for place, case in enumerate(cases.cases):
        centre = centres[case]
        cells = [Cell(render_choice("case", case))]
        cells += [Cell(render_choice("centre", centre) if centre else "-")] if has_centres else []
        cells += [_cell(values[place]) for values in cases.facts.values()]
        cells += [_summary(one.values[place], one.summary, is_absent=place in one.absent) for one in measured]
        cells.append(Cell(f'<a href="#{quote(f"case-{case}")}">{"picture" if case in pictures else "answers"}</a>'))
        rows.append(Row(cells, _keys(case, centre)))
    return render_table("Cases, with the reference and a summary of all teams", heads, rows)


def _summary(values: Sequence[Value], title: str, *, is_absent: bool) -> Cell:
    """Median of the teams, or the fraction of correct ones; the page's script repeats it for selected teams.

    A median over teams that rightly mark nothing has no meaning: of a structure that is absent, the teams that mark
    one are counted.
    """
    numbers = [value for value in values if isinstance(value, float | int)]
    if not numbers:
        return Cell("-")
    if is_absent:
        return Cell(f"{numbers.count(0)} of {len(numbers)} teams wrong")
    figure = statistics.fmean(numbers) if "fraction" in title else statistics.median(numbers)
    return Cell(f"{figure:z.3f}", figure)


def _cell(value: Value) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(escape(value)) if isinstance(value, str) else Cell(_number(value), value)


def _number(value: float) -> str:
    """A number as text: counts and days unchanged, volumes with one decimal."""
    return str(value) if isinstance(value, int) else f"{value:z.1f}"


def _keys(case: str, centre: str | None) -> dict[str, str]:
    return {"case": case, **({"centre": centre} if centre else {})}


def _card(case: str, cases: CaseTable, picture: CasePicture | None, centre: str | None) -> str:
    image = notes = ""
    if picture is not None:
        alt = f"CT and PET of {case} in three planes with contours"
        image = f'<img loading="lazy" {_SIZE} alt="{escape(alt)}" src="{quote(picture.address)}">'
        lines = f' data-contours="{quote(picture.contours)}"' if picture.contours else ""
        image = f'<div class="picture"{lines}>{image}</div>'
        notes = render_list(picture.notes, "warnings")
    keys = "".join(f' data-{key}="{escape(value)}"' for key, value in _keys(case, centre).items())
    # The reference in one line: volumes, lesions, follow-up and classes, as far as the rows hold them.
    place = cases.cases.index(case) if case in cases.cases else None
    known = {} if place is None else {title: values[place] for title, values in cases.facts.items()}
    facts = escape(" · ".join(_fact(title, value) for title, value in known.items() if value is not None))
    return (
        f'<details class="card" id="{escape(f"case-{case}")}"{keys}>'
        f"<summary><b>{escape(case)}</b> <span>{facts}</span></summary><div>{image}{notes}</div></details>\n"
    )


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
            **encode_column([value for of_case in one.values for value in of_case]),
        }
        for one in cases.columns
    ]
    return {"cases": list(cases.cases), "teams": list(cases.teams), "columns": columns}
