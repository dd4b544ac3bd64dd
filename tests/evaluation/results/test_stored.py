"""Draws of a ranking and of its evaluations where cases without a prediction are skipped."""

from __future__ import annotations

import json

import numpy as np

from evaluation.ranking.table import format_identical_answers
from evaluation.results.documents import format_document
from evaluation.results.teams import load_teams
from evaluation.results.validation import find_identical_answers
from evaluation.statistics.bootstrap import draw_replicates
from evaluation.statistics.intervals import percentile_interval
from tests.evaluation.builders import make_board
from tests.evaluation.tables import score_risks

PATIENTS = 20
SEED = 4


def evaluate_risks(folder, skipped):
    """Return the results of noisy risks for 20 patients under `missing=skip`; skipped patients have no risk."""
    follow_up = {f"P{i:02d}": (int(i % 3 != 2), 10 + i) for i in range(PATIENTS)}
    noise = np.random.default_rng(1).normal(0, 8, PATIENTS)
    risks = {f"P{i:02d}": round(noise[i] - i, 3) for i in range(PATIENTS) if i not in skipped}
    return score_risks(folder, follow_up, risks, options={"missing": "skip"}, seed=SEED, bootstraps=200).to_dict()


def rank_intervals(teams):
    """Return the cases, and each team's 95% interval of the C-index from the common draws of its ranking."""
    cohort = load_teams(teams)
    metrics = {team: metrics_of_team["c_index"] for team, metrics_of_team in cohort.metrics.items()}
    draws, _ = draw_replicates(metrics, len(cohort.cases), 200, SEED)
    return cohort.cases, {team: percentile_interval(values) for team, values in draws.items()}


def list_intervals(teams):
    return {name: team.aggregates["c_index"].figures[1:] for name, team in load_teams(teams).teams.items()}


def test_teams_that_skip_cases_share_draws(tmp_path):
    """Teams that skip the same cases have the draws of their evaluations; others share draws over the union.

    P03 counts only for the second team, P07 only for the first, P08 for neither: 19 of 20 patients are drawn.
    """
    teams = {name: evaluate_risks(tmp_path / name, (3, 7, 8)) for name in "ab"}
    cases, intervals = rank_intervals(teams)
    assert len(cases) == PATIENTS - 3
    assert intervals == list_intervals(teams)
    teams = {"c": evaluate_risks(tmp_path / "c", (3, 8)), "d": evaluate_risks(tmp_path / "d", (7, 8))}
    cases, intervals = rank_intervals(teams)
    assert cases == tuple(f"P{i:02d}" for i in range(PATIENTS) if i != 8)
    assert intervals != list_intervals(teams)


def test_identical_answers_are_named(tmp_path):
    """Team `copy` answers as `a` does, `other` as `b`, which lacks one of the risks of `a`; `c` differs from all."""
    contents = {"a": (), "b": (3,), "copy": (), "c": (3, 7), "other": (3,)}
    teams = {name: evaluate_risks(tmp_path / name, skipped) for name, skipped in contents.items()}
    same = find_identical_answers(load_teams(teams).answers)
    assert [entry.model_dump() for entry in same] == [
        {"teams": ["a", "copy"], "answer": "rfs", "cases": 20},
        {"teams": ["b", "other"], "answer": "rfs", "cases": 19},
    ]
    assert format_identical_answers(
        make_board({"m": "M"}, [{"team": "a"}]).model_copy(update={"identical_answers": same})
    ) == [
        "a and copy: identical answers in 20 of 20 cases (rfs)",
        "b and other: identical answers in 19 of 19 cases (rfs)",
    ]


def test_a_document_is_written_as_its_dictionary():
    """Names of folders need not be valid Unicode."""
    board = make_board({"m": "M \u2028"}, [{"team": "Zürich"}])
    assert json.loads(format_document(board)) == board.to_dict()
    odd = board.model_copy(update={"files": {"a": "\udcff/metrics.json"}})
    assert json.loads(format_document(odd)) == odd.to_dict()
