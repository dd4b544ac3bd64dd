"""Results of small challenges, made from rows by hand or at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from contract.editions import Algorithm, Answer
from evaluation.analyses.sources import TaskResults
from evaluation.analyses.tables import AnswerRows, answer_rows
from evaluation.editions.profile import load_profile
from evaluation.ranking.leaderboard import leaderboard
from evaluation.results.metrics_json import TeamMetrics, parse_metrics
from evaluation.results.teams import comparable_teams
from evaluation.statistics.bootstrap import Estimate
from tests.evaluation.challenge import SimulatedTeam, simulated_metrics, simulated_patients
from tests.evaluation.tasks import MASK, SEGMENTATION

Rows = Sequence[Mapping[str, Any]]


def team_of(name: str, rows: Rows = (), **parts: Any) -> TeamMetrics:
    """A team with rows, which get the cases A, B, C, ... unless they name theirs."""
    named = [{"case": chr(ord("A") + place), "error": None, **row} for place, row in enumerate(rows)]
    values: dict[str, Any] = {"estimates": {}, "cases": {"used": len(named)}, "warnings": [], "provenance": {}}
    return TeamMetrics(name, rows=named, **{**values, **parts})


@pytest.fixture
def table() -> Callable[..., AnswerRows]:
    """Make the rows of one answer from each team's rows."""

    def make(teams: Mapping[str, Rows], answer: Answer = MASK, task: Algorithm = SEGMENTATION) -> AnswerRows:
        of_teams = [team_of(name, rows) for name, rows in teams.items()]
        return answer_rows(TaskResults(task, {"metrics": {}, "teams": []}, of_teams), answer)

    return make


@pytest.fixture
def challenge() -> Callable[..., TaskResults]:
    """Simulate a challenge of an edition's task: `teams` teams of rising skill, `cases` cases."""
    return _challenge


def _challenge(
    edition: str, task: str = "", *, teams: int = 3, cases: int = 12, lost: Sequence[int] = (), number: int = 1
) -> TaskResults:
    """`lost` are the numbers of teams that answer no case."""
    profile = load_profile(edition)
    chosen = profile.task(task or next(iter(profile.tasks)))
    rng = np.random.default_rng(7)
    patients = simulated_patients(cases, rng)
    metrics = {}
    for place in range(teams):
        team = SimulatedTeam(f"team {place}", place / 2, float(place in lost), probabilities=True)
        content = simulated_metrics(chosen, patients, team, 20, rng)
        metrics[team.name] = parse_metrics(content, "metrics.json", team.name)
    loaded = comparable_teams(chosen, list(metrics.values()))
    board = leaderboard(loaded, bootstraps=20)
    by_name = {team.team: team for team in loaded.teams}
    order = [by_name[entry["team"]] for entry in [*board["teams"], *board["incomplete"]]]
    prefixes = {name: one.prefix for name, one in chosen.answers.items()} if chosen.has_several_answers else {}
    return TaskResults(chosen.algorithm.numbered(number), board, order, prefixes)


def ranks(tau: float | None = 0.5, **of_team: dict[str, int]) -> dict[str, Any]:
    teams = {
        name: {"times_at_rank": times, "mean": 1.0, "ci95_low": 1, "ci95_high": 2} for name, times in of_team.items()
    }
    return {"teams": teams, "kendall_tau": {"mean": tau, "ci95_low": -1.0, "ci95_high": 1.0, "replicates": 4}}


@pytest.fixture
def two_teams() -> TaskResults:
    """Two teams: ann first in three of four rankings; ann better than bea with p 0.01, bea than ann with 0.9996."""
    interval = {"difference": 0.2, "ci95_low": 0.1, "ci95_high": 0.3, "p": 0.005, "p_holm": 0.01}
    pairs = [
        {"team": "ann", "than": "bea", **interval},
        {"team": "bea", "than": "ann", "difference": None, "p": 0.9996, "p_holm": 0.9996},
    ]
    alone = ranks(None, ann={"1": 4}, bea={"2": 4})
    board = {
        "official": "o",
        "metrics": {"m": "M", "gtvp_hd95_median_mm": "D (mm)"},
        "teams": [{"team": "ann"}, {"team": "bea"}],
        "stability": {
            "bootstraps": 4,
            "rankings": {"o": ranks(ann={"1": 3, "2": 1}, bea={"1": 1, "2": 3})},
            "metrics": {"m": alone, "gtvp_hd95_median_mm": ranks(0.25, ann={"1": 4}, bea={"2": 4})},
        },
        "comparisons": {
            name: {"test": "wilcoxon_signed_rank", "pairs": pairs} for name in ("m", "gtvp_hd95_median_mm")
        },
    }
    ann = {
        "m": Estimate(0.8, 0.7, 0.9),
        "gtvp_hd95_median_mm": Estimate(3.0, 2.0, math.inf),
        "gtvp_f1": Estimate(0.5, None, None),
    }
    bea = {"m": Estimate(0.6, 0.5, 0.7), "gtvp_hd95_median_mm": Estimate(math.inf, 9.0, math.inf)}
    return TaskResults(SEGMENTATION, board, [team_of("ann", estimates=ann), team_of("bea", estimates=bea)])
