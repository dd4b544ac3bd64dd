"""Compare teams case by case: how often each team had each rank, a podium plot, the cases of two teams side by side.

Source: challengeR (Wiesenfarth et al. 2021, Sci Rep 11:2369), ranking heat map and podium plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.metrics.concordance import find_comparable_pairs
from evaluation.metrics.overlap import Floats
from evaluation.results.board import TeamPair
from evaluation.results.task import TaskResults
from evaluation.statistics.tests import rank_within_cases
from reporting.analyses.analysis import NOT_IN_OVERVIEWS, Analysis
from reporting.analyses.leaderboards import TESTS
from reporting.analyses.masks import LABELS
from reporting.analyses.tables import AnswerRows, collect_rows, get_answer_title, round_figure

CHALLENGE_R: Final = "Wiesenfarth et al. 2021 (challengeR)"
# A podium of more teams cannot be read, and only these teams have different colours.
MAX_PODIUM_TEAMS: Final = 10
_HD95_WORST: Final = np.inf


@dataclass(frozen=True)
class CaseScores:
    """One value of each team and case.

    Attributes:
        table: The rows of the answer.
        name: The name of the value, which is a part of the analyses' names.
        title: The heading of the values, with their unit.
        values: The values, shape (teams, cases); NaN for a team without a value. Infinity is the worst distance.
        higher_is_better: Whether higher values are better.
        about: A sentence that says how a value is computed.
    """

    table: AnswerRows
    name: str
    title: str
    values: Floats
    higher_is_better: bool
    about: str

    @property
    def oriented_values(self) -> Floats:
        """The values, negated if lower is better."""
        return self.values if self.higher_is_better else -self.values


def compute_case_scores(results: TaskResults) -> list[CaseScores]:
    """Compute the values of individual cases: DSC and HD95 of masks, correct classes, and concordant pairs of risks."""
    scores: list[CaseScores] = []
    for answer in results.task.answers:
        table = collect_rows(results, answer)
        if not table.names:
            continue
        if answer.kind == "mask":
            scores += _score_masks(table)
        elif answer.kind == "risk":
            about = (
                "Fraction of the comparable patients that the team's risks order correctly relative to this patient."
            )
            values = _compute_concordance(table)
            scores.append(CaseScores(table, "pairs", table.make_title("Concordant pairs"), values, True, about))
        else:
            title = f"{get_answer_title(answer)} correct"
            about = "1 for the right class, 0 for any other answer."
            scores.append(CaseScores(table, "correct", title, _compare_classes(table), True, about))
    return [score for score in scores if not np.isnan(score.values).all()]


def _score_masks(table: AnswerRows) -> list[CaseScores]:
    scores = []
    for label, name in LABELS.items():
        dsc = table.get_numbers(f"{label}_dsc")
        dsc[:, ~(table.get_reference(f"{label}_reference_voxels") > 0)] = np.nan
        about = f"DSC of the cases with a {name}."
        scores.append(CaseScores(table, f"{label}-dsc", table.make_title(f"{name} DSC"), dsc, True, about))
        distances = table.get_numbers(f"{label}_hd95_mm")
        if not np.isnan(distances).all():
            is_missed = np.isnan(distances) & ~np.isnan(dsc)
            distances[is_missed] = _HD95_WORST
            about = f"HD95 of the {name} in mm; infinite where a team misses it."
            scores.append(
                CaseScores(table, f"{label}-hd95", table.make_title(f"{name} HD95 (mm)"), distances, False, about)
            )
    return scores


def _compare_classes(table: AnswerRows) -> Floats:
    """Return 1 for a correct class, 0 for a wrong or missing class and NaN without a row, shape (teams, cases)."""
    key = table.answer.row_key
    values = [
        [np.nan if row is None else float(row[f"predicted_{key}"] == row[key]) for row in rows] for rows in table.rows
    ]
    return np.array(values, dtype=np.float64).reshape(len(table.names), len(table.cases))


def _compute_concordance(table: AnswerRows) -> Floats:
    """Compute the fraction of each patient's comparable pairs that a team orders correctly, shape (teams, cases).

    A tie of risks counts as half a pair. The fraction is NaN without a risk or without a comparable patient.
    """
    days, events = table.get_reference("rfs_days"), table.get_reference("relapse") == 1.0
    risks = table.get_numbers("risk") * (-1.0 if table.answer.direction == "time" else 1.0)
    fractions = np.full(risks.shape, np.nan)
    for team_index, team_risks in enumerate(risks):
        known = np.flatnonzero(~np.isnan(team_risks) & ~np.isnan(days))
        # A pair is (patient with the earlier recurrence, other patient); each patient may have both roles.
        pairs = find_comparable_pairs(days[known], events[known], np.arange(known.size))
        earlier_risk, later_risk = team_risks[known][:, None], team_risks[known][None, :]
        concordance = (earlier_risk > later_risk) + 0.5 * (earlier_risk == later_risk)
        concordant_pairs = pairs * concordance
        concordant_counts = concordant_pairs.sum(axis=1) + concordant_pairs.sum(axis=0)
        counts = pairs.sum(axis=1) + pairs.sum(axis=0)
        unknown = np.full(known.size, np.nan)
        fractions[team_index, known] = np.divide(concordant_counts, counts, out=unknown, where=counts > 0)
    return fractions


def analyse_case_ranks(results: TaskResults, *, with_cases: bool = True) -> list[Analysis]:
    """Count the ranks over the cases and, if cases may be shown, list the values of each case for a podium plot.

    A single team has no such analysis.
    """
    continuous = [
        score for score in compute_case_scores(results) if score.name != "correct" and len(score.table.names) > 1
    ]
    heat_maps = [_count_ranks(continuous)] if continuous else []
    return [*heat_maps, *(_list_podium_ranks(score) for score in continuous if with_cases)]


def _count_ranks(scores: Sequence[CaseScores]) -> Analysis:
    rows: list[dict[str, Any]] = []
    for score in scores:
        for team, ranks in zip(score.table.names, rank_within_cases(score.oriented_values), strict=True):
            count = int((~np.isnan(ranks)).sum())
            for rank in range(1, len(score.table.names) + 1):
                cases = int((ranks == rank).sum())
                fraction = round_figure(cases / count) if count else None
                rows.append({"value": score.title, "team": team, "rank": rank, "cases": cases, "fraction": fraction})
    return Analysis(
        name="ranks-over-cases",
        title="Ranks over the cases",
        caption="In how many cases each team had each rank; tied teams share the better rank.",
        columns={"value": "Value", "team": "Team", "rank": "Rank", "cases": "Cases", "fraction": "Fraction of cases"},
        rows=rows,
        chart={
            "kind": "matrix",
            "x": "rank",
            "y": "team",
            "value": "fraction",
            "text": "cases",
            "facet": "value",
            "pick": True,
            "scale": "sequential",
        },
        source=CHALLENGE_R,
    )


def _list_podium_ranks(scores: CaseScores) -> Analysis:
    table = scores.table
    count = min(len(table.names), MAX_PODIUM_TEAMS)
    values = scores.values[:count]
    ranks = rank_within_cases(scores.oriented_values[:count])
    rows = [
        {**table.make_case_cells(case), "team": team, "rank": int(rank), "value": round_figure(float(value))}
        for case, case_ranks, case_values in zip(table.cases, ranks.T, values.T, strict=True)
        for team, rank, value in zip(table.names[:count], case_ranks, case_values, strict=True)
        if not np.isnan(rank)
    ]
    first = f" of the first {count} teams" if count < len(table.names) else ""
    return Analysis(
        name=f"{scores.name}-podium" if not table.heading else table.make_name(f"{scores.name}-podium"),
        title=f"Podium plot of the {scores.title}",
        caption=(
            f"The ranks{first} within each case; tied teams share the better rank. A dot for each team and case, and a "
            f"grey line for each case. {scores.about}"
        ),
        columns={**table.case_headings, "team": "Team", "rank": "Rank within the case", "value": scores.title},
        rows=rows,
        chart={
            "kind": "podium",
            "place": "rank",
            "y": "value",
            "series": "team",
            "line": "case",
            **({"domain": [0, 1]} if scores.higher_is_better else {}),
        },
        source=CHALLENGE_R,
    )


def find_pair(results: Sequence[TaskResults], teams: Sequence[str]) -> tuple[str, str] | None:
    """Return the two teams that `--compare` names, or None without the option.

    Raises:
        HecktorError: A team is unknown, or no task ranks both.
    """
    if not teams:
        return None
    first, second = teams
    known = dict.fromkeys(team for task in results for team in task.teams)
    for team in teams:
        if team not in known:
            raise HecktorError("--compare", f"found the unknown team {team!r}", f"one of {', '.join(known)}")
    if first == second:
        raise HecktorError("--compare", f"found {first!r} twice", "two teams")
    if not any(first in task.teams and second in task.teams for task in results):
        raise HecktorError("--compare", f"found no task with both {first!r} and {second!r}", "two teams of one task")
    return first, second


def compare_two(results: TaskResults, pair: tuple[str, str] | None = None) -> list[Analysis]:
    """Compare two teams case by case; return no analysis if one of the teams is not in the task or has no rows.

    Args:
        results: The results of a task.
        pair: The teams; if it is None, the winner and the second team are compared.
    """
    teams = pair or tuple(results.board.order[:2])
    if len(teams) < 2 or not all(team in results.teams for team in teams):
        return []
    first, second = teams
    rows: list[dict[str, Any]] = []
    counts: list[str] = []
    for score in compute_case_scores(results):
        if {first, second} <= set(score.table.names):
            case_rows = _compare_cases(score, first, second)
            wins, losses = (sum(row["team"] == team for row in case_rows) for team in teams)
            ties = len(case_rows) - wins - losses
            counts.append(
                f"{score.title}: cases won by {first} {wins}, by {second} {losses}, equal {ties}. {score.about}"
            )
            rows += case_rows
    if not rows:
        return []
    centres = {"centre": "Centre"} if any("centre" in row for row in rows) else {}
    return [
        Analysis(
            name="two-teams",
            title=f"{first} against {second}, case by case",
            caption=(
                f"How much better {first} is than {second} in each case, from the cases that {second} wins to the "
                f"cases that {first} wins; bars have the winner's colour."
            ),
            columns={
                "value": "Value",
                "case": "Case",
                **centres,
                "first": first,
                "second": second,
                "difference": f"Advantage of {_shorten(first)}",
                "team": "Better team",
            },
            rows=rows,
            chart={"kind": "bars", "y": "case", "x": "difference", "facet": "value", "pick": True},
            notes=(*counts, *_describe_tests(results, first, second)),
            source=NOT_IN_OVERVIEWS,
        )
    ]


def _compare_cases(score: CaseScores, first: str, second: str) -> list[dict[str, Any]]:
    """List the cases in which both teams have a value, from the second team's wins to the first team's wins."""
    table = score.table
    team_indices = [table.names.index(team) for team in (first, second)]
    first_values, second_values = score.values[team_indices]
    first_oriented, second_oriented = score.oriented_values[team_indices]
    advantages = np.zeros(len(table.cases))
    is_unequal = first_oriented != second_oriented  # the difference of two infinite distances is not defined
    advantages[is_unequal] = first_oriented[is_unequal] - second_oriented[is_unequal]
    known = np.flatnonzero(~np.isnan(first_values) & ~np.isnan(second_values))
    return [
        {
            "value": score.title,
            **table.make_case_cells(table.cases[index]),
            "first": round_figure(float(first_values[index])),
            "second": round_figure(float(second_values[index])),
            "difference": round_figure(float(advantages[index])),
            "team": first if advantages[index] > 0 else second if advantages[index] < 0 else None,
        }
        for index in sorted(known, key=lambda index: (advantages[index], table.cases[index]))
    ]


def _shorten(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}\u2026"


def _describe_tests(results: TaskResults, first: str, second: str) -> list[str]:
    """Describe the test of each ranked metric between two teams in one line."""
    lines = []
    for name, title in results.board.metrics.items():
        tests = (results.board.comparisons or {}).get(name)
        pairs = [] if tests is None else [pair for pair in tests.pairs if (pair.team, pair.than) == (first, second)]
        if tests is not None and pairs:
            lines.append(f"{title}: {_describe_test(pairs[0])} ({TESTS.get(tests.test, tests.test)}).")
    return lines or ["The leaderboard has no tests between these teams."]


def _describe_test(pair: TeamPair) -> str:
    """Describe the difference of a metric, its interval, and the p for the first team being better."""
    text = (
        "no difference known" if pair.difference is None else f"{pair.team} minus {pair.than} is {pair.difference:z.4f}"
    )
    if pair.ci95_low is not None and pair.ci95_high is not None:
        text += f" (95% interval {pair.ci95_low:z.4f} to {pair.ci95_high:z.4f})"
    if pair.p_holm is None:
        return f"{text}, not tested{': ' * bool(pair.without_p)}{pair.without_p}"
    return f"{text}, one-sided p {pair.p_holm:.2g} after Holm"
