"""Render the report's section on cases: a table of all cases, and a card with picture and answers for each case."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from contract.editions import AnswerSpec
from contract.io.files import format_json
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.results.task import TaskResults
from reporting.analyses.classes import format_class
from reporting.analyses.masks import LABELS
from reporting.analyses.sources import list_teams
from reporting.analyses.tables import get_answer_title, get_scored_answer
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
_MAX_OPEN_CARDS: Final = 12
_PICTURE_SIZE: Final = 'width="1080" height="360"'
_LINE_LEGEND: Final = (
    '<ul class="legend"><li><span class="stroke"></span>GTVp</li><li><span class="stroke dashed"></span>GTVn</li></ul>'
)

JsonRow: TypeAlias = Mapping[str, Any]
Value: TypeAlias = float | str | None
Reader: TypeAlias = Callable[[JsonRow], Value]


@dataclass(frozen=True)
class AnswerColumn:
    """One figure of every team's answer to every case.

    Attributes:
        title: The heading of the column.
        values: The figures by case and team, in the order of `CaseTable`.
        summary: The heading of the figure's summary over the teams; empty for a figure without a summary.
        absent: The positions of the cases without the structure in the reference. Their value is 1 for a team that
            correctly marks nothing, and 0 for a team that marks something.
    """

    title: str
    values: tuple[tuple[Value, ...], ...]
    summary: str = ""
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CaseTable:
    """All cases with their reference and the answers of all teams.

    Attributes:
        cases: The cases.
        teams: The teams.
        reference: The figures of the reference by heading and case.
        columns: The figures of the answers that at least one team has.
    """

    cases: tuple[str, ...]
    teams: tuple[str, ...]
    reference: Mapping[str, tuple[Value, ...]]
    columns: tuple[AnswerColumn, ...]


@dataclass(frozen=True)
class _AnswerTable:
    """The rows of one answer, by team and case.

    Attributes:
        answer: The declaration of the answer.
        prefix: The beginning of the headings: the number of the task, where two tasks have the same name.
        rows: The rows.
    """

    answer: AnswerSpec
    prefix: str
    rows: Mapping[str, Mapping[str, JsonRow]]

    def find_reference(self, case: str) -> JsonRow | None:
        """Return the first team's row of a case, which contains the reference, or None if no team has a row."""
        return next((rows[case] for rows in self.rows.values() if case in rows), None)


@dataclass(frozen=True)
class _AnswerFigure:
    """A figure of an answer.

    Attributes:
        title: The heading of the figure.
        read: The function that reads the figure from a row.
        summary: The heading of its summary over the teams; empty for a figure without a summary.
        label: The label of a DSC, in the keys of rows; empty for other figures.
    """

    title: str
    read: Reader
    summary: str = ""
    label: str = ""


def build_case_table(results: Sequence[TaskResults]) -> CaseTable:
    """Collect the cases of all tasks. Teams without rows have no values.

    Headings begin with the task's number where two tasks have the same name, such as the two survival tasks of 2021.
    """
    answers = _collect_rows(results)
    teams = tuple(list_teams(results))
    cases = tuple(sorted({case for answer in answers for rows in answer.rows.values() for case in rows}))
    reference: dict[str, tuple[Value, ...]] = {}
    columns: list[AnswerColumn] = []
    for answer in answers:
        references = [answer.find_reference(case) for case in cases]
        for title, read in _list_reference_figures(answer.answer).items():
            reference[f"{answer.prefix}{title}"] = tuple(None if row is None else read(row) for row in references)
        for figure in _list_figures(answer.answer):
            values = tuple(tuple(_read_value(answer, figure, team, case) for team in teams) for case in cases)
            if any(value is not None for case_values in values for value in case_values):
                title = f"{answer.prefix}{figure.title}"
                summary = f"{answer.prefix}{figure.summary}" if figure.summary else ""
                columns.append(AnswerColumn(title, values, summary, _find_absent(references, figure.label)))
    return CaseTable(cases, teams, reference, tuple(columns))


def _collect_rows(results: Sequence[TaskResults]) -> list[_AnswerTable]:
    names = [task.task.name for task in results]
    answers = []
    for task in results:
        prefix = f"Task {task.task.number}: " if names.count(task.task.name) > 1 else ""
        for answer in task.task.answers:
            rows = {team: {row["case"]: row for row in task.get_rows(team, answer.name)} for team in task.teams}
            answers.append(_AnswerTable(get_scored_answer(task, answer), prefix, rows))
    return answers


def _read_value(answer: _AnswerTable, figure: _AnswerFigure, team: str, case: str) -> Value:
    row = answer.rows.get(team, {}).get(case)
    return None if row is None else figure.read(row)


def _find_absent(references: Sequence[JsonRow | None], label: str) -> frozenset[int]:
    """Return the positions of the cases without a label in the reference; no positions if `label` is empty."""
    if not label:
        return frozenset()
    return frozenset(
        index for index, row in enumerate(references) if row is not None and row[f"{label}_reference_voxels"] == 0
    )


