"""The facts and the methods of a report in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.report.leaderboard import in_words, inseparable_groups
from evaluation.report.methods import facts_html, methods_text
from tests.evaluation.report.challenge import cases, content, names


def test_the_result_in_words():
    """The first of four teams takes rank 1 in 20 of 100 rankings, with a C-index of 0.9 and a tau of 0.9.

    It differs by 0.02 and 0.03 from the third and the fourth, beyond 0.015: it is better than two of three.
    """
    board = content(names(4), cases(6)).results[1].board
    first = names(4)[0]
    assert in_words(board, []) == (
        f"{first} leads with a C-index of 0.900 and is first in 20% of 100 rankings of resampled patients. "
        "Kendall's tau between these rankings and the order below is 0.90 on average (95% interval 0.80 to 1.00; 1 means "
        f"the same order). Of the 3 other teams, {first} is significantly better than 2 in C-index."
    )


@pytest.mark.parametrize(("teams", "others"), [(4, "any of the 3 other teams"), (2, "the one other team")])
def test_a_leader_that_is_not_better(teams: int, others: str) -> None:
    """With every corrected p at 1, no metric is listed."""
    board = content(names(teams), cases(6)).results[1].board
    compared = {
        metric: {**of_metric, "pairs": [{**pair, "p_holm": 1.0} for pair in of_metric["pairs"]]}
        for metric, of_metric in board["comparisons"].items()
    }
    words = in_words({**board, "comparisons": compared}, [])
    assert words.endswith(f" {names(teams)[0]} is not significantly better than {others}.")


def test_words_of_a_board_without_rivals_or_stability():
    board = {**content(names(2), cases(6)).results[1].board, "stability": None, "comparisons": None}
    assert in_words(board, inseparable_groups(board)) == f"{names(2)[0]} leads with a C-index of 0.900."
    both = [{**entry, "rank": 1} for entry in board["teams"]]
    assert in_words({**board, "teams": both}, []) == f"{' and '.join(names(2))} share the first place."
    assert in_words({**board, "teams": []}, []) == "No team is ranked."


def test_failures_are_counted_by_case():
    """Of two teams one lacks a case and fails another one, for two answers of it: two predictions of one team."""
    results = content(names(2), cases(6)).results[:1]
    failed = [{"case": "b", "why": "x"}, {"case": "b", "why": "y"}]
    first = replace(results[0].teams[0], cases={**results[0].teams[0].cases, "missing": ["a"], "failed": failed})
    html = facts_html([replace(results[0], teams=[first, results[0].teams[1]])], "HECKTOR 2025", "2026-01-02")
    assert "<dd>2 missing or unusable predictions of 1 team</dd>" in html
    assert "<dd>6 of 6</dd>" in html
    assert "<dd>2026-01-02</dd>" in html
    assert "<dd>none</dd>" in facts_html(results, "HECKTOR 2025", "2026-01-02")


def test_methods_say_how_a_task_was_ranked():
    (results,) = content(names(3), cases(6)).results[:1]
    for team in results.teams:
        team.provenance["options"] = {"missing": "worst"}
    text = methods_text(results, "HECKTOR 2025")
    for words in (
        "HECKTOR 2025, task 1 (GTVp and GTVn segmentation): 3 teams were ranked on 6 cases.",
        "Metrics: GTVp mean DSC, GTVn aggregated DSC.",
        "A missing or unusable prediction counts as the worst possible answer.",
        "Ranking: by nested Borda; equal teams share the best of their ranks.",
        "9 bootstrap samples of the cases (seed 1)",
        "again on 100 bootstrap samples",
        "GTVp mean DSC, GTVn aggregated DSC by Student's t of the difference over its bootstrap deviation.",
        "Holm's method",
        "version 1.",
    ):
        assert words in text
    board = {**results.board, "stability": None, "comparisons": None}
    plain = methods_text(replace(results, board=board), "")
    assert plain.startswith("hecktor2025, task 1")
    assert "9 bootstrap samples of the cases (seed 1), those of recalls" in plain
    assert "Holm" not in plain
    assert "Stability" not in plain
