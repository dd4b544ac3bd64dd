"""The report page: one HTML file that contains all styles, plots and pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from evaluation.analyses.sources import TaskResults
from evaluation.report.drawing import COLOURS
from evaluation.report.patient_table import facts_of, patient_table
from evaluation.report.pictures import CT_WINDOW_HU, PET_SHOWN_SUV, REFERENCE_COLOUR, PatientPicture
from evaluation.report.plots import metrics_plot, special_plots
from evaluation.report.rank_plots import rank_plots

# Tables with more columns have smaller letters.
WIDE_TABLE: Final = 9
_TIES: Final = {
    "min": "share the best of their ranks",
    "max": "share the worst of their ranks",
    "average": "share the mean of their ranks",
    "dense": "share a rank, and the next team takes the next rank",
}


@dataclass(frozen=True)
class PageContent:
    """Content of the page. `note` is a line of warning under the title, may be empty."""

    title: str
    note: str
    results: Sequence[TaskResults]
    pictures: Sequence[PatientPicture]
    colours: Mapping[str, str]


def colours_of(teams: Sequence[str]) -> dict[str, str]:
    """A colour for each team, the same in every plot and picture."""
    return {team: COLOURS[place % len(COLOURS)] for place, team in enumerate(teams)}


def build_page(content: PageContent) -> str:
    """The report as one HTML document without external resources."""
    folder = files("evaluation.report")
    sections = [_task_section(results, content.colours) for results in content.results]
    links = [(f"task{results.task.number}", _task_title(results)) for results in content.results]
    if content.pictures:
        sections.append(_patients_section(content))
        links.append(("patients", f"{len(content.pictures)} patients"))
    teams, tasks = len(content.colours), len(content.results)
    lead = (
        f"{teams} team{'s' * (teams != 1)}, {tasks} task{'s' * (tasks != 1)}. "
        "Values are followed by their 95% bootstrap intervals."
    )
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(content.title),
        style=folder.joinpath("style.css").read_text(encoding="utf-8").strip(),
        lead=escape(lead),
        note=f'<p class="note">{escape(content.note)}</p>' if content.note else "",
        navigation=" ".join(f'<a href="#{anchor}">{escape(text)}</a>' for anchor, text in links),
        sections="\n".join(sections),
        footer=escape(_footer(content.results[0])),
    )


def _footer(results: TaskResults) -> str:
    origin = results.teams[0].provenance
    return (
        f"Edition {origin.get('edition')}, version {origin.get('version')}, "
        f"{origin.get('bootstraps')} bootstrap replicates, seed {origin.get('seed')}. "
        "All figures come from the metrics.json files beside this page."
    )


def _task_title(results: TaskResults) -> str:
    return f"Task {results.task.number}: {results.task.title}"


def _task_section(results: TaskResults, colours: Mapping[str, str]) -> str:
    plots = [
        ("Every metric with its 95% interval", metrics_plot(results, colours)),
        *rank_plots(results, colours),
        *special_plots(results, colours),
    ]
    figures = "\n".join(f"<figure><figcaption>{escape(text)}</figcaption>{svg}</figure>" for text, svg in plots)
    cases = results.teams[0].cases
    about = (
        f"{cases.get('used')} of {cases.get('in_ground_truth')} cases. "
        f"Official order by {_scheme(results.board, results.board['official'])}; "
        f"equal teams {_TIES[results.board['ties']]}."
    )
    return (
        f'<section id="task{results.task.number}"><h2>{escape(_task_title(results))}</h2><p>{escape(about)}</p>'
        f"{_leaderboard_table(results.board, colours)}{_warnings(results)}{figures}</section>"
    )


def _leaderboard_table(board: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    schemes = board["teams"][0]["rankings"] if board["teams"] else ()
    others = [name for name in schemes if name != board["official"]]
    heads = ["Rank", "Team", *board["metrics"].values(), *(f"Rank by {_scheme(board, name)}" for name in others)]
    rows = []
    for entry in board["teams"]:
        cells = [f'<td class="rank">{entry["rank"]}</td>', f"<td>{_team(entry['team'], colours)}</td>"]
        cells += [f"<td>{_metric_cell(entry['metrics'][name])}</td>" for name in board["metrics"]]
        cells += [f"<td>{entry['rankings'][name]['rank']}</td>" for name in others]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    for entry in board["unranked"]:
        reason = f"not ranked: no {', '.join(entry['without'])}"
        width = len(heads) - 2
        rows.append(
            f"<tr><td>-</td><td>{_team(entry['team'], colours)}</td><td colspan={width}>{escape(reason)}</td></tr>"
        )
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    wide = ' class="wide"' if len(heads) > WIDE_TABLE else ""
    return (
        f'<div class="scroll"><table{wide}><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _metric_cell(figures: Mapping[str, Any]) -> str:
    interval = ""
    if figures["ci95_low"] is not None:
        interval = f' <span class="interval">{figures["ci95_low"]:.3f} to {figures["ci95_high"]:.3f}</span>'
    best = " best" if figures["rank"] == 1 else ""
    return f'<span class="value{best}">{figures["value"]:.3f}</span>{interval}'


def _warnings(results: TaskResults) -> str:
    lines = []
    for team in results.teams:
        lines += [f"{team.team}: {text}" for text in team.warnings]
        missing, failed = len(team.cases.get("missing", ())), len(team.cases.get("failed", ()))
        if missing or failed:
            lines.append(f"{team.team}: {missing} cases without a prediction, {failed} with an unusable one")
    return _list(lines)


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _patients_section(content: PageContent) -> str:
    legend = [f"<li>{_swatch(REFERENCE_COLOUR)}reference</li>"]
    legend += [f"<li>{_team(team, content.colours)}</li>" for team in content.colours]
    legend += ['<li><span class="line"></span>GTVp</li>', '<li><span class="line dashed"></span>GTVn</li>']
    about = (
        f"Planes through the reference's GTVp and its largest GTVn. CT from {CT_WINDOW_HU[0]:g} to {CT_WINDOW_HU[1]:g} "
        f"HU, PET over it from {PET_SHOWN_SUV[0]:g} to {PET_SHOWN_SUV[1]:g} SUV. R, L, A, P, S, I: the patient's "
        "right, left, front, back, head and feet."
    )
    intro = f'<h2>Patients</h2><p>{escape(about)}</p><ul class="legend">{"".join(legend)}</ul>'
    cards = [_patient_card(picture, content) for picture in content.pictures]
    return f'<section id="patients">{intro}</section>\n' + "\n".join(cards)


def _patient_card(picture: PatientPicture, content: PageContent) -> str:
    case = escape(picture.case)
    source = base64.b64encode(picture.jpeg).decode("ascii")
    facts = escape(facts_of(picture.case, content.results))
    about = f"CT and PET of {case} in three planes with contours"
    heads, cells_of = patient_table(picture.case, content.results)
    rows = [
        f"<tr><td>{_team(team, content.colours)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for team, cells in cells_of.items()
    ]
    return (
        f'<article id="patient-{case}"><header><h3>{case}</h3><span class="facts">{facts}</span></header>'
        f'<img loading="lazy" alt="{about}" src="data:image/jpeg;base64,{source}">'
        f"{_table(['Team', *heads], rows)}{_list(picture.notes)}</article>"
    )


def _team(team: str, colours: Mapping[str, str]) -> str:
    return f"{_swatch(colours[team])}{escape(team)}"


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span>'


def _scheme(board: Mapping[str, Any], name: str) -> str:
    """The title of a ranking."""
    return str(board["metrics"].get(name, name.replace("_", " ").replace("borda", "Borda")))