def _list_reference_figures(answer: AnswerSpec) -> dict[str, Reader]:
    """List the figures of the reference by their headings."""
    if answer.kind == "mask":
        return {
            "GTVp (ml)": partial(_read_volume_ml, key="gtvp_reference_mm3"),
            "GTVn (ml)": partial(_read_volume_ml, key="gtvn_reference_mm3"),
            "GTVn lesions": lambda row: row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"],
        }
    if answer.kind == "risk":
        return {
            "Recurrence": lambda row: "yes" if row["relapse"] else "no",
            "Follow-up (days)": lambda row: round(row["rfs_days"]),
        }
    return {get_answer_title(answer): lambda row: format_class(row[answer.row_key])}


def _list_figures(answer: AnswerSpec) -> list[_AnswerFigure]:
    title = get_answer_title(answer)
    if answer.kind == "mask":
        dscs = [
            _AnswerFigure(f"{name} DSC", partial(_read_dsc, label=label), f"{name} DSC, median of teams", label)
            for label, name in LABELS.items()
        ]
        return [
            *dscs,
            _AnswerFigure("GTVp (ml)", partial(_read_volume_ml, key="gtvp_predicted_mm3")),
            _AnswerFigure("GTVn (ml)", partial(_read_volume_ml, key="gtvn_predicted_mm3")),
            _AnswerFigure("GTVn lesions: detected / false positive / missed", _format_lesions),
        ]
    if answer.kind == "risk":
        digits = 4 if answer.direction == "time" else 3  # four digits show thousands of days in full
        return [_AnswerFigure(f"{title} ({answer.direction})", partial(_read_risk, digits=digits))]
    return [
        _AnswerFigure(title, partial(_read_class, key=answer.row_key)),
        _AnswerFigure(
            f"{title} correct", partial(_is_correct, key=answer.row_key), f"{title}, fraction of teams correct"
        ),
    ]


def _read_volume_ml(row: JsonRow, key: str) -> float:
    return round(float(row[key]) / MM3_PER_ML, 1)


def _read_dsc(row: JsonRow, label: str) -> float | None:
    """Return the DSC of a structure, or None if there is no usable mask.

    If the structure is absent from the reference, the value is 1 for an empty mask and 0 for any other mask.
    """
    if row[f"{label}_reference_voxels"] > 0:
        dsc = row.get(f"{label}_dsc")
        return None if dsc is None else float(dsc)
    return None if row["error"] is not None else float(row[f"{label}_predicted_voxels"] == 0)


def _format_lesions(row: JsonRow) -> str:
    return " / ".join(str(row[f"gtvn_lesions_{key}"]) for key in ("tp", "fp", "fn"))


def _read_risk(row: JsonRow, digits: int) -> float | None:
    return None if row["risk"] is None else float(f"{row['risk']:z.{digits}g}")


def _read_class(row: JsonRow, key: str) -> str | None:
    predicted = row[f"predicted_{key}"]
    return None if predicted is None else format_class(predicted)


def _is_correct(row: JsonRow, key: str) -> int | None:
    """Return 1 for a correct class, 0 for a wrong class and None if there is no answer."""
    predicted = row[f"predicted_{key}"]
    return None if predicted is None else int(predicted == row[key])


@dataclass(frozen=True)
class CasePicture:
    """The picture of a case.

    Attributes:
        case: The case.
        address: The address of the picture, relative to the page.
        notes: Lines about masks that could not be drawn.
        contours: The address of the script with the contours that the page lays over the picture, which
            `format_contours_script` writes; empty for a picture that contains its contours.
    """

    case: str
    address: str
    notes: tuple[str, ...] = ()
    contours: str = ""


def format_contours_script(case: str, contours: Mapping[str, Sequence[str]]) -> str:
    """Format the contours of a case as a script, because a page that is opened as a file cannot load other data.

    The teams are a list of pairs, because a JavaScript object would put numeric names first.
    """
    content = format_json([case, [*contours.items()]], indent=None).strip()
    return f"window.page.addContours({content});\n"


def render_cases(
    results: Sequence[TaskResults],
    pictures: Sequence[CasePicture],
    picture_notes: Sequence[str] = (),
) -> str:
    """Render the table and the cards of the cases, or an empty string if there are neither rows nor pictures."""
    table = build_case_table(results)
    picture_by_case = {picture.case: picture for picture in pictures}
    cases = [*table.cases, *(case for case in picture_by_case if case not in table.cases)]
    if not cases:
        return ""
    known_centres = {case: centre for task in results for case, centre in task.centres.items()}
    centres = {case: known_centres.get(case) for case in cases}
    cards = [_render_card(case, table, picture_by_case.get(case), centres[case]) for case in cases]
    return (
        f"{describe_pictures(pictures, {})}{render_list(picture_notes, 'warnings')}"
        f"{_render_case_table(table, centres, picture_by_case)}"
        f'<div class="cards" data-few="{_MAX_OPEN_CARDS}">{"".join(cards)}</div>'
        f"{render_json(_encode_answers(table), 'page-cases')}"
    )


