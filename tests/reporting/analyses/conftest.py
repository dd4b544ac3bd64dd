"""Build the results of small challenges from rows by hand or at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contract.editions import Algorithm, AnswerSpec
from evaluation.editions.profile import load_profile
from evaluation.ranking.leaderboard import build_leaderboard
from evaluation.results.task import TaskResults
from evaluation.results.teams import validate_teams
from reporting.analyses.tables import AnswerRows, collect_rows
from tests.evaluation.builders import make_board, make_metrics, make_results
from tests.evaluation.challenge import SimulatedTeam, simulate_metrics, simulate_patients
from tests.evaluation.tasks import MASK, SEGMENTATION

Rows = Sequence[Mapping[str, Any]]


@pytest.fixture
def table() -> Callable[..., AnswerRows]:
    """Make the rows of one answer from each team's rows."""

    def make(teams: Mapping[str, Rows], answer: AnswerSpec = MASK, task: Algorithm = SEGMENTATION) -> AnswerRows:
        edition = "hecktor2026" if len(task.answers) > 1 else "hecktor2025"
        of_teams = {name: make_metrics(rows=rows) for name, rows in teams.items()}
        return collect_rows(make_results(of_teams, task, edition), answer)

    return make


@pytest.fixture
def challenge() -> Callable[..., TaskResults]:
    """Simulate a challenge of an edition's task, with teams of rising skill."""
    return _simulate


def _simulate(
    edition: str, task: str = "", *, teams: int = 3, cases: int = 12, lost: Sequence[int] = (), number: int = 1
) -> TaskResults:
    """Simulate the challenge; `lost` holds the numbers of teams that answer no case."""
    profile = load_profile(edition)
    chosen = profile.find_task(task or next(iter(profile.tasks)))
    rng = np.random.default_rng(7)
    patients = simulate_patients(cases, rng)
    metrics = {}
    for place in range(teams):
        team = SimulatedTeam(f"team {place}", place / 2, float(place in lost), probabilities=True)
        content = simulate_metrics(chosen, patients, team, 20, rng)
        metrics[team.name] = content, team.name
    loaded = validate_teams(replace(chosen, algorithm=chosen.algorithm.with_number(number)), metrics)
    board = build_leaderboard(loaded, bootstraps=20)
    order = {name: loaded.teams[name] for name in board.names}
    return replace(loaded, teams=order, leaderboard=board)


def make_ranks(tau: float | None = 0.5, **times_of: dict[str, int]) -> dict[str, Any]:
    teams = {
        name: {"times_at_rank": times, "mean": 1.0, "ci95_low": 1, "ci95_high": 2} for name, times in times_of.items()
    }
    low, high = (None, None) if tau is None else (-1.0, 1.0)
    return {"teams": teams, "kendall_tau": {"mean": tau, "ci95_low": low, "ci95_high": high, "replicates": 4}}


@pytest.fixture
def two_teams() -> TaskResults:
    """Rank two teams: ann is first in three of four rankings; ann is better than bea with p 0.01, bea than ann with 0.9996."""
    interval = {"difference": 0.2, "ci95_low": 0.1, "ci95_high": 0.3, "p": 0.005, "p_holm": 0.01}
    pairs = [
        {"team": "ann", "than": "bea", **interval},
        {"team": "bea", "than": "ann", "difference": None, "p": 0.9996, "p_holm": 0.9996},
    ]
    always_in_order = make_ranks(None, ann={"1": 4}, bea={"2": 4})
    titles = {"m": "M", "gtvp_hd95_median_mm": "D (mm)"}
    board = make_board(
        titles,
        [{"team": "ann"}, {"team": "bea"}],
        official="o",
        stability={
            "bootstraps": 4,
            "rankings": {"o": make_ranks(ann={"1": 3, "2": 1}, bea={"1": 1, "2": 3})},
            "metrics": {"m": always_in_order, "gtvp_hd95_median_mm": make_ranks(0.25, ann={"1": 4}, bea={"2": 4})},
        },
        comparisons={name: {"test": "wilcoxon_signed_rank", "pairs": pairs} for name in titles},
    )
    ann = {"m": (0.8, 0.7, 0.9), "gtvp_hd95_median_mm": (3.0, 2.0, math.inf), "gtvp_f1": (0.5,)}
    bea = {"m": (0.6, 0.5, 0.7), "gtvp_hd95_median_mm": (math.inf, 9.0, math.inf)}
    return make_results({"ann": make_metrics(ann), "bea": make_metrics(bea)}, leaderboard=board)
