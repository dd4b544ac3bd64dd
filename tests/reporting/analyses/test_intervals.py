"""Every metric with its interval."""

from __future__ import annotations

from reporting.analyses.leaderboards import analyse_ranked_metrics, analyse_unranked_metrics
from tests.evaluation.builders import with_board


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


def test_rows_out_of_competition_are_shown_at_their_places(two_teams) -> None:
    """Only one team is above the baseline, both are above the null, none above the ensemble."""
    value = {"m": {"value": 0.7, "ci95_low": None, "ci95_high": None}}
    entries = [
        {"team": name, "place": place, "metrics": value} for name, place in (("all", 0), ("base", 1), ("null", 2))
    ]
    (metrics, *_) = analyse_ranked_metrics(with_board(two_teams, out_of_competition=entries))
    assert [row["team"] for row in metrics.rows] == ["all", "ann", "base", "bea", "null"]
    lost = {"gtvp_hd95_median_mm": {"value": None, "ci95_low": None, "ci95_high": None, "infinite": ["value"]}}
    entries = [{"team": "null", "place": 2, "metrics": lost}]
    _, distances = analyse_ranked_metrics(with_board(two_teams, out_of_competition=entries))
    assert distances.notes == ("bea: D (mm) is infinite.", "null: D (mm) is infinite.")


def test_recall_of_masks_is_shown_with_precision(challenge) -> None:
    """Table 4 of the HECKTOR 2020 overview prints both next to the DSC."""
    (unranked,) = analyse_unranked_metrics(challenge("hecktor2025", "segmentation"))
    assert {"GTVp mean precision", "GTVp mean recall"} <= {row["metric"] for row in unranked.rows}
