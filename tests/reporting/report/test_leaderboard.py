"""The winner in one sentence, and the leaderboard's table: order of rows, significant wins, teams without an order."""

from __future__ import annotations

import re
from html import unescape

import pytest

from evaluation.editions.profile import load_profile
from reporting.report.leaderboard import compute_chance_level, describe_winner, render_leaderboard
from tests.evaluation.builders import make_board, make_metrics, make_results, with_board
from tests.evaluation.tasks import HPV, RFS

TEAMS = ("ann", "bea", "cat", "dan")
COLOURS = dict.fromkeys(TEAMS, "#1f86d6")


def make_pair(team, than, low, high, p_holm=0.5):
    return {"team": team, "than": than, "difference": 0.0, "ci95_low": low, "ci95_high": high, "p_holm": p_holm}


def make_entry(team, rank, names=("m",)):
    figures = {"value": 0.9 - rank / 10, "ci95_low": 0.1, "ci95_high": 0.95}
    return {"rank": rank, "team": team, "metrics": dict.fromkeys(names, figures)}


def make_ranked_results(metrics, entries, **parts):
    """Build results with only a leaderboard."""
    return make_results({}, leaderboard=make_board(metrics, entries, **parts))


@pytest.fixture
def results():
    """Teams ann and bea do not differ, and bea, cat and dan do not; ann differs from cat and dan."""
    pairs = [
        make_pair("ann", "bea", -0.01, 0.02),
        make_pair("ann", "cat", 0.01, 0.05, 0.01),
        make_pair("ann", "dan", 0.02, 0.06, 0.001),
        make_pair("bea", "cat", -0.02, 0.02),
        make_pair("bea", "dan", -0.03, 0.04, 0.04),
        make_pair("cat", "dan", -0.03, 0.04, 0.05),
    ]
    entries = [make_entry(team, place + 1) for place, team in enumerate(TEAMS)]
    return make_ranked_results({"m": "Metric"}, entries, comparisons={"m": {"test": "t", "pairs": pairs}})


