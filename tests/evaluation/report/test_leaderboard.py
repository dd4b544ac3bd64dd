"""The leaderboard's table: order of rows, counts of significant wins, and the sentence about inseparable teams."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from benchmarks.challenge import ChallengeSize, write_challenge
from evaluation.report.leaderboard import inseparable_groups, leaderboard

TEAMS = ("ann", "bea", "cat", "dan")
COLOURS = dict.fromkeys(TEAMS, "#1f86d6")


def pair(team, than, low, high, p_holm=0.5):
    return {"team": team, "than": than, "difference": 0.0, "ci95_low": low, "ci95_high": high, "p_holm": p_holm}


def entry(team, rank):
    figures = {"value": 0.9 - rank / 10, "ci95_low": 0.1, "ci95_high": 0.95, "rank": rank}
    return {"rank": rank, "team": team, "metrics": {"m": figures}, "rankings": {"m": {"rank": rank}}}


@pytest.fixture
def board():
    """ann and bea, and bea, cat and dan, do not differ; ann differs from cat and dan."""
    pairs = [
        pair("ann", "bea", -0.01, 0.02),
        pair("ann", "cat", 0.01, 0.05, 0.01),
        pair("ann", "dan", 0.02, 0.06, 0.001),
        pair("bea", "cat", -0.02, 0.02),
        pair("bea", "dan", -0.03, 0.04, 0.04),
        pair("cat", "dan", -0.03, 0.04, 0.05),
    ]
    return {
        "official": "m",
        "ties": "min",
        "metrics": {"m": "Metric"},
        "teams": [entry(team, place + 1) for place, team in enumerate(TEAMS)],
        "unranked": [],
        "stability": None,
        "comparisons": {"m": {"test": "t", "pairs": pairs}},
    }


def cells(html):
    """The text of each cell, by row; the first row holds the heads."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    texts = [[re.sub("<[^>]+>", "", cell) for cell in re.split(r"</t[hd]>", row)[:-1]] for row in rows]
    return [[unescape(text).strip() for text in row] for row in texts]


def test_groups_are_neighbours_of_whom_no_two_differ(board):
    """ann - bea and bea - cat - dan; cat - dan is part of the latter."""
    assert inseparable_groups(board) == [["ann", "bea"], ["bea", "cat", "dan"]]
    text = leaderboard(board, COLOURS)
    assert "No order is claimed among ann and bea; among bea, cat and dan: the 95% intervals" in text


def test_one_metric_that_tells_teams_apart_is_enough_under_a_ranking_of_several(board):
    """In the second metric ann is better than bea, so that only bea, cat and dan stay together."""
    other = [pair("ann", "bea", 0.01, 0.02), *board["comparisons"]["m"]["pairs"][1:]]
    board["metrics"]["n"] = "Other"
    board["comparisons"]["n"] = {"test": "t", "pairs": other}
    assert inseparable_groups(board) == [["ann", "bea"], ["bea", "cat", "dan"]]
    board["official"] = "nested_borda"
    assert inseparable_groups(board) == [["bea", "cat", "dan"]]


def test_teams_are_better_than_those_with_p_below_005(board):
    """ann beats cat (0.01) and dan (0.001), bea beats dan (0.04); 0.05 itself is not significant."""
    table = cells(leaderboard(board, COLOURS))
    assert table[0] == ["Rank", "Team", "Metric", "Better than (of 3)", "No order claimed with ranks"]
    assert [row[3] for row in table[1:]] == ["2", "1", "0", "0"]
    assert [row[4] for row in table[1:]] == ["1 to 2", "1 to 4", "2 to 4", "2 to 4"]


def test_a_board_of_an_older_version_is_shown(board):
    """Without intervals of differences there is no sentence, without comparisons no count."""
    for one in board["comparisons"]["m"]["pairs"]:
        del one["ci95_low"], one["ci95_high"]
    text = leaderboard(board, COLOURS)
    assert "No order" not in text
    assert cells(text)[0] == ["Rank", "Team", "Metric", "Better than (of 3)"]
    board["comparisons"] = None
    assert cells(leaderboard(board, COLOURS))[0] == ["Rank", "Team", "Metric"]


