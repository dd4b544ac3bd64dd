"""Values that the platform's leaderboard reads from `metrics.json`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def value_at(metrics: Any, path: str) -> Any:
    """The value at a dotted path of keys, None where it is absent; list indices are no keys."""
    for key in path.split("."):
        if not isinstance(metrics, Mapping) or key not in metrics:
            return None
        metrics = metrics[key]
    return metrics


def ranked_values(metrics: Any) -> tuple[dict[str, float], list[str]]:
    """The ranked metrics of a result, and the reasons why the platform would leave it unranked (empty if it would not).

    The evaluation names the metrics in `provenance.ranked_metrics`. Without that list all aggregates that are numbers
    count, since an aggregate that nobody ranks may be undefined.

    Args:
        metrics: content of `metrics.json`.
    """
    names = value_at(metrics, "provenance.ranked_metrics")
    paths = _paths(names) if isinstance(names, list) else _numeric_aggregates(metrics)
    values, problems = {}, []
    for path in paths or ("aggregates",):
        value = value_at(metrics, path)
        if _is_number(value):
            values[path] = float(value)
        else:
            found = "nothing" if value is None else f"a {type(value).__name__}"
            problems.append(
                f"metrics.json: found {found} at {path}, expected a number; "
                "the platform would leave the whole result unranked"
            )
    return values, problems


def _numeric_aggregates(metrics: Any) -> tuple[str, ...]:
    aggregates = value_at(metrics, "aggregates")
    paths = _paths(aggregates) if isinstance(aggregates, Mapping) else ()
    return tuple(path for path in paths if _is_number(value_at(metrics, path)))


def _paths(names: Iterable[object]) -> tuple[str, ...]:
    return tuple(f"aggregates.{name}.value" for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
