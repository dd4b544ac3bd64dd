"""Teams between tasks: Kendall's tau, spread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import kendalltau

from evaluation.results.task import TaskResults
from reporting.analyses.tasks import compare_tasks, compute_tau
from tests.evaluation.builders import make_board, make_results, with_board
from tests.evaluation.tasks import SEGMENTATION


def make_task(number: int, ranks: Mapping[str, int], metrics: tuple[str, ...] = ("m",)) -> TaskResults:
    teams = [
        {"team": team, "rank": rank, "metrics": {name: {"value": 1 - rank / 10, "rank": rank} for name in metrics}}
        for team, rank in ranks.items()
    ]
    board = make_board({name: name.upper() for name in metrics}, teams)
    return make_results({}, SEGMENTATION.model_copy(update={"title": "T"}).with_number(number), leaderboard=board)


def make_order(teams: int, discordant: int) -> np.ndarray:
    """Return an order with this many discordant pairs: each place takes a later one of the remaining teams."""
    remaining, order = list(range(teams)), []
    while remaining:
        later = min(discordant, len(remaining) - 1)
        order.append(remaining.pop(later))
        discordant -= later
    return np.array(order, dtype=float)


@pytest.mark.parametrize(
    ("discordant", "printed_tau", "printed_p"), [(53, -0.01, 1.0), (52, 0.01, 1.0), (43, 0.18, 0.38)]
)
def test_printed_correlations_of_hnts_mrg_2024(discordant: int, printed_tau: float, printed_p: float) -> None:
    """For the teams of both tasks the overview prints tau -0.01 (p = 1.00), 0.01 (1.00) and 0.18 (0.38).

    Task 2 has 15 teams, that is 105 pairs: 53, 52 and 43 discordant ones give (105 - 2 d) / 105.
    """
    assert compute_tau(np.ones(4), np.arange(4.0)) == (None, None)
    tau, p = compute_tau(np.arange(15.0), make_order(15, discordant))
    assert tau == pytest.approx((105 - 2 * discordant) / 105)
    assert (round(tau, 2), round(p, 2)) == (printed_tau, printed_p)


def test_only_teams_of_both_tasks_are_compared() -> None:
    """Teams a, b, c and d are in both, with one discordant pair of six: tau 4/6 officially and by the shared metric."""
    first = make_task(1, {"a": 1, "b": 2, "c": 3, "only": 4, "d": 5}, ("m", "x"))
    second = make_task(2, {"b": 1, "a": 2, "c": 3, "d": 4}, ("m", "y"))
    correlation, spread = compare_tasks([first, second])
    assert [(row["by"], row["teams"], row["tau"]) for row in correlation.rows] == [
        ("Official rank", 4, 0.6667),
        ("M", 4, 0.6667),
    ]
    assert correlation.rows[0]["p"] == pytest.approx(
        kendalltau([1, 2, 3, 5], [2, 1, 3, 4], method="exact").pvalue, abs=1e-4
    )
    # Values 0.9, 0.8, 0.7, 0.6 and 0.5 in the first task, 0.9 to 0.6 in the second.
    assert [(row["metric"], row["task"], row["median"]) for row in spread.rows] == [
        ("M", "Task 1: T", 0.7),
        ("M", "Task 2: T", 0.75),
    ]


def test_rows_out_of_competition_are_marks_next_to_the_boxes() -> None:
    """Boxes hold only the ranked values 0.9 and 0.8; an entry without a value has no mark (HNTS-MRG 2024, 3.4)."""
    first, second = make_task(1, {"a": 1, "b": 2}), make_task(2, {"a": 1, "b": 2})
    entries = [
        {"team": "nnU-Net", "metrics": {"m": {"value": 0.817}}},
        {"team": "IOV", "metrics": {"m": {"value": None}}},
    ]
    first = with_board(first, out_of_competition=entries)
    spread = next(analysis for analysis in compare_tasks([first, second]) if analysis.name == "spread-over-teams")
    assert [(row["task"], row["team"], row["value"]) for row in spread.rows if "team" in row] == [
        ("Task 1: T", "nnU-Net", 0.817)
    ]
    assert [(row["values"], row["median"]) for row in spread.rows if "median" in row] == [(2, 0.85), (2, 0.85)]
    assert spread.columns["team"] == "Out of competition"


def test_a_task_without_a_shared_metric_has_no_box() -> None:
    """Only two of three tasks rank `m`: the third has no box and no empty line."""
    ranks = {"a": 1, "b": 2}
    tasks = [make_task(1, ranks), make_task(2, ranks, ("x",)), make_task(3, ranks)]
    spread = next(analysis for analysis in compare_tasks(tasks) if analysis.name == "spread-over-teams")
    assert [row["task"] for row in spread.rows] == ["Task 1: T", "Task 3: T"]


@pytest.mark.parametrize(("teams", "expected"), [("ab", []), ("abc", [(3, 1.0)])])
def test_a_correlation_needs_three_common_teams(teams: str, expected: list[tuple[int, float]]) -> None:
    ranks = {team: rank for rank, team in enumerate(teams, 1)}
    analyses = compare_tasks([make_task(1, ranks, ("x",)), make_task(2, ranks, ("y",))])
    assert [(row["teams"], row["tau"]) for analysis in analyses for row in analysis.rows] == expected
