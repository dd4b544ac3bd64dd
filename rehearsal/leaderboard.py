"""Values that the platform's leaderboard reads from `metrics.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def value_at(metrics: Any, path: str) -> Any:
    """The value at a dotted path of keys, None where it is absent; list indices are no keys."""
    for key in path.split("."):
        if not isinstance(metrics, Mapping) or key not in metrics:
            return None
        metrics = metrics[key]
    return metrics


def ranked_paths(metrics: Any) -> tuple[str, ...]:
    """The dotted paths by which the leaderboard ranks.

    The evaluation names the ranked metrics in `provenance.ranked_metrics`; without that list all aggregates count.
    """
    names = value_at(metrics, "provenance.ranked_metrics") or value_at(metrics, "aggregates")
    if not isinstance(names, list | Mapping):
        return ()
    return tuple(f"aggregates.{name}.value" for name in names)


def ranked_values(metrics: Any) -> tuple[dict[str, float], list[str]]:
    """The ranked metrics of a result, and the reasons why the platform would leave it unranked (empty if it would not).

    Args:
        metrics: content of `metrics.json`.
    """
    values: dict[str, float] = {}
    problems: list[str] = []
    for path in ranked_paths(metrics) or ("aggregates",):
        value = value_at(metrics, path)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            values[path] = float(value)
        else:
            found = "nothing" if value is None else f"a {type(value).__name__}"
            problems.append(
                f"metrics.json: found {found} at {path}, expected a number; "
                "the platform would leave the whole result unranked"
            )
    return values, problems
