"""The report of a challenge on one page of three folds: the result, by answer, by case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from reporting.report.cases import CasePicture, cases_html
from reporting.report.leaderboard import describe_winner, render_leaderboard

BETWEEN_TASKS: Final = "between-tasks"
# Analyses of the ranking are below the leaderboard, the first two open; those with a line per case are under "By case".
_OF_RANKING: Final = ("rank-stability", "significance", "ranks-over-cases", "rank-correlation")
# A map of more teams than these fills the screen.
_FEW_TEAMS: Final = 12
NOT_CHECKED: Final = "made from leaderboard.json alone, so its values cannot be checked"
WITH_CASES: Final = "This page holds outcomes of single patients: publish it only if you may publish them."


@dataclass(frozen=True)
class PageContent:
    """Content of the page.

    `note` is a line of warning under the title, may be empty. `analyses` are by the tasks' keys, those of several
    tasks under `BETWEEN_TASKS`. `picture_notes` are lines on what the pictures lack. `edition` is the edition's title,
    `citation` what it asks to cite, `date` the day on which the page was written. `with_cases` adds what single
    patients can be known by: their names, outcomes, answers and pictures.
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

    def analyses_of(self, key: str) -> list[Analysis]:
        """The analyses of a task, or of `BETWEEN_TASKS`, that the page may show."""
        return select_analyses(self.analyses.get(key, ()), with_cases=self.with_cases)


def select_analyses(analyses: Iterable[Analysis], *, with_cases: bool) -> list[Analysis]:
    """All analyses, or without cases those that reveal nothing about single patients."""
    return [one for one in analyses if with_cases or not one.shows_patients]


def build_page(content: PageContent) -> str:
    """The report as one HTML document; of external files it names only the pictures."""
    result = _winners(content.results) + "".join(_result_of_task(one, content) for one in content.results)
    by_answer = "".join(_answers_of_task(one, content) for one in content.results)
    by_answer += _group("Between tasks", BETWEEN_TASKS, content.analyses_of(BETWEEN_TASKS), opened=False)
    by_case = ""
    if content.with_cases:
        by_case = cases_html(content.results, content.pictures, content.picture_notes)
        by_case += "".join(_cases_of_task(one, content) for one in content.results)
    folds = [("result", "Result", result), ("by-answer", "By answer", by_answer), ("by-case", "By case", by_case)]
    sections = [
        Section(anchor, heading, html, fold="open" if anchor == "result" else "closed")
        for anchor, heading, html in folds
        if html
    ]
    choices = "a team, a centre or a case" if content.with_cases else "a team or a centre"
    lead = f"Values are followed by their 95% intervals. Choose {choices} to highlight it everywhere."
    footer = f"{_origin(content)} All figures come from the metrics.json and leaderboard.json files of the results."
    footer += f" Cite {content.citation}." if content.citation else ""
    scripts = ("report/cases.js",) if content.with_cases else ()
    note = " ".join(filter(None, (WITH_CASES if content.with_cases else "", content.note)))
    return render_page(HtmlPage(content.title, lead, sections, footer, note, content.colours, scripts))


def _winners(results: Sequence[TaskResults]) -> str:
    """One sentence for each task, above all tables."""
    lines = [f"<dt>{escape(_title(one))}</dt><dd>{escape(describe_winner(one))}</dd>" for one in results]
    return f'<dl class="winners">{"".join(lines)}</dl>'


def _title(results: TaskResults) -> str:
    return f"Task {results.task.number}: {results.task.title}"


def _origin(content: PageContent) -> str:
    """Edition, date, version and number of scored cases."""
    teams = [metrics for one in content.results for metrics in one.teams.values()]
    versions = dict.fromkeys(one.provenance.version for one in teams if one.provenance.version)
    checked = [one for one in content.results if not one.is_alone]
    scored = [f"task {one.task.number}: {next(iter(one.teams.values())).cases.used}" for one in checked]
    facts = [content.edition, content.date, f"hecktor {', '.join(versions)}" if versions else ""]
    facts.append(f"scored cases of {', '.join(scored)}" if scored else "")
    return f"{'; '.join(filter(None, facts))}."