def read_cells(html):
    """Return the text of each cell, by row; the first row holds the heads."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    texts = [[re.sub("<[^>]+>", "", cell) for cell in re.split(r"</t[hd]>", row)[:-1]] for row in rows]
    return [[unescape(text).strip() for text in row] for row in texts]


def make_results_of_pairs(*pairs, of_metrics=("m",), teams=None, **parts):
    """Build results of four teams, unless others are passed, with significant pairs in each metric."""
    tests = [{"team": team, "than": than, "p_holm": 0.01} for team, than in pairs]
    entries = [make_entry(team, place + 1, of_metrics) for place, team in enumerate(TEAMS)] if teams is None else teams
    comparisons = {name: {"test": "t", "pairs": tests} for name in of_metrics}
    return make_ranked_results(
        dict.fromkeys(of_metrics, "Mean DSC"), entries, **{"official": "o", "comparisons": comparisons, **parts}
    )


ALL = [("ann", than) for than in TEAMS[1:]]
VALUE = "ann wins with mean DSC 0.800 (0.100 to 0.950)"


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (make_results_of_pairs(*ALL), f"{VALUE}: significantly better than all three other teams."),
        (
            make_results_of_pairs(*ALL, of_metrics=("m", "n")),
            f"{VALUE.replace('wins', 'wins by o,')}: significantly better than all three other teams in every metric.",
        ),
        (make_results_of_pairs(("ann", "dan")), f"{VALUE}: not significantly better than bea and cat."),
        (make_results_of_pairs(*ALL, ("cat", "ann")), f"{VALUE}: not significantly better than cat."),
        (make_results_of_pairs(), f"{VALUE}: not significantly better than any other team."),
        (make_results_of_pairs(comparisons=None), f"{VALUE}: not tested against the other teams."),
        (
            make_results_of_pairs(teams=[make_entry("ann", 1)]),
            f"{VALUE.replace('wins', 'is the only ranked team,')}.",
        ),
        (make_results_of_pairs(teams=[make_entry("ann", 1), make_entry("bea", 1)]), "ann and bea share first place."),
    ],
)
def test_the_winner_in_one_sentence(results, sentence):
    assert describe_winner(results) == sentence


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
        {
            "team": team,
            "rank": 1,
            "metrics": {"c_index": dict(zip(("value", "ci95_low", "ci95_high"), ends, strict=True))},
        }
        for team, ends in figures_of.items()
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
    assert compute_chance_level(results, "t_balanced_accuracy") == pytest.approx(1 / 3)
    assert compute_chance_level(results, "n_balanced_accuracy") == pytest.approx(1 / 2)
    assert compute_chance_level(results, "tn_balanced_accuracy") == pytest.approx(5 / 12)
    assert compute_chance_level(results, "c_index") == 0.5
    assert compute_chance_level(results, "score") is None
    without_files = make_results({}, profile.algorithm, "hecktor2026")
    assert compute_chance_level(without_files, "t_balanced_accuracy") == pytest.approx(1 / 4)


def test_a_winner_may_be_better_in_only_some_metrics():
    """In the first of two metrics ann is better than all three, in the second than none; likewise with one other team."""
    both = ("m", "n")

    def describe_winner_in_m(*pairs, teams):
        tests = [{"team": team, "than": than, "p_holm": 0.01} for team, than in pairs]
        comparisons = {"m": {"test": "t", "pairs": tests}, "n": {"test": "t", "pairs": []}}
        entries = [make_entry(team, place + 1, both) for place, team in enumerate(teams)]
        return describe_winner(make_results_of_pairs(of_metrics=both, teams=entries, comparisons=comparisons))

    sentence = describe_winner_in_m(*ALL, teams=TEAMS)
    assert sentence.endswith("better than each of the three other teams in at least one metric.")
    sentence = describe_winner_in_m(ALL[0], teams=TEAMS[:2])
    assert sentence.endswith("significantly better than bea in at least one metric.")


def test_more_than_three_teams_that_are_not_beaten_are_counted():
    six = [make_entry(f"t{place}", place) for place in range(1, 7)]
    assert describe_winner(make_results_of_pairs(teams=six)).endswith("not significantly better than any other team.")
    one_is_worse = make_results_of_pairs(("t1", "t6"), teams=six)
    assert describe_winner(one_is_worse).endswith("not significantly better than t2, t3, t4 and 1 more.")


def test_teams_are_better_if_p_is_below_005(results):
    """Team ann beats cat (0.01) and dan (0.001), bea beats dan (0.04); 0.05 is not significant."""
    table = read_cells(render_leaderboard(results, COLOURS))
    assert table[0] == ["Rank", "Team", "Metric", "Better than (of 3)", "Neither better nor worse than"]
    assert [row[3] for row in table[1:]] == ["2", "1", "0", "0"]
    assert [row[4] for row in table[1:]] == ["bea", "ann and cat", "bea and dan", "cat"]


def test_rows_out_of_competition_are_shown_at_their_places(results):
    """Two ranked teams are above `base`, none above `pair`; both have no rank."""
    figures = {"value": 0.75, "ci95_low": None, "ci95_high": None}
    outside = [
        {"team": "pair", "reason": "", "metrics": {"m": figures}, "place": 0},
        {"team": "base", "reason": "a <b>", "metrics": {"m": figures}, "place": 2},
    ]
    results = with_board(results, out_of_competition=outside)
    rows = read_cells(render_leaderboard(results, COLOURS))[1:]
    assert [row[1].split(" ")[0] for row in rows] == ["pair", "ann", "bea", "base", "cat", "dan"]
    assert rows[3][:3] == ["-", "base (out of competition: a <b>)", "0.750"]
    assert "a <b>" not in render_leaderboard(results, COLOURS)


def test_descriptors_of_methods_are_columns_and_can_be_searched(results):
    """The columns follow the metrics, at the same place in every row."""
    assert "searched" not in render_leaderboard(results, COLOURS)
    figures = {"value": 0.75, "ci95_low": None, "ci95_high": None}
    outside = [{"team": "base", "reason": "", "metrics": {"m": figures}, "place": 4}]
    methods = {"ann": {"Loss": "<b>", "Net": "U-Net"}, "base": {"Loss": "Dice", "Net": ""}}
    results = with_board(results, out_of_competition=outside, methods=methods)
    html = render_leaderboard(results, COLOURS)
    rows = read_cells(html)
    assert rows[0][2:5] == ["Metric", "Loss", "Net"]
    assert [row[3:5] for row in (rows[1], rows[2], rows[5])] == [["<b>", "U-Net"], ["-", "-"], ["Dice", "-"]]
    assert 'class="board searched"' in html
    assert "<b>" not in html


def test_unranked_and_unchecked_teams_are_marked(results):
    teams = [make_entry(team, place + 1) for place, team in enumerate(TEAMS)]
    teams[1]["without_rows"] = True
    results = with_board(results, teams=teams, incomplete=[{"team": "eve", "without": ["m"]}])
    rows = read_cells(render_leaderboard(results, COLOURS))[1:]
    assert rows[1][1] == "bea (values not checked: no rows)"
    assert rows[4] == ["-", "eve", "not ranked: no m"]


def test_infinite_and_absent_values(results):
    teams = [make_entry(team, place + 1) for place, team in enumerate(TEAMS)]
    teams[3]["metrics"] = {"m": {"value": None, "ci95_low": 9.0, "ci95_high": None, "infinite": ["value"]}}
    teams[2]["metrics"] = {"m": {}}
    results = with_board(results, teams=teams)
    html = render_leaderboard(results, COLOURS)
    assert [row[2] for row in read_cells(html)[3:]] == ["-", "inf"]
    # Number("inf") is NaN in JavaScript, and NaN cannot be sorted.
    assert html.count('data-sort="Infinity"') == 1
