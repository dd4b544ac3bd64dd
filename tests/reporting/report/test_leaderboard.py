"""The winner in one sentence, and the leaderboard's table: order of rows, significant wins, teams without an order."""

from __future__ import annotations

import re
from html import unescape

import pytest

from evaluation.editions.profile import load_profile
from reporting.report.leaderboard import compute_chance_level, describe_winner, render_leaderboard
from tests.evaluation.builders import make_board, make_metrics, make_results
from tests.evaluation.tasks import HPV, RFS

TEAMS = ("ann", "bea", "cat", "dan")
COLOURS = dict.fromkeys(TEAMS, "#1f86d6")


def make_entry(team, rank, names=("m",), **more):
    figures = {"value": 0.9 - rank / 10, "ci95_low": 0.1, "ci95_high": 0.95}
    return {"rank": rank, "team": team, "metrics": dict.fromkeys(names, figures), **more}


def read_cells(html):
    """Return the text of each cell, by row; the first row holds the heads."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    texts = [[re.sub("<[^>]+>", "", cell) for cell in re.split(r"</t[hd]>", row)[:-1]] for row in rows]
    return [[unescape(text).strip() for text in row] for row in texts]


def describe(*pairs, teams=TEAMS, ranks=(1, 2, 3, 4, 5, 6), of_metrics=("m",), tested=("m", "n"), **parts):
    """Describe the winner of some teams, with significant pairs in each tested metric."""
    tests = [{"team": team, "than": than, "p_holm": 0.01} for team, than in pairs]
    entries = [make_entry(team, rank, of_metrics) for team, rank in zip(teams, ranks, strict=False)]
    comparisons = {name: {"test": "t", "pairs": tests if name in tested else []} for name in of_metrics}
    board = make_board(
        dict.fromkeys(of_metrics, "Mean DSC"), entries, **{"official": "o", "comparisons": comparisons, **parts}
    )
    return describe_winner(make_results({}, leaderboard=board))


ALL = [("ann", than) for than in TEAMS[1:]]
SIX = ("ann", "t2", "t3", "t4", "t5", "t6")
BOTH = {"of_metrics": ("m", "n")}
WINS = "ann wins with mean DSC 0.800 (0.100 to 0.950): "
WINS_BY_O = "ann wins by o, with mean DSC 0.800 (0.100 to 0.950): significantly better than "


@pytest.mark.parametrize(
    ("pairs", "options", "sentence"),
    [
        (ALL, {}, f"{WINS}significantly better than all three other teams."),
        (ALL, BOTH, f"{WINS_BY_O}all three other teams in every metric."),
        (ALL, BOTH | {"tested": "m"}, f"{WINS_BY_O}each of the three other teams in at least one metric."),
        (ALL[:1], BOTH | {"tested": "m", "teams": TEAMS[:2]}, f"{WINS_BY_O}bea in at least one metric."),
        (ALL[2:], {}, f"{WINS}not significantly better than bea and cat."),
        ([*ALL, ("cat", "ann")], {}, f"{WINS}not significantly better than cat."),
        ([], {"teams": SIX}, f"{WINS}not significantly better than any other team."),
        ([("ann", "t6")], {"teams": SIX}, f"{WINS}not significantly better than t2, t3, t4 and 1 more."),
        ([], {"comparisons": None}, f"{WINS}not tested against the other teams."),
        ([], {"teams": ["ann"]}, "ann is the only ranked team, with mean DSC 0.800 (0.100 to 0.950)."),
        ([], {"teams": TEAMS[:2], "ranks": (1, 1)}, "ann and bea share first place."),
    ],
)
def test_the_winner_in_one_sentence(pairs, options, sentence):
    assert describe(*pairs, **options) == sentence


@pytest.mark.parametrize(
    ("task", "metric", "figures", "remark"),
    [
        (HPV, "balanced_accuracy", (0.6, 0.5, 0.7), ", not shown to be better than chance (0.5)"),
        (HPV, "balanced_accuracy", (0.3, 0.2, 0.49), ", worse than chance (0.5)"),
        (HPV, "balanced_accuracy", (0.6, 0.51, 0.7), ""),
        (HPV, "balanced_accuracy", (0.45, None, None), ", not shown to be better than chance (0.5)"),
        (HPV, "balanced_accuracy", (0.6, None, None), ""),
        (HPV, "auc", (0.55, 0.45, 0.65), ", not shown to be better than chance (0.5)"),
        (HPV, "sensitivity", (0.3, 0.2, 0.4), ""),
        (RFS, "c_index", (0.4, 0.3, 0.45), ", worse than chance (0.5)"),
        (RFS, "auc_2y", (0.4, 0.3, 0.45), ", worse than chance (0.5)"),
    ],
)
def test_a_winner_is_compared_with_chance(task, metric, figures, remark):
    """Intervals may contain chance, bound included, or lie below it; without an interval the value itself counts."""
    value, low, high = figures
    entries = [
        {"team": team, "metrics": {metric: {"value": value, "ci95_low": low, "ci95_high": high}}} for team in TEAMS
    ]
    results = make_results({}, task, leaderboard=make_board({metric: "Metric"}, entries))
    ends = "" if low is None else f" ({low:.3f} to {high:.3f})"
    sentence = f"ann wins with metric {value:.3f}{ends}{remark}: not tested against the other teams."
    assert describe_winner(results) == sentence


def test_teams_that_share_first_place_are_compared_with_chance():
    """Only the interval of ann contains 0.5."""
    figures_of = {"ann": (0.55, 0.45, 0.7), "bea": (0.55, 0.51, 0.6)}
    entries = [
        {"team": team, "rank": 1, "metrics": {"c_index": {"value": value, "ci95_low": low, "ci95_high": high}}}
        for team, (value, low, high) in figures_of.items()
    ]
    results = make_results({}, RFS, leaderboard=make_board({"c_index": "C-index"}, entries))
    remark = "ann is not shown to be better than chance (0.5) in C-index."
    assert describe_winner(results) == f"ann and bea share first place. {remark}"


def test_chance_of_a_balanced_accuracy_is_one_in_the_classes_that_occur():
    """2026 has T1 to T4 and N0 to N3. Three T stages and two N stages occur: 1/3, 1/2 and on average 5/12.

    Without the teams' files each declared class counts. The score has parts without chance.
    """
    profile = load_profile("hecktor2026").find_task(None)
    recalls = {f"t_recall_{stage}": (0.5, None, None) for stage in ("T1", "T2", "T4")}
    recalls |= {f"n_recall_{stage}": (0.5, None, None) for stage in ("N0", "N2")} | {"t_recall_T3": (None, None, None)}
    results = make_results({"ann": make_metrics(recalls)}, profile.algorithm, "hecktor2026")
    names = ("t_balanced_accuracy", "n_balanced_accuracy", "tn_balanced_accuracy", "c_index")
    assert [compute_chance_level(results, name) for name in names] == pytest.approx([1 / 3, 1 / 2, 5 / 12, 0.5])
    assert compute_chance_level(results, "score") is None
    without_files = make_results({}, profile.algorithm, "hecktor2026")
    assert compute_chance_level(without_files, "t_balanced_accuracy") == pytest.approx(1 / 4)


PAIRS = (
    ("ann", "bea", 0.5),
    ("ann", "cat", 0.01),
    ("ann", "dan", 0.001),
    ("bea", "cat", 0.5),
    ("bea", "dan", 0.04),
    ("cat", "dan", 0.05),
)


def test_the_table_of_a_leaderboard():
    """Team ann beats cat (0.01) and dan (0.001), bea beats dan (0.04); 0.05 is not significant.

    Two ranked teams are above `base`, none above `pair`; both have no rank. Columns of methods follow the metrics.
    """
    teams = [make_entry(team, place) for place, team in enumerate(TEAMS, 1)]
    teams[1]["without_rows"] = True
    teams[2]["metrics"] = {"m": {}}
    teams[3]["metrics"] = {"m": {"value": None, "ci95_low": 9.0, "ci95_high": None, "infinite": ["value"]}}
    tests = [{"team": team, "than": than, "p_holm": p} for team, than, p in PAIRS]
    board = make_board(
        {"m": "Metric"},
        teams,
        comparisons={"m": {"test": "t", "pairs": tests}},
        out_of_competition=[
            {"team": name, "reason": reason, "place": place, "metrics": {"m": {"value": 0.75}}}
            for name, reason, place in (("pair", "", 0), ("base", "a <b>", 2))
        ],
        methods={"ann": {"Loss": "<i>", "Net": "U-Net"}, "base": {"Loss": "Dice", "Net": ""}},
        incomplete=[{"team": "eve", "without": ["m"]}],
    )
    html = render_leaderboard(make_results({}, leaderboard=board), COLOURS)
    assert read_cells(html) == [
        ["Rank", "Team", "Metric", "Loss", "Net", "Better than (of 3)", "Neither better nor worse than"],
        ["-", "pair (out of competition)", "0.750", "-", "-", ""],
        ["1", "ann", "0.800 0.100 to 0.950", "<i>", "U-Net", "2", "bea"],
        ["2", "bea (values not checked: no rows)", "0.700 0.100 to 0.950", "-", "-", "1", "ann and cat"],
        ["-", "base (out of competition: a <b>)", "0.750", "Dice", "-", ""],
        ["3", "cat", "-", "-", "-", "0", "bea and dan"],
        ["4", "dan", "inf", "-", "-", "0", "cat"],
        ["-", "eve", "not ranked: no m"],
    ]
    assert "<b>" not in html
    assert "<i>" not in html
    assert 'class="board searched"' in html
    # Number("inf") is NaN in JavaScript, and NaN cannot be sorted.
    assert html.count('data-sort="Infinity"') == 1
    without_methods = make_results({}, leaderboard=board.model_copy(update={"methods": {}}))
    assert "searched" not in render_leaderboard(without_methods, COLOURS)
