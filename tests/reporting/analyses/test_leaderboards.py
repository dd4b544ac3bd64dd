"""Metrics with intervals, stability of ranks, Kendall's tau and pairwise tests, from a leaderboard."""

from __future__ import annotations

import pytest

from evaluation.ranking.comparisons import TOO_FEW, TOO_FEW_DIFFER
from evaluation.results.task import TaskResults
from reporting.analyses.leaderboards import (
    analyse_ranked_metrics,
    analyse_significance,
    analyse_stability,
    analyse_unranked_metrics,
)
from tests.evaluation.builders import with_board
from tests.reporting.analyses.conftest import make_ranks


@pytest.fixture
def three_teams(two_teams) -> TaskResults:
    """Add cat, who is always third, to the two teams."""
    stable = two_teams.board.stability.model_dump(exclude_unset=True)
    for ranking in (*stable["rankings"].values(), *stable["metrics"].values()):
        ranking["teams"] |= make_ranks(cat={"3": 4})["teams"]
    return with_board(two_teams, teams=[{"team": name} for name in ("ann", "bea", "cat")], stability=stable)


def test_blobs_are_fractions_of_the_bootstrap_rankings(two_teams) -> None:
    """In the official ranking ann is first in 3 of 4. Kendall's tau between two teams would only repeat this."""
    (blobs,) = analyse_stability(two_teams)
    official = [row for row in blobs.rows if row["ranking"].startswith("Official")]
    assert [(row["team"], row["rank"], row["fraction"]) for row in official] == [
        ("ann", 1, 0.75),
        ("ann", 2, 0.25),
        ("bea", 1, 0.25),
        ("bea", 2, 0.75),
    ]
    assert {row["ranking"] for row in blobs.rows} == {"Official ranking", "M", "D (mm)"}
    assert "tau" not in blobs.caption.lower()


def test_tau_of_three_teams(three_teams) -> None:
    """The overview of 2021 prints the tau of DSCagg, which did not rank."""
    stable = three_teams.board.stability.model_dump(exclude_unset=True)
    metrics = {**stable["metrics"], "gtvp_dsc_agg": make_ranks(0.841, ann={"1": 4}, bea={"2": 4}, cat={"3": 4})}
    blobs, taus = analyse_stability(with_board(three_teams, stability={**stable, "metrics": metrics}))
    assert list(dict.fromkeys(row["ranking"] for row in blobs.rows))[:3] == [
        "Official ranking, tau 0.500 (-1.000 to 1.000)",
        "M",
        "D (mm), tau 0.250 (-1.000 to 1.000)",
    ]
    assert [(row["ranking"], row["mean"]) for row in taus.rows] == [
        ("o (official)", 0.5),
        ("D (mm) only", 0.25),
        ("GTVp aggregated DSC only", 0.841),
    ]


def test_pairwise_tests_with_intervals(two_teams) -> None:
    (tests,) = analyse_significance(two_teams)
    first, second = tests.rows[:2]
    figures = {"difference": 0.2, "ci95_low": 0.1, "ci95_high": 0.3, "p": 0.005, "p_holm": 0.01}
    assert first == {"metric": "M", "team": "ann", "than": "bea", **figures}
    assert (second["difference"], second["ci95_low"], second["p_holm"]) == (None, None, 0.9996)
    assert tests.notes == ("M, D (mm): Wilcoxon's signed-rank test.",)
    (tests,) = analyse_significance(with_board(two_teams, teams=[{"team": "bea"}, {"team": "ann"}]))
    assert [row["team"] for row in tests.rows[:2]] == ["bea", "ann"]


@pytest.mark.parametrize(
    ("without_p", "reason"),
    [
        (TOO_FEW, "a class has only one patient"),
        (
            f"{TOO_FEW_DIFFER}: 1.2 degrees of freedom",
            "the bootstrap standard error has fewer than five degrees of freedom",
        ),
    ],
)
def test_a_second_test_is_shown_with_the_deciding_one(two_teams, without_p: str, reason: str) -> None:
    """Kang's test is the second test of one metric, which has no p; the other metric has no second test."""
    deciding = two_teams.board.comparisons["m"].model_dump(exclude_unset=True)
    pairs = [{"team": "bea", "than": "ann", "p_holm": 1.0}, {"team": "ann", "than": "bea", "p_holm": 0.04}]
    decided = [{**pair, "p": None, "p_holm": None, "without_p": without_p} for pair in deciding["pairs"]]
    second = {"test": "bootstrap_difference", "pairs": decided, "other_tests": {"kang": pairs}}
    comparisons = {"m": second, "gtvp_hd95_median_mm": {**deciding, "other_tests": {}}}
    (tests,) = analyse_significance(with_board(two_teams, comparisons=comparisons))
    assert [row.get("p_second") for row in tests.rows] == [0.04, 1.0, None, None]
    assert [row["p_holm"] for row in tests.rows][:2] == [None, None]
    assert list(tests.columns)[-1] == "p_second"
    assert tests.notes == (
        "M: Student's t of the difference over its bootstrap standard error, with Kang's test as a second test.",
        "D (mm): Wilcoxon's signed-rank test.",
        f"Too few patients differ to test M in 1 of 1 pairs: {reason}.",
    )


def test_fractions_distances_and_metrics_that_do_not_rank(two_teams) -> None:
    """The infinite distance of bea is named; the end of ann's interval is infinite and so absent."""
    metrics, distances = analyse_ranked_metrics(two_teams)
    (unranked,) = analyse_unranked_metrics(two_teams)
    assert [(row["team"], row["value"], row["ci95_low"], row["ci95_high"]) for row in metrics.rows] == [
        ("ann", 0.8, 0.7, 0.9),
        ("bea", 0.6, 0.5, 0.7),
    ]
    assert metrics.chart["domain"] == [0, 1]
    assert [(row["team"], row["value"], row["ci95_high"]) for row in distances.rows] == [("ann", 3.0, None)]
    assert distances.notes == ("bea: D (mm) is infinite.",)
    assert "domain" not in distances.chart
    assert [(row["metric"], row["value"]) for row in unranked.rows] == [("GTVp F1", 0.5)]
