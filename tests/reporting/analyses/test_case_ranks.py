"""Ranks within cases, the podium, and the cases of two teams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contract.errors import HecktorError
from evaluation.editions.profile import with_options
from evaluation.statistics.tests import rank_within_cases
from reporting.analyses.case_ranks import (
    analyse_case_ranks,
    compare_two,
    compute_case_scores,
    find_pair,
)
from tests.reporting.report.challenge import build_content, name_cases, name_teams

TEAMS = name_teams(3)


@pytest.fixture(scope="module")
def tasks():
    """Return segmentation, survival and HPV of three teams and four cases."""
    return build_content(TEAMS, name_cases(4)).results


def set_dsc(task, values):
    for team, dscs in zip(TEAMS, values, strict=True):
        rows = sorted(task.teams[team].results, key=lambda row: row["case"])
        for row, dsc in zip(rows, dscs, strict=True):
            row["gtvp_dsc"] = dsc
    return replace(task)  # drops the cached flat rows


@pytest.fixture
def task():
    """Return the segmentation; the second team lacks the last case's DSC."""
    dsc = [[0.9, 0.8, 0.5, 0.5], [0.9, 0.7, 0.6, None], [0.1, 0.6, 0.7, 0.6]]
    return set_dsc(build_content(TEAMS, name_cases(4)).results[0], dsc)


def test_ranks_over_cases_by_hand(task):
    """Two tied best teams have rank 1 and the third has 3."""
    scores = compute_case_scores(task)[0]
    ranks = [[1, 1, 3, 2], [1, 2, 2, np.nan], [3, 3, 1, 1]]
    np.testing.assert_array_equal(rank_within_cases(scores.oriented_values), ranks)
    heat_map, podium, _ = analyse_case_ranks(task)
    first = [(row["team"], row["rank"], row["cases"], row["fraction"]) for row in heat_map.rows[:6]]
    assert first == [
        (TEAMS[0], 1, 2, 0.5),
        (TEAMS[0], 2, 1, 0.25),
        (TEAMS[0], 3, 1, 0.25),
        (TEAMS[1], 1, 1, 0.3333),
        (TEAMS[1], 2, 2, 0.6667),
        (TEAMS[1], 3, 0, 0.0),
    ]
    assert not heat_map.shows_patients
    assert podium.shows_patients
    assert len(podium.rows) == 11


def test_two_teams_case_by_case(task):
    """Team 2 wins the third case by 0.1, team 1 the second case by 0.1; the first case is tied."""
    (duel,) = compare_two(task)
    rows = [(row["case"], row["difference"], row["team"]) for row in duel.rows if row["value"] == "GTVp DSC"]
    first, second, third, _ = sorted(name_cases(4))
    assert rows == [(third, -0.1, TEAMS[1]), (first, 0.0, None), (second, 0.1, TEAMS[0])]
    assert duel.shows_patients
    assert duel.notes[0].startswith(f"GTVp DSC: cases won by {TEAMS[0]} 1, by {TEAMS[1]} 1, equal 1.")
    # The board's neighbours differ by 0.01 +- 0.015 and have p 0.9.
    assert f"GTVp mean DSC: {TEAMS[0]} minus {TEAMS[1]} is 0.0100 (95% interval -0.0050 to 0.0250)" in duel.notes[2]
    (duel,) = compare_two(task, (TEAMS[2], TEAMS[0]))
    assert (duel.columns["first"], duel.columns["second"]) == (TEAMS[2], TEAMS[0])
    assert compare_two(task, ("unknown", TEAMS[0])) == []


def test_concordant_pairs_by_hand(tasks):
    """Cases 1 and 4 recur, at 3000 and 2979 days, and the follow-up of cases 2 and 3 ends at 2993 and 2986 days.

    So case 4, the first to recur, is comparable with each other case, and there are no other pairs. Its risk is the
    highest: every pair is right. With the lowest risk for case 4 every pair is wrong; with the risk of case 1, half.
    """
    (scores,) = compute_case_scores(tasks[1])
    risks = scores.table.get_numbers("risk")
    assert scores.table.cases == ("CHUM-003", "CHUP-001", "CHUP-004", "MDA-002")
    assert risks[0].tolist() == [2, 0, 3, 1]
    np.testing.assert_array_equal(scores.values[0], [1, 1, 1, 1])
    by_time = replace(tasks[1], profile=with_options(tasks[1].profile, {"direction": "time"}))
    np.testing.assert_array_almost_equal(compute_case_scores(by_time)[0].values, 1 - scores.values)
    task = build_content(TEAMS, name_cases(4)).results[1]
    for team, risk in zip(TEAMS, (-1, 0, 9), strict=True):
        for row, number in zip(task.teams[team].results, range(4), strict=True):
            row["risk"] = risk if number == 3 else number
    (scores,) = compute_case_scores(replace(task))
    # In the order of the cases 3, 1, 4, 2; case 4 has three pairs, the others one.
    np.testing.assert_array_almost_equal(scores.values, [[0, 0, 0, 0], [0, 0.5, 1 / 6, 0], [1, 1, 1, 1]])


def test_the_pair_is_checked(tasks):
    assert find_pair(tasks, []) is None
    assert find_pair(tasks, [TEAMS[1], TEAMS[0]]) == (TEAMS[1], TEAMS[0])
    with pytest.raises(HecktorError, match="--compare: found the unknown team 'x', expected one of Team 01"):
        find_pair(tasks, ["x", TEAMS[0]])
    with pytest.raises(HecktorError, match="twice"):
        find_pair(tasks, [TEAMS[0], TEAMS[0]])