def test_rows_out_of_competition_stand_in_their_place(board):
    """Two ranked teams stand above `base`, none above `pair`; both have no rank."""
    of = {"value": 0.75, "ci95_low": None, "ci95_high": None}
    board["unranked_entries"] = [
        {"team": "pair", "reason": "", "metrics": {"m": of}, "place": 0},
        {"team": "base", "reason": "a <b>", "metrics": {"m": of}, "place": 2},
    ]
    rows = cells(leaderboard(board, COLOURS))[1:]
    assert [row[1].split(" ")[0] for row in rows] == ["pair", "ann", "bea", "base", "cat", "dan"]
    assert rows[3][:3] == ["-", "base (out of competition: a <b>)", "0.750"]
    assert "a <b>" not in leaderboard(board, COLOURS)


def test_descriptors_of_methods_stand_beside_the_scores_and_can_be_searched(board):
    """Columns after the metrics, in one place in every row, so that they are sorted alike; and the board is searched."""
    assert "searched" not in leaderboard(board, COLOURS)
    of = {"value": 0.75, "ci95_low": None, "ci95_high": None}
    board["unranked_entries"] = [{"team": "base", "reason": "", "metrics": {"m": of}, "place": 4}]
    board["methods"] = {"ann": {"Loss": "<b>", "Net": "U-Net"}, "base": {"Loss": "Dice", "Net": ""}}
    html = leaderboard(board, COLOURS)
    rows = cells(html)
    assert rows[0][2:5] == ["Metric", "Loss", "Net"]
    assert [row[3:5] for row in (rows[1], rows[2], rows[5])] == [["<b>", "U-Net"], ["-", "-"], ["Dice", "-"]]
    assert 'class="board searched"' in html
    assert "<b>" not in html


def test_unranked_and_unchecked_teams_are_marked(board):
    board["teams"][1]["without_rows"] = True
    board["unranked"] = [{"team": "eve", "without": ["m"]}]
    rows = cells(leaderboard(board, COLOURS))[1:]
    assert rows[1][1] == "bea (values not checked: no rows)"
    assert rows[4] == ["-", "eve", "not ranked: no m"]


def test_infinite_and_absent_values(board):
    board["teams"][3]["metrics"]["m"] = {"value": None, "ci95_low": 9.0, "ci95_high": None, "infinite": ["value"]}
    board["teams"][2]["metrics"]["m"] = {"value": None, "ci95_low": None, "ci95_high": None}
    html = leaderboard(board, COLOURS)
    assert [row[2] for row in cells(html)[3:]] == ["-", "inf"]
    # Number("inf") is NaN in JavaScript, by which no table can be sorted.
    assert html.count('data-sort="Infinity"') == 1


def test_no_team_is_better_than_one_with_which_no_order_is_claimed(tmp_path):
    """Eleven simulated teams, 55 pairs, every metric: an interval without 0 is one with p up to 0.025, and no other.

    Between two teams without a p no order is claimed either.
    """
    write_challenge(tmp_path, "hecktor2026", ChallengeSize(11, 60, bootstraps=5, rankings=300))
    board = json.loads((tmp_path / "task1" / "leaderboard.json").read_text())
    better = 0
    for comparison in board["comparisons"].values():
        pairs = [pair for pair in comparison["pairs"] if pair["p"] is not None]
        assert [pair["ci95_low"] > 0 for pair in pairs] == [pair["p"] <= 0.025 for pair in pairs]
        better += sum(pair["p_holm"] < 0.05 for pair in pairs)
    assert better > 10
    few = [pair for pair in board["comparisons"]["tn_balanced_accuracy"]["pairs"] if pair["p"] is None]
    assert few
    assert all(pair["without_p"].startswith("too few patients differ to test") for pair in few)
    significant = {
        (pair["team"], pair["than"]) for pair in board["comparisons"]["score"]["pairs"] if pair["p_holm"] < 0.05
    }
    for group in inseparable_groups(board):
        assert not significant & {(one, other) for one in group for other in group}
