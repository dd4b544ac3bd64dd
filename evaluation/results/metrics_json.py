"""The parts of metrics.json, and reading one back to rank or to show it.

`aggregates.<metric>.value|ci95_low|ci95_high` are what leaderboards point at; `cases` says which cases count and
why others do not; `provenance` what the figures came from; `results` holds one row a case.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.files import read_json
from contract.tasks import Task
from evaluation.editions.edge_cases import INFINITE, MIN_PUBLIC_CASES, NOTHING_TO_MEASURE
from evaluation.editions.profile import Edition
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission
from evaluation.metrics.overlap import WeightedMetric
from evaluation.rows.row import Row
from evaluation.statistics.bootstrap import Estimate, Estimates

METRICS_FORMAT: Final = 1
MAX_METRICS_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True)
class TeamMetrics:
    """One team's metrics.json. `rows` is empty where it was written without them."""

    team: str
    estimates: Mapping[str, Estimate]
    rows: Sequence[Mapping[str, Any]]
    cases: Mapping[str, Any]
    warnings: Sequence[str]
    provenance: Mapping[str, Any]


def aggregates(estimates: Estimates) -> dict[str, Any]:
    """Every metric's value and interval; null where it does not exist for this cohort, or is infinite.

    JSON has no infinity, so `infinite` lists the figures that are.
    """
    return {name: _figures(found) for name, found in estimates.by_metric.items()}


def _figures(found: Estimate) -> dict[str, Any]:
    figures = {"value": found.value, "ci95_low": found.ci95_low, "ci95_high": found.ci95_high}
    infinite = [name for name, value in figures.items() if value is not None and math.isinf(value)]
    plain: dict[str, Any] = {name: None if name in infinite else value for name, value in figures.items()}
    return {**plain, "infinite": infinite} if infinite else plain


def centres(
    metrics: Mapping[str, WeightedMetric], cases: Sequence[str], reference: Reference[Any], public: bool
) -> dict[str, Any]:
    """Every metric of each centre's cases alone, null where it is not finite; centres of few cases stay private."""
    of_case = [reference.centres.get(case) for case in cases]
    blocks = {}
    for centre in sorted({name for name in of_case if name is not None}):
        weights = np.array([[float(name == centre) for name in of_case]])
        count = int(weights.sum())
        if public and count < MIN_PUBLIC_CASES:
            continue
        values = {name: float(metric(weights)[0]) for name, metric in metrics.items()}
        found = {name: {"value": value if math.isfinite(value) else None} for name, value in values.items()}
        blocks[centre] = {"cases": count, "aggregates": found}
    return blocks


def undefined(values: Mapping[str, float | None]) -> list[str]:
    """One warning for each metric that does not exist for this cohort, or is infinite."""
    lines = [NOTHING_TO_MEASURE.format(metric=name) for name, value in values.items() if value is None]
    infinite = [name for name, value in values.items() if value is not None and math.isinf(value)]
    return lines + [INFINITE.format(metric=name) for name in infinite]


def case_counts(
    reference: Reference[Any],
    submission: Submission,
    rows: Sequence[Row],
    counted: Sequence[Row],
    skipped: Mapping[str, tuple[str, ...]],
    *,
    public: bool = False,
) -> dict[str, Any]:
    """Which cases count, and by name those that are missing, failed, skipped, unknown or doubled.

    `public` counts the skipped ones instead, since a reason such as an empty reference tells what it holds.
    """
    missing = [row.case for row in rows if row.error is not None and not row.failed]
    failed = [{"case": row.case, "why": row.error} for row in rows if row.failed]
    reasons = {why: list(cases) for why, cases in skipped.items()}
    if reference.without_target:
        reasons["no_target_in_ground_truth"] = list(reference.without_target)
    left_out = sorted({row.case for row in rows} - {row.case for row in counted})
    if left_out:
        reasons["no_usable_prediction"] = left_out
    return {
        "in_ground_truth": len(reference.targets) + len(reference.without_target),
        "used": len(counted),
        "answered": len(rows) - len(missing) - len(failed),
        "missing": missing,
        "failed": failed,
        "skipped": {why: len(cases) for why, cases in reasons.items()} if public else reasons,
        "unknown": list(submission.unknown),
        "duplicate": list(submission.duplicate),
    }


def provenance(task: Task, edition: Edition, reference: Reference[Any]) -> dict[str, Any]:
    """What was measured, by which version and rules, on which set of cases."""
    names = "\n".join(sorted(reference.targets))
    return {
        "format": METRICS_FORMAT,
        "version": _package_version(),
        "task": task.name,
        "edition": edition.name,
        "options": edition.profile(task).options,
        "case_set_sha256": hashlib.sha256(names.encode()).hexdigest(),
    }


def _package_version() -> str:
    try:
        return version("hecktor")
    except PackageNotFoundError:
        return "unknown"


def read_metrics(path: Path, team: str) -> TeamMetrics:
    """Read a metrics.json that this project wrote.

    Raises:
        HecktorError: no such file, or one of another make; the message names the file.
    """
    content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES)
    where = f"{path.parent.name}/{path.name}"
    parts: dict[str, tuple[str, type]] = {
        "aggregates": ("object", dict),
        "provenance": ("object", dict),
        "cases": ("object", dict),
        "results": ("list", list),
        "warnings": ("list", list),
    }
    for key, (name, kind) in parts.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise HecktorError(where, f"no {name} `{key}`", "a metrics.json of `hecktor evaluate`")
    if content["provenance"].get("format") != METRICS_FORMAT:
        raise HecktorError(where, f"format {content['provenance'].get('format')!r}", f"{METRICS_FORMAT}")
    estimates = {name: _estimate(raw, f"{where}: {name}") for name, raw in content["aggregates"].items()}
    return TeamMetrics(
        team, estimates, content["results"], content["cases"], content["warnings"], content["provenance"]
    )


def _estimate(raw: Any, where: str) -> Estimate:
    values = []
    for key in ("value", "ci95_low", "ci95_high"):
        value = raw.get(key) if isinstance(raw, dict) else "nothing"
        if value is None and key in (raw.get("infinite") or ()):
            value = math.inf
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise HecktorError(f"{where}.{key}", f"found {value!r}", "a number or null")
        values.append(value)
    return Estimate(*values)
