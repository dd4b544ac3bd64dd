"""From a submission and the ground truth to metrics.json: load, one row a case, aggregate, bootstrap, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import PredictionError
from contract.files import write_json
from contract.sockets import METRICS_JSON
from contract.tasks import Task
from evaluation import metrics_json
from evaluation.bootstrap import estimate
from evaluation.edition import TaskProfile, load_edition
from evaluation.rows import Row
from evaluation.scorers import SCORERS
from evaluation.submission import read_submission

DEFAULT_SEED: Final = 2025
DEFAULT_BOOTSTRAPS: Final = 1000


@dataclass(frozen=True)
class Request:
    """What to evaluate and how. `public` leaves the per-case rows out of what is written."""

    task: Task
    input_dir: Path
    ground_truth_dir: Path
    output_dir: Path
    edition: str
    seed: int
    bootstraps: int
    workers: int
    public: bool = False


def evaluate(request: Request) -> dict[str, Any]:
    """Evaluate one submission and write `metrics.json`, whole or not at all.

    Raises:
        HecktorError: the ground truth or `predictions.json` cannot be used, or a ranked metric does not exist.
            An unusable prediction is no error but counts by the edition's rule for missing cases.
    """
    target = request.output_dir / METRICS_JSON
    target.unlink(missing_ok=True)
    edition = load_edition(request.edition)
    profile = edition.profile(request.task)
    scorer, output = SCORERS[profile.kind], request.task.output
    reference = scorer.read_reference(request.ground_truth_dir)
    submission = read_submission(request.input_dir, output, reference.targets.keys(), reference.without_target)
    rows = scorer.score(reference, submission, profile.rules, output, request.workers)
    counted = _counted(rows, profile)
    measured = scorer.measure(counted, profile.rules)
    reported = {name: measured.metrics[name] for name in profile.metrics}
    rng = np.random.default_rng(request.seed)
    estimates = estimate(reported, len(counted), request.bootstraps, rng)
    values = {name: found.value for name, found in estimates.by_metric.items()}
    report = {
        "aggregates": metrics_json.aggregates(estimates),
        "cases": metrics_json.case_counts(reference, submission, rows, counted, measured.skipped),
        "warnings": metrics_json.undefined(values) + scorer.warn(values, profile.rules),
        "provenance": {
            **metrics_json.provenance(request.task, edition, reference),
            "seed": request.seed,
            "bootstraps": request.bootstraps,
            "redraws": estimates.redraws,
        },
        "results": [] if request.public else [row.as_json() for row in rows],
    }
    write_json(target, report)
    return report


def _counted(rows: Sequence[Row], profile: TaskProfile) -> list[Row]:
    """The rows that enter the metrics, by the edition's rule for missing cases."""
    without = [row for row in rows if row.error is not None]
    if without and profile.rules.missing == "stop":
        raise PredictionError(
            f"{len(without)} cases without a usable prediction, {without[0].case}: {without[0].error}"
        )
    if profile.rules.missing != "skip":
        return list(rows)
    kept = [row for row in rows if row.error is None]
    if not kept:
        raise PredictionError(f"none of {len(rows)} cases has a usable prediction, expected at least one")
    return kept
