"""Ways to order teams, as data: by a metric, by ranks under several parts, or by one part after another."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contract.errors import HecktorError


@dataclass(frozen=True)
class Borda:
    """Order teams by the sum of their ranks under each part, times the part's weight where weights are given."""

    parts: tuple[Scheme, ...]
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeanRank(Borda):
    """The same order, told as the mean of the ranks."""


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
# Beyond it the smaller weights of a sum would be lost in rounding.
MAX_WEIGHT: Final = 1e6


def parse_scheme(node: Any, metrics: Collection[str], where: str) -> Scheme:
    """Check one entry of a profile's `schemes`; `metrics` are the names it may use, `where` its place for messages.

    Raises:
        HecktorError: it is no ranking; the message names the place.
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
    return (MeanRank if word == "mean_rank" else Borda)(parts, _weights(node["weights"], len(parts), where))


def _weights(raw: Any, count: int, where: str) -> tuple[float, ...]:
    numbers = raw if isinstance(raw, list) else []
    if len(numbers) != count or not all(map(_is_weight, numbers)):
        found = json.dumps(raw)[:80]
        raise HecktorError(f"{where}.weights", f"found {found}", f"{count} numbers above 0, one a part")
    return tuple(float(weight) for weight in numbers)


def _is_weight(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= MAX_WEIGHT
