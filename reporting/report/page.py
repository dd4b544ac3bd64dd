"""Build the page of a challenge with three collapsible sections: the result, the figures by answer, and the cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from evaluation.ranking.table import format_identical_answers
from evaluation.results.documents import CaseCounts
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import get_answer_title
from reporting.page.charts import render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import render_list, render_notes
from reporting.report.cases import CasePicture, render_cases
from reporting.report.leaderboard import describe_winner, render_leaderboard

BETWEEN_TASKS: Final = "between-tasks"
# Analyses of the ranking are shown below the leaderboard.
_RANKING_ANALYSES: Final = ("rank-stability", "significance", "ranks-over-cases", "rank-correlation")
# With more teams the matrix of pairwise tests fills the screen, so it is closed at first.
_MAX_TEAMS_OF_OPEN_MATRIX: Final = 12
NOT_CHECKED: Final = "made only from leaderboard.json, so its values cannot be checked"
WITH_CASES: Final = "This page contains outcomes of single patients: publish it only if you may publish them."


@dataclass(frozen=True)
class PageContent:
    """Content of the page.

    Attributes:
        title: The heading.
        note: A warning below the heading; it may be empty.
        results: The results of each task.
        analyses: The analyses by the task's key; analyses of several tasks have the key `BETWEEN_TASKS`.
        pictures: The pictures of the cases.
        colours: The colour of each team.
        picture_notes: Lines about missing pictures and masks.
        edition: The title of the edition.
        date: The day when the page was written.
        citation: The citation that the edition asks for.
        with_cases: Whether the page shows data of single patients: names, outcomes, answers and pictures.
    """

    title: str
    note: str
    results: Sequence[TaskResults]
    analyses: Mapping[str, Sequence[Analysis]]
    pictures: Sequence[CasePicture]
    colours: Mapping[str, str]
    picture_notes: Sequence[str] = ()
    edition: str = ""
    date: str = ""
    citation: str = ""
    with_cases: bool = False

    def select_analyses(self, key: str) -> list[Analysis]:
        """Select the analyses of a task, or of `BETWEEN_TASKS`, that the page may show."""
        return select_analyses(self.analyses.get(key, ()), with_cases=self.with_cases)


def select_analyses(analyses: Iterable[Analysis], *, with_cases: bool) -> list[Analysis]:
    """Select all analyses or, without cases, the analyses that reveal nothing about single patients."""
    return [analysis for analysis in analyses if with_cases or not analysis.shows_patients]


def build_page(content: PageContent) -> str:
    """Build the page as one HTML document. Only its pictures are external files."""
    return render_page(
        HtmlPage(
            title=content.title,
            lead=_write_lead(content),
            sections=_build_sections(content),
            footer=_write_footer(content),
            note=" ".join(filter(None, [WITH_CASES if content.with_cases else "", content.note])),
            colours=content.colours,
            scripts=["report/cases.js"] if content.with_cases else [],
        )
    )


def _write_lead(content: PageContent) -> str:
    choices = "a team, a centre or a case" if content.with_cases else "a team or a centre"
    return f"Values are followed by their 95% intervals. Choose {choices} to highlight it everywhere."


def _write_footer(content: PageContent) -> str:
    """Write edition, date, version, number of scored cases and citation."""
    versions = dict.fromkeys(metrics.provenance.version for task in content.results for metrics in task.teams.values())
    known_versions = [version for version in versions if version]
    checked = [task for task in content.results if not task.is_unchecked]
    scored = [f"task {task.task.number}: {next(iter(task.teams.values())).cases.used}" for task in checked]
    facts = [
        content.edition,
        content.date,
        f"hecktor {', '.join(known_versions)}" if known_versions else "",
        f"scored cases of {', '.join(scored)}" if scored else "",
    ]
    sentences = [
        f"{'; '.join(filter(None, facts))}.",
        f"All figures come from the {'metrics.json and ' * bool(checked)}leaderboard.json files of the results.",
    ]
    if content.citation:
        sentences.append(f"Cite {content.citation}.")
    return " ".join(sentences)


def _build_sections(content: PageContent) -> list[Section]:
    """Build the sections that have content. At first only the result is open."""
    result = _render_winners(content.results)
    result += "".join(_render_ranking(task, content) for task in content.results)
    by_answer = "".join(_render_answers(task, content) for task in content.results)
    between_tasks = content.select_analyses(BETWEEN_TASKS)
    by_answer += _render_group("Between tasks", BETWEEN_TASKS, between_tasks, opens_first=False)
    sections = [Section("result", "Result", result, fold="open")]
    if by_answer:
        sections.append(Section("by-answer", "By answer", by_answer, fold="closed"))
    if content.with_cases:
        by_case = render_cases(content.results, content.pictures, content.picture_notes)
        by_case += "".join(_render_case_analyses(task, content) for task in content.results)
        if by_case:
            sections.append(Section("by-case", "By case", by_case, fold="closed"))
    return sections


def _render_winners(results: Sequence[TaskResults]) -> str:
    """Render one sentence about each task's winner."""
    lines = [f"<dt>{escape(_get_title(task))}</dt><dd>{escape(describe_winner(task))}</dd>" for task in results]
    return f'<dl class="winners">{"".join(lines)}</dl>'


def _get_title(results: TaskResults) -> str:
    return f"Task {results.task.number}: {results.task.title}"