def describe_pictures(pictures: Sequence[CasePicture], colours: Mapping[str, str]) -> str:
    """Describe the pictures in a paragraph, with a legend of their contours.

    Args:
        pictures: The pictures.
        colours: The colour of each team whose contours the pictures contain.
    """
    if not pictures:
        return render_paragraph("There are no pictures: the report was written without the scans (--cohort).")
    text = (
        f"The pictures show planes through the reference's GTVp and its largest GTVn: CT from {CT_WINDOW_HU[0]:g} to "
        f"{CT_WINDOW_HU[1]:g} HU, overlaid with PET from {PET_SHOWN_SUV[0]:g} to {PET_SHOWN_SUV[1]:g} SUV. R, L, A, P, "
        "S and I mark the patient's right, left, front, back, head and feet."
    )
    entries = [(REFERENCE_COLOUR, "reference"), *((colour, team) for team, colour in colours.items())]
    return render_paragraph(text) + render_legend(entries) + _LINE_LEGEND


def _render_case_table(table: CaseTable, centres: Mapping[str, str | None], pictures: Mapping[str, CasePicture]) -> str:
    if not table.cases:
        return ""
    summarised = [column for column in table.columns if column.summary]
    has_centres = any(centres.values())
    headers = ["Case", *(["Centre"] if has_centres else []), *table.reference]
    headers += [*(column.summary for column in summarised), "Details"]
    rows = []
    for index, case in enumerate(table.cases):
        centre = centres[case]
        cells = [Cell(render_choice("case", case))]
        if has_centres:
            cells.append(Cell(render_choice("centre", centre) if centre else "-"))
        cells += [_make_cell(values[index]) for values in table.reference.values()]
        cells += [_make_summary_cell(column, index) for column in summarised]
        link = f'<a href="#{quote(f"case-{case}")}">{"picture" if case in pictures else "answers"}</a>'
        rows.append(Row([*cells, Cell(link)], _list_keys(case, centre)))
    return render_table("Cases, with the reference and a summary of all teams", headers, rows)


def _make_summary_cell(column: AnswerColumn, index: int) -> Cell:
    """Make the cell of the teams' median or of the fraction of correct teams. The page's script does the same.

    A median over teams that correctly mark nothing has no meaning. If the structure is absent, the cell shows how many
    teams mark it.
    """
    numbers = [value for value in column.values[index] if isinstance(value, float | int)]
    if not numbers:
        return Cell("-")
    if index in column.absent:
        return Cell(f"{numbers.count(0)} of {len(numbers)} teams wrong")
    figure = statistics.fmean(numbers) if "fraction" in column.summary else statistics.median(numbers)
    return Cell(f"{figure:z.3f}", figure)


def _make_cell(value: Value) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(escape(value)) if isinstance(value, str) else Cell(_format_number(value), value)


def _format_number(value: float) -> str:
    """Format counts and days as whole numbers, and volumes with one decimal."""
    return str(value) if isinstance(value, int) else f"{value:z.1f}"


def _list_keys(case: str, centre: str | None) -> dict[str, str]:
    return {"case": case, "centre": centre} if centre else {"case": case}


def _render_card(case: str, table: CaseTable, picture: CasePicture | None, centre: str | None) -> str:
    """Render a card whose summary names the case and the reference, and whose content is the picture."""
    keys = "".join(f' data-{key}="{escape(value)}"' for key, value in _list_keys(case, centre).items())
    content = "" if picture is None else _render_picture(picture)
    reference = escape(" · ".join(_describe_reference(case, table)))
    return (
        f'<details class="card" id="{escape(f"case-{case}")}"{keys}>'
        f"<summary><b>{escape(case)}</b> <span>{reference}</span></summary><div>{content}</div></details>\n"
    )


def _render_picture(picture: CasePicture) -> str:
    alt = f"CT and PET of {picture.case} in three planes with contours"
    image = f'<img loading="lazy" {_PICTURE_SIZE} alt="{escape(alt)}" src="{quote(picture.address)}">'
    contours = f' data-contours="{quote(picture.contours)}"' if picture.contours else ""
    return f'<div class="picture"{contours}>{image}</div>{render_list(picture.notes, "warnings")}'


def _describe_reference(case: str, table: CaseTable) -> list[str]:
    """Describe the volumes, lesions, follow-up and classes of a case, as far as the rows contain them."""
    if case not in table.cases:
        return []
    index = table.cases.index(case)
    values = {title: figures[index] for title, figures in table.reference.items()}
    return [_describe_figure(title, value) for title, value in values.items() if value is not None]


def _describe_figure(title: str, value: float | str) -> str:
    """Write a figure with its unit behind the number: `GTVp 4.5 ml`."""
    name, _, unit = title.rstrip(")").partition(" (")
    text = value if isinstance(value, str) else _format_number(value)
    return f"{name} {text} {unit}".rstrip()


def _encode_answers(table: CaseTable) -> dict[str, Any]:
    """Encode the answers for the page's script: a column lists the values of all teams for one case after the other."""
    columns = [
        {
            "title": column.title,
            "summary": column.summary,
            "absent": sorted(column.absent),
            **encode_column([value for case_values in column.values for value in case_values]),
        }
        for column in table.columns
    ]
    return {"cases": list(table.cases), "teams": list(table.teams), "columns": columns}
