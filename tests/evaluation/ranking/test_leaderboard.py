"""Rankings against the published table of five and small tables by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.errors import MetricError
from evaluation.editions.document import Borda, Lexicographic, MeanRank, MedianRank
from evaluation.editions.profile import MetricProfile, load_profile
from evaluation.ranking.leaderboard import compute_stability
from evaluation.ranking.rank import rank_by_metric, rank_by_scheme, rank_teams
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

# The five teams that the HECKTOR 2025 overview prints: GTVp mean DSC, GTVn DSCagg, GTVn F1agg.
TEAMS_2025 = {
    "MEDAI": (0.7418, 0.7640, 0.6472),
    "Dolphins": (0.7567, 0.7622, 0.6407),
    "sztu_bme2025": (0.7308, 0.7641, 0.6320),
    "InterStellar": (0.7301, 0.7406, 0.6638),
    "SJTU_lab426": (0.7341, 0.7312, 0.7260),
}
METRICS = ("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg")
PROFILES = {name: MetricProfile(name, higher_is_better=True) for name in "xyz"}


def make_five_teams():
    columns = zip(*TEAMS_2025.values(), strict=True)
    values = {name: np.array(column) for name, column in zip(METRICS, columns, strict=True)}
    return values, load_profile("hecktor2025").find_task(SEGMENTATION.name).metrics


def make_table(**columns):
    values = {name: np.array(column, dtype=float) for name, column in columns.items()}
    return values, {name: MetricProfile(name, higher_is_better=True) for name in values}


def test_weights_multiply_ranks():
    """Detection twice: (2 + 2 + 6, 1 + 3 + 8, 4 + 1 + 10, 5 + 4 + 4, 3 + 5 + 2) = 10, 12, 15, 13, 10, of 4 * 5."""
    ranking = rank_by_scheme(*make_five_teams(), Borda(parts=METRICS, weights=(1.0, 1.0, 2.0)), "min")
    assert ranking.figures["rank_sum"].tolist() == [10, 12, 15, 13, 10]
    assert ranking.figures["points"].tolist() == [10, 8, 5, 7, 10]
    assert ranking.ranks.tolist() == [1, 3, 5, 4, 1]
    assert rank_by_scheme(*make_five_teams(), MeanRank(parts=METRICS, weights=(1.0, 1.0, 2.0)), "min").figures[
        "mean_rank"
    ].tolist() == [2.5, 3, 3.75, 3.25, 2.5]


def test_weights_that_are_no_sums_of_halves_still_tie():
    """With the weights of 2026 a's ranks 1, 3, 2 and b's 4, 2, 1 both give 2.1; c's 2, 1, 3 give 2.05, d's 3, 4, 4 3.75.

    In floating point a's sum is below 2.1.
    """
    four = make_table(x=[4, 1, 3, 2], y=[2, 3, 4, 1], z=[3, 4, 2, 1])
    ranking = rank_by_scheme(*four, Borda(parts=("x", "y", "z"), weights=(0.25, 0.35, 0.4)), "min")
    assert ranking.ranks.tolist() == [2, 2, 1, 4]


@pytest.mark.parametrize(
    ("ties", "ranks"),
    [("min", [1, 2, 2, 4, 5]), ("average", [1, 2.5, 2.5, 4, 5]), ("max", [1, 3, 3, 4, 5]), ("dense", [1, 2, 2, 3, 4])],
)
def test_ties_as_the_2025_overview_prints_them(ties, ranks):
    """Task 2 of HECKTOR 2025: two teams of 0.6023 share rank 2, and the next is fourth."""
    assert (
        rank_by_metric(*make_table(c_index=[0.6583, 0.6023, 0.6023, 0.5873, 0.5281]), "c_index", ties).tolist() == ranks
    )


def test_rounding_noise_is_a_tie_and_nan_is_refused():
    assert rank_by_metric(*make_table(m=[0.1 + 0.2, 0.3]), "m", "min").tolist() == [1, 1]
    with pytest.raises(MetricError, match="not NaN"):
        rank_by_metric(*make_table(m=[0.5, float("nan")]), "m", "min")


def test_hpv_ties_are_broken_by_specificity():
    profile = load_profile("hecktor2025").find_task(HPV.name)
    values = {
        "balanced_accuracy": [0.6, 0.6, 0.7, 0.6],
        "sensitivity": [0.5, 0.7, 0.8, 0.5],
        "specificity": [0.7, 0.5, 0.6, 0.7],
    }
    columns = {name: np.array(column) for name, column in values.items()}
    ranking = rank_teams(["d", "c", "b", "a"], columns, profile.metrics, profile.ranking)
    assert ranking.scheme_ranks[profile.ranking.official].ranks.tolist() == [2, 4, 1, 2]
    assert ranking.order == (2, 3, 0, 1)


@settings(max_examples=40)
@given(
    arrays(np.int64, st.tuples(st.just(3), st.integers(1, 4), st.integers(1, 6)), elements=st.integers(0, 3)),
    st.sampled_from(["min", "average", "max", "dense"]),
)
def test_replicates_are_ranked_like_single_tables(values, ties):
    """By counting in each replicate: a team's lowest rank is 1 and the number of teams before it in (x, z)."""
    whole = dict(zip("xyz", values / 10, strict=True)), PROFILES
    single_tables = [make_table(**dict(zip("xyz", replicate / 10, strict=True))) for replicate in values.swapaxes(0, 1)]
    for scheme in (
        "x",
        Borda(parts=("x", Borda(parts=("y", "z")))),
        MeanRank(parts=("x", "y", "z"), weights=(1.0, 2.0, 0.5)),
        Lexicographic(parts=("x", "z")),
        MedianRank(parts=("x", "y", "z")),
    ):
        ranking = rank_by_scheme(*whole, scheme, ties)
        single_rankings = [rank_by_scheme(*single_table, scheme, ties) for single_table in single_tables]
        assert ranking.ranks.tolist() == [single.ranks.tolist() for single in single_rankings]
        for name, figures in ranking.figures.items():
            np.testing.assert_allclose(figures, [single.figures[name] for single in single_rankings], rtol=1e-12)
    x, _, z = -values
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(x.tolist(), z.tolist(), strict=True)]
    counted = [[1 + sum(better < pair for better in row) for pair in row] for row in pairs]
    assert rank_by_scheme(*whole, Lexicographic(parts=("x", "z")), "min").ranks.tolist() == counted


def test_bounds_of_a_rank_are_ranks_that_occurred():
    """Team a is first in 29 of 30 replicates: 97.5% of its ranks reach up to 2, and 2.5% of b's down to 1, never 1.275."""
    profile = load_profile("hecktor2025").find_task(RFS.name)
    of_a = np.full(30, 0.7)
    of_a[11] = 0.5
    draws = {("a", "c_index"): of_a, ("b", "c_index"): np.full(30, 0.6)}
    teams = compute_stability(["a", "b"], {"c_index": np.array([0.7, 0.6])}, draws, profile)[1]["c_index"].teams
    assert teams["a"].model_dump() == {
        "times_at_rank": {"1": 29, "2": 1},
        "mean": pytest.approx(31 / 30),
        "ci95_low": 1,
        "ci95_high": 2,
    }
    assert (teams["b"].ci95_low, teams["b"].ci95_high) == (1, 2)
