"""Ways to order teams, as data: by a metric, by ranks under several parts, or by one part after another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contract.editions.values import is_number
from contract.errors import HecktorError
from evaluation.editions.checks import choice, nonempty, object_with, shown


@dataclass(frozen=True)
class Borda:
    """Order teams by the sum of their ranks under each part, each rank times the part's weight if weights are given."""

    parts: tuple[Scheme, ...]
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeanRank(Borda):
    """The order of the Borda count, reported as the mean of the ranks."""


@dataclass(frozen=True)
class MedianRank:
    """Order teams by the median of their ranks under each part."""

    parts: tuple[Scheme, ...]


@dataclass(frozen=True)
class Lexicographic:
    """Order teams by the first part; the following ones only break ties."""

    parts: tuple[Scheme, ...]


Scheme: TypeAlias = "str | Borda | MedianRank | Lexicographic"
COMBINATIONS: Final[dict[str, type[Borda | MedianRank | Lexicographic]]] = {
    "borda": Borda,
    "mean_rank": MeanRank,
    "median_rank": MedianRank,
    "lexicographic": Lexicographic,
}
WEIGHTED: Final = ("borda", "mean_rank")
# Larger weights would lose the smaller ones of a sum in rounding.
MAX_WEIGHT: Final = 1e6
TIE_RULES: Final = ("min", "average", "max", "dense")


@dataclass(frozen=True)
class RankingProfile:
    """The official ranking (a key of `schemes`), the rankings shown beside it, and the rule for ties."""

    official: str
    ties: str
    schemes: Mapping[str, Scheme]

    @property
    def official_metrics(self) -> tuple[str, ...]:
        """The metrics that decide the official ranking, in the scheme's order."""
        return tuple(dict.fromkeys(_metrics_of(self.schemes[self.official])))


def _metrics_of(scheme: Scheme) -> list[str]:
    return [scheme] if isinstance(scheme, str) else [name for part in scheme.parts for name in _metrics_of(part)]


def parse_ranking(raw: Any, metrics: Collection[str], where: str) -> RankingProfile:
    """Check a task's `ranking`; `metrics` are the names that it may use."""
    content = object_with(raw, where, ("official", "ties", "schemes"))
    nodes = nonempty(content, "schemes", where, "ranking")
    schemes = {name: parse_scheme(node, metrics, f"{where}.schemes.{name}") for name, node in nodes.items()}
    official = choice(content, "official", tuple(schemes), where)
    return RankingProfile(official, choice(content, "ties", TIE_RULES, where), schemes)


def parse_scheme(node: Any, metrics: Collection[str], where: str) -> Scheme:
    """Check an entry of a profile's `schemes`; `metrics` are the names that it may use, `where` its place.

    Raises:
        HecktorError: not a ranking; the message names the place.
    """
    if isinstance(node, str):
        if node not in metrics:
            raise HecktorError(where, f"unknown metric {node!r}", f"one of {', '.join(metrics)}")
        return node
    words = [word for word in COMBINATIONS if isinstance(node, dict) and word in node]
    if len(words) != 1:
        raise HecktorError(where, f"expected a metric's name or an object with one of {', '.join(COMBINATIONS)}")
    word = words[0]
    surplus = sorted(set(node) - {word} - ({"weights"} if word in WEIGHTED else set()))
    if surplus:
        raise HecktorError(where, f"unknown {', '.join(surplus)} beside {word}")
    if not isinstance(node[word], list) or not node[word]:
        raise HecktorError(f"{where}.{word}", "expected a list of metrics or rankings")
    parts = tuple(parse_scheme(part, metrics, f"{where}.{word}") for part in node[word])
    if "weights" not in node:
        return COMBINATIONS[word](parts)
    return (MeanRank if word == "mean_rank" else Borda)(parts, parse_weights(node["weights"], len(parts), where))


def parse_weights(raw: Any, count: int, where: str) -> tuple[float, ...]:
    """Check `weights`, one for each of `count` parts."""
    numbers = raw if isinstance(raw, list) else []
    if len(numbers) != count or not all(is_number(weight) and 0 < weight <= MAX_WEIGHT for weight in numbers):
        raise HecktorError(f"{where}.weights", f"found {shown(raw)}", f"{count} numbers above 0, one a part")
    return tuple(map(float, numbers))