def _result_of_task(results: TaskResults, content: PageContent) -> str:
    """The leaderboard of a task and the analyses of its ranking."""
    by_name = {one.name: one for one in content.analyses_of(results.key)}
    few = len(results.board.teams) <= _FEW_TEAMS
    opened = {"rank-stability": True, "significance": few}
    figures = _figures((by_name[name] for name in _OF_RANKING if name in by_name), results.key, opened)
    same = render_list(format_identical_answers(results.board), "warnings")
    warnings = render_notes(_warning_lines(results, with_cases=content.with_cases))
    parts = (render_leaderboard(results, content.colours), same, warnings, figures)
    return _part(results.key, _title(results), "".join(parts))


def _answers_of_task(results: TaskResults, content: PageContent) -> str:
    """Analyses of a task by answer, except those of the ranking and of single cases."""
    analyses = [
        one for one in content.analyses_of(results.key) if one.name not in _OF_RANKING and "case" not in one.columns
    ]
    if len(results.task.answers) == 1:
        return _group(_title(results), results.key, analyses, opened=True)
    html = ""
    for answer in results.task.answers:
        own = [one for one in analyses if one.name.startswith(f"{answer.name}-")]
        html += _group(get_answer_title(answer), results.key, own, opened=True)
        analyses = [one for one in analyses if one not in own]
    return _group("All answers", results.key, analyses, opened=True) + html


def _cases_of_task(results: TaskResults, content: PageContent) -> str:
    analyses = [one for one in content.analyses_of(results.key) if "case" in one.columns]
    return _group(_title(results), results.key, analyses, opened=False)


def _group(title: str, prefix: str, analyses: Sequence[Analysis], *, opened: bool) -> str:
    """Folded figures below a heading, the first one open if `opened`; empty without figures."""
    figures = _figures(analyses, prefix, {analyses[0].name: opened} if analyses else {})
    return _part("", title, figures) if figures else ""


def _part(anchor: str, title: str, html: str) -> str:
    place = f' id="{escape(anchor)}"' if anchor else ""
    return f'<section class="group"{place}><h2>{escape(title)}</h2>{html}</section>'


def _figures(analyses: Iterable[Analysis], prefix: str, opened: Mapping[str, bool]) -> str:
    figures = [
        render_figure(one, f"{prefix}-{one.name}", fold="open" if opened.get(one.name) else "closed")
        for one in analyses
    ]
    return f'<div class="figures">\n{"".join(figures)}\n</div>' if any(figures) else ""


def _warning_lines(results: TaskResults, *, with_cases: bool) -> list[str]:
    """The warnings of all teams and of each one; without cases those that name patients are only counted."""
    lines = [NOT_CHECKED] if results.is_alone else []
    patients = frozenset() if with_cases else _patients(results)
    warnings = {team: _without_names(metrics.warnings, patients) for team, metrics in results.teams.items()}
    common = set.intersection(*map(set, warnings.values())) if len(warnings) > 1 else set()
    lines += [f"all teams: {text}" for text in sorted(common)]
    for team, metrics in results.teams.items():
        lines += [f"{team}: {text}" for text in warnings[team] if text not in common]
        failed = {one.case for one in metrics.cases.failed}  # of several answers each has an entry
        numbers = {"without a prediction": len(metrics.cases.missing), "with an unusable prediction": len(failed)}
        parts = [f"{number} case{'s' * (number > 1)} {text}" for text, number in numbers.items() if number]
        lines += [f"{team}: {', '.join(parts)}"] * bool(parts)
    return lines


def _patients(results: TaskResults) -> frozenset[str]:
    """All names of cases that the results hold, also those that teams made up."""
    names: set[str] = set()
    for metrics in results.all.values():
        names.update(row["case"] for row in metrics.results)
        names.update(_names_in(metrics.cases))
    return frozenset(names)


def _names_in(cases: CaseCounts) -> Iterator[str]:
    """Names of failed, missing, unknown, duplicate and skipped cases."""
    yield from (one.case for one in cases.failed)
    yield from (*cases.missing, *cases.unknown, *cases.duplicate)
    for names in cases.skipped.values():
        if isinstance(names, list):
            yield from names


def _without_names(lines: Sequence[str], patients: frozenset[str]) -> list[str]:
    if not patients:
        return list(lines)
    named = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(patients, key=len, reverse=True)))})(?!\w)")
    kept = [line for line in lines if not named.search(line)]
    left = len(lines) - len(kept)
    return [*kept, f"{left} warning{'s' * (left > 1)} that name{'s' * (left == 1)} patients"] if left else kept
