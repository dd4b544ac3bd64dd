"""Rank teams by an edition's schemes: Borda counts, nested or flat, and lexicographic orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from contract.errors import HecktorError, MetricError
from evaluation.editions.document import Lexicographic, MeanRank, MedianRank, MetricProfile, RankingProfile, Scheme
from evaluation.metrics.overlap import Floats
from evaluation.results.task import TaskResults
from evaluation.statistics.tests import rank_values

# By metric, of shape (teams,), or (replicates, teams) to rank each replicate.
Values: TypeAlias = Mapping[str, Floats]
# Beyond this many digits two equal sums of rows can differ only by rounding.
SIGNIFICANT_DECIMALS: Final = 12


@dataclass(frozen=True)
class SchemeRanks:
    """Ranks of the teams under one scheme (1 is best) and the figures behind them, in the shape of the values.

    `rank_sum` is the (weighted) sum of the parts' ranks of a Borda count, `points` the sum of (teams - rank);
    `mean_rank` and `median_rank` summarise the parts' ranks. A scheme has only the figures that it uses.
    """

    ranks: Floats
    figures: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class TeamRanks:
    """The ranks by each single metric and under every scheme, and the teams in the official order."""

    metric_ranks: Mapping[str, Floats]
    scheme_ranks: Mapping[str, SchemeRanks]
    order: tuple[int, ...]


def values_of(results: TaskResults) -> dict[str, Floats]:
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
    metric_ranks = {name: rank_metric(values, metrics, name, ranking.ties) for name in values}
    of_schemes = {name: scheme_ranks(values, metrics, scheme, ranking.ties) for name, scheme in ranking.schemes.items()}
    official = of_schemes[ranking.official].ranks
    order = sorted(range(len(teams)), key=lambda place: (official[place], teams[place]))
    return TeamRanks(metric_ranks, of_schemes, tuple(order))


def rank_metric(values: Values, metrics: Mapping[str, MetricProfile], metric: str, ties: str) -> Floats:
    """Rank by only one metric, 1 for the best."""
    return _ranks(_badness(values, metrics, metric)[None], ties)


def scheme_ranks(values: Values, metrics: Mapping[str, MetricProfile], scheme: Scheme, ties: str) -> SchemeRanks:
    """Ranks of the teams under one scheme.

    A metric ranks by its value. A Borda count ranks by the sum of the ranks under its parts, which may be Borda
    counts themselves (nested); this gives the order of the sum of (teams - rank). Weights multiply the ranks. A mean
    rank gives the order of the Borda count, a median rank the order of the median of the parts' ranks. A
    lexicographic order ranks by its first part and breaks ties by the following ones; teams that tie in all parts
    share a rank. `average` averages the ranks that a scheme combines; its own ranks are the minimum, since a team has
    no place between two others.
    Source: the HECKTOR 2025 rules (nested) and overview (flat).
    """
    return _combined(values, metrics, scheme, ties, "min" if ties == "average" else ties)


def _combined(
    values: Values, metrics: Mapping[str, MetricProfile], scheme: Scheme, ties: str, last: str
) -> SchemeRanks:
    """Ranks under a scheme whose parts rank ties by `ties` and which itself ranks them by `last`."""
    if isinstance(scheme, str):
        return SchemeRanks(rank_metric(values, metrics, scheme, last))
    part_ranks = np.stack([_combined(values, metrics, part, ties, ties).ranks for part in scheme.parts])
    if isinstance(scheme, Lexicographic):
        return SchemeRanks(_ranks(part_ranks, last))
    if isinstance(scheme, MedianRank):
        median: Floats = np.median(part_ranks, axis=0)
        return SchemeRanks(_ranks(median[None], last), {"median_rank": median})
    weights = np.array(scheme.weights or np.ones(len(part_ranks)))
    rank_sum: Floats = np.tensordot(weights, part_ranks, axes=1)
    ranks = _ranks(np.round(rank_sum, SIGNIFICANT_DECIMALS)[None], last)
    if isinstance(scheme, MeanRank):
        return SchemeRanks(ranks, {"mean_rank": rank_sum / weights.sum()})
    return SchemeRanks(ranks, {"rank_sum": rank_sum, "points": weights.sum() * part_ranks.shape[-1] - rank_sum})


def _badness(values: Values, metrics: Mapping[str, MetricProfile], metric: str) -> Floats:
    if metric not in values:
        raise HecktorError("ranking", f"no metric {metric!r} in the results, found {', '.join(values)}")
    if np.isnan(values[metric]).any():
        raise MetricError(metric, "expected a value, not NaN, for each team")
    rounded: Floats = np.round(values[metric], SIGNIFICANT_DECIMALS)
    return -rounded if metrics[metric].higher_is_better else rounded


def _ranks(keys: Floats, ties: str) -> Floats:
    """Ranks by the first key, lower is better, then by the next; equal in all keys is a tie.

    `keys` has shape (keys, ..., teams); the ranks have shape (..., teams).
    """
    n_teams = keys.shape[-1]
    place = rank_values(keys[0], "dense")
    for key in keys[1:]:
        # A place is worth more than all ranks of the next key together, so that this key only breaks ties.
        place = rank_values(place * (n_teams + 1) + rank_values(key, "dense"), "dense")
    return rank_values(place, ties)
