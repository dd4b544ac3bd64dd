"""The report of a challenge: leaderboards, analyses and cases on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from contract.errors import OutputError
from evaluation.analyses.analysis import Analysis
from evaluation.analyses.sources import TaskResults
from evaluation.analyses.tables import scheme_title
from evaluation.page.charts import figure
from evaluation.page.document import HtmlPage, Section, document_html
from evaluation.page.html import bullets, notes, paragraph
from evaluation.ranking.table import identical_lines
from evaluation.report.cases import CasePicture, cases_html
from evaluation.report.leaderboard import leaderboard

_PAGE_SUFFIXES: Final = (".html", ".htm")
BETWEEN_TASKS: Final = "between-tasks"
_TIES: Final = {
    "min": "share the best of their ranks",
    "max": "share the worst of their ranks",
    "average": "share the mean of their ranks",
    "dense": "share a rank, and the next team takes the next rank",
}


@dataclass(frozen=True)
class PageContent:
    """Content of the page.

    `note` is a line of warning under the title, may be empty. `analyses` are by the tasks' keys, those of several
    tasks under `BETWEEN_TASKS`. `picture_notes` are lines on what the pictures lack.
    """

    title: str
    note: str
    results: Sequence[TaskResults]
    analyses: Mapping[str, Sequence[Analysis]]
    pictures: Sequence[CasePicture]
    colours: Mapping[str, str]
    picture_notes: Sequence[str] = ()


def page_file(output: Path) -> Path:
    """The HTML file that `--output` names: itself, or index.html in a folder.

    Raises OutputError: a file lies where a folder is needed.
    """
    is_file = output.suffix.lower() in _PAGE_SUFFIXES and not output.is_dir()
    page = output if is_file else output / "index.html"
    existing = next(folder for folder in page.absolute().parents if folder.exists())
    if not existing.is_dir():
        raise OutputError("--output", f"found the file {existing.name}", "an HTML file, or a folder for index.html")
    return page


def build_page(content: PageContent) -> str:
    """The report as one HTML document; of external files it names only the pictures."""
    sections = [_task_section(result, content) for result in content.results]
    between = content.analyses.get(BETWEEN_TASKS, ())
    if between:
        sections.append(Section(BETWEEN_TASKS, "Between tasks", _figures(between, BETWEEN_TASKS)))
    cases = cases_html(content.results, content.pictures, content.colours, content.picture_notes)
    if cases:
        sections.append(Section("cases", "Cases", cases))
    teams, tasks = len(content.colours), len(content.results)
    lead = (
        f"{teams} team{'s' * (teams != 1)}, {tasks} task{'s' * (tasks != 1)}. "
        "Values are followed by their 95% intervals. "
        "Choose a team, a centre or a case to highlight it everywhere."
    )
    origin = content.results[0].teams[0].provenance
    footer = (
        f"Edition {origin.get('edition')}, version {origin.get('version')}, "
        f"{origin.get('bootstraps')} bootstrap replicates, seed {origin.get('seed')}. "
        "All figures come from the metrics.json and leaderboard.json files of the results."
    )
    scripts = ("report/cases.js",)
    return document_html(HtmlPage(content.title, lead, sections, footer, content.note, content.colours, scripts))


def _task_section(results: TaskResults, content: PageContent) -> Section:
    anchor = results.key
    title = f"Task {results.task.number}: {results.task.title}"
    cases = results.teams[0].cases
    about = (
        f"{cases.get('used')} of {cases.get('in_ground_truth')} cases. "
        f"Official order by {scheme_title(results.board['official'], results.board)}; "
        f"equal teams {_TIES[results.board['ties']]}."
    )
    figures = _figures(content.analyses.get(results.key, ()), anchor)
    table = leaderboard(results.board, content.colours)
    same = bullets(identical_lines(results.board), "warnings")
    return Section(anchor, title, f"{paragraph(about)}{table}{same}{notes(_warning_lines(results))}{figures}")


def _figures(analyses: Sequence[Analysis], prefix: str) -> str:
    """A list of links to the figures, and the figures."""
    if not analyses:
        return ""
    links = [f'<a href="#{prefix}-{one.name}">{escape(one.title)}</a>' for one in analyses]
    contents = (
        f'<details class="contents"><summary>{len(links)} figures</summary>'
        f'<nav aria-label="Figures of {prefix}">{" ".join(links)}</nav></details>'
    )
    figures = "\n".join(figure(one, f"{prefix}-{one.name}") for one in analyses)
    return f'{contents}<div class="figures">\n{figures}\n</div>'


def _warning_lines(results: TaskResults) -> list[str]:
    lines = []
    common = set.intersection(*(set(team.warnings) for team in results.teams)) if len(results.teams) > 1 else set()
    lines += [f"all teams: {text}" for text in sorted(common)]
    for team in results.teams:
        lines += [f"{team.team}: {text}" for text in team.warnings if text not in common]
        failed = {one["case"] for one in team.cases.get("failed", ())}  # of several answers each has an entry
        missing = team.cases.get("missing", ())
        numbers = {"without a prediction": len(missing), "with an unusable prediction": len(failed)}
        parts = [f"{number} case{'s' * (number > 1)} {text}" for text, number in numbers.items() if number]
        lines += [f"{team.team}: {', '.join(parts)}"] * bool(parts)
    return lines