def _render_ranking(results: TaskResults, content: PageContent) -> str:
    """Render the leaderboard of a task, its warnings and the analyses of its ranking."""
    analyses = {analysis.name: analysis for analysis in content.select_analyses(results.key)}
    ranking_analyses = [analyses[name] for name in _RANKING_ANALYSES if name in analyses]
    open_names = ["rank-stability"]
    if len(results.board.teams) <= _MAX_TEAMS_OF_OPEN_MATRIX:
        open_names.append("significance")
    parts = [
        render_leaderboard(results, content.colours),
        render_list(format_identical_answers(results.board), "warnings"),
        render_notes(_list_warnings(results, with_cases=content.with_cases)),
        _render_figures(ranking_analyses, results.key, open_names),
    ]
    return _render_part(results.key, _get_title(results), "".join(parts))


def _render_answers(results: TaskResults, content: PageContent) -> str:
    """Render a task's analyses by answer, except analyses of the ranking and of individual cases."""
    analyses = [
        analysis
        for analysis in content.select_analyses(results.key)
        if analysis.name not in _RANKING_ANALYSES and "case" not in analysis.columns
    ]
    answers = results.task.answers
    if len(answers) == 1:
        return _render_group(_get_title(results), results.key, analyses, opens_first=True)
    groups = []
    for answer in answers:
        answer_analyses = [analysis for analysis in analyses if analysis.name.startswith(f"{answer.name}-")]
        groups.append(_render_group(get_answer_title(answer), results.key, answer_analyses, opens_first=True))
        analyses = [analysis for analysis in analyses if analysis not in answer_analyses]
    return "".join([_render_group("All answers", results.key, analyses, opens_first=True), *groups])


def _render_case_analyses(results: TaskResults, content: PageContent) -> str:
    analyses = [analysis for analysis in content.select_analyses(results.key) if "case" in analysis.columns]
    return _render_group(_get_title(results), results.key, analyses, opens_first=False)


def _render_group(title: str, prefix: str, analyses: Sequence[Analysis], *, opens_first: bool) -> str:
    """Render collapsed figures below a heading, or return an empty string if there are no figures.

    Args:
        title: The heading.
        prefix: The first part of the figures' ids.
        analyses: The analyses of the figures.
        opens_first: Whether the first figure is open.
    """
    open_names = [analysis.name for analysis in analyses[:1]] if opens_first else []
    figures = _render_figures(analyses, prefix, open_names)
    return _render_part("", title, figures) if figures else ""


def _render_part(anchor: str, title: str, html: str) -> str:
    attribute = f' id="{escape(anchor)}"' if anchor else ""
    return f'<section class="group"{attribute}><h2>{escape(title)}</h2>{html}</section>'


def _render_figures(analyses: Sequence[Analysis], prefix: str, open_names: Collection[str]) -> str:
    figures = [
        render_figure(analysis, f"{prefix}-{analysis.name}", fold="open" if analysis.name in open_names else "closed")
        for analysis in analyses
    ]
    content = "".join(figures)
    return f'<div class="figures">\n{content}\n</div>' if content else ""


def _list_warnings(results: TaskResults, *, with_cases: bool) -> list[str]:
    """List the warnings that all teams share and the warnings of each team.

    Without cases, warnings that name patients are only counted.
    """
    pattern = None if with_cases else _compile_names(_collect_patients(results))
    warnings = {team: _hide_names(metrics.warnings, pattern) for team, metrics in results.teams.items()}
    shared = set.intersection(*map(set, warnings.values())) if len(warnings) > 1 else set()
    lines = [NOT_CHECKED] if results.is_unchecked else []
    if results.board.left_out_cases:
        lines.append(f"ranked without {_count_cases(len(results.board.left_out_cases))} of the results")
    lines += [f"all teams: {text}" for text in sorted(shared)]
    for team, metrics in results.teams.items():
        lines += [f"{team}: {text}" for text in warnings[team] if text not in shared]
        lines += [f"{team}: {text}" for text in _describe_lost_cases(metrics.cases)]
    return lines


def _describe_lost_cases(cases: CaseCounts) -> list[str]:
    """Count the cases without a usable prediction in one line. The list is empty if all cases have one."""
    failed = {fault.case for fault in cases.failed}  # a case with several failed answers has several entries
    numbers = {"without a prediction": len(cases.missing), "with an unusable prediction": len(failed)}
    parts = [f"{_count_cases(number)} {text}" for text, number in numbers.items() if number]
    return [", ".join(parts)] if parts else []


def _count_cases(number: int) -> str:
    return f"{number} {'case' if number == 1 else 'cases'}"


def _collect_patients(results: TaskResults) -> frozenset[str]:
    """Collect all names of cases in the results, including names that teams made up."""
    names: set[str] = set()
    for metrics in results.all_results.values():
        cases = metrics.cases
        names.update(row["case"] for row in metrics.results)
        names.update(fault.case for fault in cases.failed)
        names.update(cases.missing, cases.unknown, cases.duplicate)
        for skipped in cases.skipped.values():
            if isinstance(skipped, list):
                names.update(skipped)
    return frozenset(names)


def _compile_names(patients: frozenset[str]) -> re.Pattern[str] | None:
    """Compile the pattern that finds the names of patients in a text, or return None if there is no patient."""
    if not patients:
        return None
    # Longer names come first, so that a name is found before a name that it starts with.
    names = "|".join(re.escape(name) for name in sorted(patients, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)")


def _hide_names(lines: Sequence[str], pattern: re.Pattern[str] | None) -> list[str]:
    """Replace the lines that name patients by a line with their number. Without a pattern return all lines."""
    if pattern is None:
        return list(lines)
    public = [line for line in lines if not pattern.search(line)]
    count = len(lines) - len(public)
    if count == 0:
        return public
    return [*public, "1 warning that names patients" if count == 1 else f"{count} warnings that name patients"]
