"""The simulated challenge: readable results whose cases are easy or difficult for all teams alike."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from benchmarks.challenge import ChallengeSize, write_challenge
from benchmarks.challenge.patients import CENTRES
from contract.platform import METRICS_JSON
from evaluation.analyses.sources import find_results
from evaluation.editions.profile import load_profile
from evaluation.results.metrics_json import read_metrics
from evaluation.results.teams import load_teams

SIZE = ChallengeSize(teams=3, cases=80, bootstraps=20, rankings=20)


@pytest.fixture(scope="module", params=["hecktor2025", "hecktor2026"])
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    write_challenge(folder, request.param, SIZE)
    return find_results(folder, load_profile(request.param))


def test_every_task_has_a_leaderboard_of_all_teams_and_rows_of_all_cases(results):
    for result in results:
        assert len(result.teams) == 3
        assert all(len({row["case"] for row in team.rows}) >= 75 for team in result.teams)
        # Rebuilds every metric from the rows, and refuses rows that contradict the stated values.
        loaded = load_teams({team.team: team for team in result.teams}, task=result.task.name)
        assert len(loaded.cohort.teams) == 3


def test_all_centres_have_patients_and_some_predictions_are_missing(results):
    centres = {row["case"].split("-")[0] for row in results[0].teams[0].rows}
    assert centres == {name for name, *_ in CENTRES}
    assert any(team.cases["missing"] or team.cases["failed"] for result in results for team in result.teams)


def test_a_case_that_is_difficult_for_one_team_is_difficult_for_others(results):
    """With independent DSCs of 80 cases a correlation above 0.2 would have p < 0.05."""
    segmentation = results[0]
    columns = []
    for team in segmentation.teams:
        rows = segmentation.rows_of(team, "segmentation")
        columns.append({row["case"]: row["gtvp_dsc"] for row in rows if row["gtvp_reference_voxels"] > 0})
    for first, second in combinations(columns, 2):
        shared = sorted(set(first) & set(second))
        assert np.corrcoef([first[case] for case in shared], [second[case] for case in shared])[0, 1] > 0.2


def test_the_same_seed_gives_the_same_results(tmp_path):
    values = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        write_challenge(folder, "hecktor2025", ChallengeSize(teams=1, cases=30, bootstraps=10, rankings=0))
        team = next((folder / "task2").glob(f"*/{METRICS_JSON}"))
        values.append(read_metrics(team, "x").estimates["c_index"])
    assert values[0] == values[1]
