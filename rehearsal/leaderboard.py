"""What the platform's leaderboard can read from `metrics.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from contract.tasks import Task


def value_at(metrics: Any, path: str) -> Any:
    """The value at a dotted path of keys, None where it is absent; list indices are no keys."""
    for key in path.split("."):
        if not isinstance(metrics, Mapping) or key not in metrics:
            return None
        metrics = metrics[key]
    return metrics


def ranked_paths(task: Task) -> tuple[str, ...]:
    """The dotted paths by which a task's leaderboard ranks."""
    return tuple(f"aggregates.{metric}.value" for metric in task.metrics)


def ranked_values(metrics: Any, task: Task) -> tuple[dict[str, float], list[str]]:
    """The ranked metrics of a result, and why the platform would leave it unranked (empty where it would not)."""
    values: dict[str, float] = {}
    problems: list[str] = []
    for path in ranked_paths(task):
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
