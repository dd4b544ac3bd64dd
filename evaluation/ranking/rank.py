"""Rank teams by an edition's schemes: Borda counts, nested or flat, and lexicographic orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from contract.errors import HecktorError, MetricError
from evaluation.editions.document import (
    Lexicographic,
    MeanRank,
    MedianRank,
    MetricProfile,
    RankingProfile,
    RowScheme,
    Scheme,
    WinRank,
)
from evaluation.metrics.overlap import Floats
from evaluation.results.task import TaskResults
from evaluation.statistics.tests import rank_values

# Values by metric, shape (teams,), or (replicates, teams) to rank every replicate. The figures of a scheme that needs
# rows have its `column` as name.
Values: TypeAlias = Mapping[str, Floats]
# Values that agree to this many decimals are equal: sums in another order differ by rounding.
SIGNIFICANT_DECIMALS: Final = 12


@dataclass(frozen=True)
class SchemeRanks:
    """Ranks of the teams under one scheme and the figures behind them, in the shape of the values.

    Attributes:
        ranks: Ranks, 1 for the best team.
        figures: Figures that the scheme uses, by name. For a Borda count, `rank_sum` is the weighted sum of the parts'
            ranks, and `points` is the weighted sum of (teams - rank). `mean_rank` and `median_rank` summarise the
            parts' ranks, `mean_case_rank` and `median_case_rank` the ranks within the cases. `significant_wins` counts
            teams.
    """

    ranks: Floats
    figures: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class TeamRanks:
    """Ranks of the teams by each single metric and under every scheme, and the teams in the official order."""

    metric_ranks: Mapping[str, Floats]
    scheme_ranks: Mapping[str, SchemeRanks]
    order: tuple[int, ...]


def collect_values(results: TaskResults) -> dict[str, Floats]:
    """Return the ranked metrics of the teams that have all of them, each of shape (teams,)."""
    ranked = results.ranked
    return {
        name: np.array([results.value(team, name) for team in ranked], dtype=np.float64)
        for name in results.profile.metrics
    }


def rank_teams(
    teams: Sequence[str], values: Values, metrics: Mapping[str, MetricProfile], ranking: RankingProfile
) -> TeamRanks:
    """Rank teams by every scheme of an edition; teams of equal official rank are ordered by name."""
    ties = ranking.ties
    metric_ranks = {name: rank_by_metric(values, metrics, name, ties) for name in metrics if name in values}
    scheme_ranks = {name: rank_by_scheme(values, metrics, scheme, ties) for name, scheme in ranking.schemes.items()}
    official = scheme_ranks[ranking.official].ranks
    order = sorted(range(len(teams)), key=lambda index: (official[index], teams[index]))
    return TeamRanks(metric_ranks, scheme_ranks, tuple(order))


def rank_by_metric(values: Values, metrics: Mapping[str, MetricProfile], metric: str, ties: str) -> Floats:
    """Rank teams by one metric, 1 for the best team.

    Raises:
        HecktorError: The metric is not among the values.
        MetricError: A team has no value.
    """
    if metric not in values:
        raise HecktorError("ranking", f"no metric {metric!r} in the results, found {', '.join(values)}")
    if np.isnan(values[metric]).any():
        raise MetricError(metric, "expected a value, not NaN, for each team")
    rounded: Floats = np.round(values[metric], SIGNIFICANT_DECIMALS)
    return rank_values(-rounded if metrics[metric].higher_is_better else rounded, ties)


def rank_by_scheme(values: Values, metrics: Mapping[str, MetricProfile], scheme: Scheme, ties: str) -> SchemeRanks:
    """Rank teams under one scheme.

    A metric ranks teams by its value. A Borda count ranks them by the sum of their ranks under its parts, each
    multiplied by the part's weight; parts may be Borda counts themselves (nested). The order is the same as by the sum
    of (teams - rank). A mean rank gives the order of the Borda count, a median rank the order of the median of the
    parts' ranks. A lexicographic order ranks teams by its first part and breaks ties by the following parts; teams that
    tie in all parts share a rank.

    By ranks within the cases, the team with the lowest mean or median is first. By significant wins, the team with the
    most wins is first.

    If `ties` is `average`, the ranks that a scheme combines are averaged over tied teams. The scheme's own ranks are
    then the minimum, so that they are whole numbers.
    Source: the HECKTOR 2025 rules (nested) and overview (flat); Wiesenfarth et al. 2021, Sci Rep 11:2369 (ranks within
    cases, significant wins).
    """
    return _rank_parts(values, metrics, scheme, ties, "min" if ties == "average" else ties)


def _rank_parts(
    values: Values, metrics: Mapping[str, MetricProfile], scheme: Scheme, part_ties: str, own_ties: str
) -> SchemeRanks:
    """Rank teams under a scheme whose parts rank ties by `part_ties` and which itself ranks ties by `own_ties`."""
    if isinstance(scheme, str):
        return SchemeRanks(rank_by_metric(values, metrics, scheme, own_ties))
    if isinstance(scheme, RowScheme):
        figures = values[scheme.column]
        sort_keys = -figures if isinstance(scheme, WinRank) else np.round(figures, SIGNIFICANT_DECIMALS)
        return SchemeRanks(rank_values(sort_keys, own_ties), {scheme.figure: figures})
    part_ranks = np.stack([_rank_parts(values, metrics, part, part_ties, part_ties).ranks for part in scheme.parts])
    if isinstance(scheme, Lexicographic):
        return SchemeRanks(_rank_lexicographically(part_ranks, own_ties))
    if isinstance(scheme, MedianRank):
        median: Floats = np.median(part_ranks, axis=0)
        return SchemeRanks(rank_values(median, own_ties), {"median_rank": median})
    weights = np.array(scheme.weights or np.ones(len(part_ranks)))
    rank_sum: Floats = np.tensordot(weights, part_ranks, axes=1)
    ranks = rank_values(np.round(rank_sum, SIGNIFICANT_DECIMALS), own_ties)
    if isinstance(scheme, MeanRank):
        return SchemeRanks(ranks, {"mean_rank": rank_sum / weights.sum()})
    return SchemeRanks(ranks, {"rank_sum": rank_sum, "points": weights.sum() * part_ranks.shape[-1] - rank_sum})


def _rank_lexicographically(part_ranks: Floats, ties: str) -> Floats:
    """Rank teams by the first part's ranks, then by the next part's; teams that are equal in all parts tie.

    Args:
        part_ranks: Shape (parts, ..., teams).
        ties: Rule for ties.
    """
    n_teams = part_ranks.shape[-1]
    combined = rank_values(part_ranks[0], "dense")
    for ranks in part_ranks[1:]:
        # A step of the combined rank exceeds every rank of the next part, so the next part only breaks ties.
        combined = rank_values(combined * (n_teams + 1) + rank_values(ranks, "dense"), "dense")
    return rank_values(combined, ties)
