"""The facts of a report as a list, and a methods text for each task to paste into a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from evaluation.analyses.rankings import TESTS
from evaluation.analyses.sources import TaskResults, team_names
from evaluation.analyses.tables import answer_title, scheme_title

_TIES: Final = {
    "min": "share the best of their ranks",
    "max": "share the worst of their ranks",
    "average": "share the mean of their ranks",
    "dense": "share a rank, and the next team takes the next rank",
}
_MISSING: Final = {
    "worst": "counts as the worst possible answer",
    "tie": "counts as tied with each other risk",
    "skip": "is left out of the team's metrics",
}


def facts_html(results: Sequence[TaskResults], edition: str, date: str) -> str:
    """Edition, versions, date, teams, and for each task the scored cases and the failures."""
    provenances = [team.provenance for one in results for team in one.teams]
    known = [one for one in results if one.teams[0].cases]  # a leaderboard alone holds no numbers of cases
    facts = [
        ("Edition", edition or _listed(one.get("edition") for one in provenances)),
        ("Version", _listed(one.get("version") for one in provenances)),
        ("Date", date),
        ("Teams", str(len(team_names(results)))),
        ("Cases scored", "; ".join(_of_task(one, results, _scored(one)) for one in known)),
        ("Failures", "; ".join(_of_task(one, results, _failures(one)) for one in known)),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts if value)
    return f'<dl class="facts">{items}</dl>'


def _of_task(one: TaskResults, results: Sequence[TaskResults], text: str) -> str:
    return f"task {one.task.number}: {text}" if len(results) > 1 else text


def _scored(results: TaskResults) -> str:
    cases = results.teams[0].cases
    return f"{cases.get('used')} of {cases.get('in_ground_truth')}"


def _failures(results: TaskResults) -> str:
    """Numbers of missing or unusable predictions and of their teams; a case with several answers counts once."""
    by_team = [_failed_cases(team.cases) for team in results.teams]
    teams = sum(map(bool, by_team))
    if not teams:
        return "none"
    return f"{sum(by_team)} missing or unusable predictions of {teams} team{'s' * (teams > 1)}"


def _failed_cases(cases: Mapping[str, Any]) -> int:
    if "missing" not in cases:  # a file without rows
        return int(cases["used"]) - int(cases["answered"])
    return len({*_cases(cases["missing"]), *_cases(cases["failed"])})


def _cases(entries: Iterable[Any]) -> Iterable[str]:
    return (str(one["case"]) if isinstance(one, dict) else str(one) for one in entries)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def methods_text(results: TaskResults, edition: str) -> str:
    """How a task was scored and ranked, in the order of the BIAS guideline (Maier-Hein et al. 2020)."""
    board, task = results.board, results.task
    provenance = results.teams[0].provenance
    name = edition or str(provenance.get("edition"))
    metrics, used = list(board["metrics"].values()), results.teams[0].cases.get("used")
    sentences = [
        (
            f"{name}, task {task.number} ({task.title}): {len(board['teams'])} teams were ranked"
            f"{'' if used is None else f' on {used} cases'}."
        ),
        f"Metrics: {', '.join(metrics)}.",
        *_missing(results),
        f"Ranking: by {scheme_title(board['official'], board)}; equal teams {_TIES[board['ties']]}.",
    ]
    if "bootstraps" in provenance:
        sentences.append(
            f"Intervals of 95% come from {provenance['bootstraps']} bootstrap samples of the cases "
            f"(seed {provenance['seed']}), those of recalls and of their means from Wilson's formula."
        )
    if board.get("stability"):
        sentences.append(
            f"Stability: all teams were ranked again on {board['stability']['bootstraps']} bootstrap samples of the "
            "cases, and each of these rankings was compared with the official one by Kendall's tau-b."
        )
    if board.get("comparisons"):
        sentences.append(
            f"{_tests(results)} p was corrected by Holm's method over all ordered pairs of teams, and "
            "differences with p < 0.05 count as significant."
        )
    sentences.append(
        f"Scores, ranks and tests: evaluation of the hecktor software, version {provenance.get('version')}."
    )
    return " ".join(sentences)


def _missing(results: TaskResults) -> list[str]:
    """How a missing prediction is scored, by answer if the answers differ."""
    first, answers = results.teams[0], results.task.answers
    rules = {answer_title(one): _rule_of_missing(results.options_of(first, one.name)) for one in answers}
    texts = {title: _MISSING[rule] for title, rule in rules.items() if rule in _MISSING}
    if len(set(texts.values())) == 1:
        return [f"A missing or unusable prediction {next(iter(texts.values()))}."]
    return [f"{title}: a missing or unusable prediction {text}." for title, text in texts.items()]


def _rule_of_missing(options: Mapping[str, Any]) -> str:
    is_tie = options.get("missing") == "worst" and options.get("missing_risk") == "tie"
    return "tie" if is_tie else str(options.get("missing"))


def _tests(results: TaskResults) -> str:
    by_test: dict[str, list[str]] = {}
    for name, title in results.board["metrics"].items():
        test = results.board["comparisons"][name]["test"]
        by_test.setdefault(TESTS.get(test, test), []).append(title)
    parts = "; ".join(f"{', '.join(titles)} by {test}" for test, titles in by_test.items())
    return f"Whether one team is better than another was tested one-sided: {parts}."
