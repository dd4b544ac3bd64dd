"""From a submission and the ground truth to metrics.json: load, one row a case, aggregate, bootstrap, write."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import GroundTruthError, HecktorError, OutputError, PredictionError
from contract.files import write_json
from contract.platform import METRICS_JSON
from contract.tasks import Task
from evaluation.editions.profile import Edition, TaskProfile, load_edition, with_options
from evaluation.editions.rules import SegmentationRules
from evaluation.execution.cluster import DaskWorkers
from evaluation.execution.pool import Workers
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.plain_files import read_bounding_boxes
from evaluation.inputs.submission import Submission, read_submission
from evaluation.metrics.overlap import WeightedMetric
from evaluation.results import metrics_json
from evaluation.rows.row import Row
from evaluation.rows.scorers import SCORERS, Scorer
from evaluation.statistics.bootstrap import INTERVAL_METHODS, Estimate, Estimates, estimate
from evaluation.statistics.extras import estimate_extras

DEFAULT_SEED: Final = 2025
DEFAULT_BOOTSTRAPS: Final = 1000


@dataclass(frozen=True)
class Request:
    """What to evaluate and how.

    `input_dir` is the platform's; `predictions`, a folder of masks or a table, stands in its place where given.
    `options` change the edition's rules, by name. `public` leaves out what a submitter must not see. `interval` is
    how intervals are made. Rows are made by `workers` local processes, or by the cluster behind `scheduler`.
    """

    task: Task
    input_dir: Path
    ground_truth_dir: Path
    output_dir: Path
    edition: str
    seed: int
    bootstraps: int
    workers: int
    public: bool = False
    predictions: Path | None = None
    bounding_boxes: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    interval: str = INTERVAL_METHODS[0]
    scheduler: str | None = None


def evaluate(request: Request) -> dict[str, Any]:
    """Evaluate one submission and write `metrics.json`, whole or not at all.

    Raises:
        HecktorError: the ground truth or `predictions.json` cannot be used, or a ranked metric does not exist.
            An unusable prediction is no error but counts by the edition's rule for missing cases.
    """
    target = request.output_dir / METRICS_JSON
    _remove_earlier(target)
    edition = with_options(load_edition(request.edition), request.task, request.options)
    profile = edition.profile(request.task)
    scorer, output = SCORERS[profile.kind], request.task.output
    reference = _reference(request, scorer, edition)
    submission = _submission(request, scorer, reference)
    rows = scorer.score(reference, submission, profile.rules, output, _workers(request))
    counted = _counted(rows, profile)
    measured = scorer.measure(counted, profile.rules)
    estimates = _estimates(measured.metrics, profile, len(counted), request)
    values = {name: estimates.by_metric[name].value for name in profile.metrics}
    report = {
        "aggregates": metrics_json.aggregates(estimates),
        "centres": _centres(request, scorer, measured.metrics, counted, reference),
        "analyses": scorer.analyse(counted, request.public),
        "cases": metrics_json.case_counts(
            reference, submission, rows, counted, measured.skipped, public=request.public
        ),
        "warnings": metrics_json.undefined(values) + scorer.warn(values, profile.rules),
        "provenance": _provenance(request, edition, reference, estimates),
        "results": [] if request.public else [row.as_json() for row in rows],
    }
    write_json(target, report)
    return report


def _remove_earlier(target: Path) -> None:
    """An earlier result must not be taken for the one of a run that fails."""
    try:
        target.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(target.name, f"cannot be replaced ({problem.strerror})", "a writable folder") from None


def _centres(
    request: Request,
    scorer: Scorer,
    metrics: Mapping[str, WeightedMetric],
    counted: Sequence[Row],
    reference: Reference[Any],
) -> dict[str, Any]:
    if request.public and not scorer.public_centres:
        return {}
    return metrics_json.centres(metrics, [row.case for row in counted], reference, request.public)


def _workers(request: Request) -> int | Workers:
    return request.workers if request.scheduler is None else DaskWorkers(request.scheduler)


def _reference(request: Request, scorer: Scorer, edition: Edition) -> Reference[Any]:
    _check_bounding_boxes(request, edition)
    reference = scorer.read_reference(request.ground_truth_dir)
    if request.bounding_boxes is None:
        return reference
    return replace(reference, boxes=read_bounding_boxes(request.bounding_boxes, reference.targets.keys()))


def _check_bounding_boxes(request: Request, edition: Edition) -> None:
    rules, given = edition.profile(request.task).rules, request.bounding_boxes is not None
    if not isinstance(rules, SegmentationRules):
        if given:
            raise HecktorError("--bounding-boxes", f"task {request.task.name} has no masks", "none")
    elif given and rules.bounding_box == "whole_image":
        raise HecktorError("--bounding-boxes", "found together with bounding_box=whole_image", "only one of them")
    elif not given and rules.bounding_box == "required":
        raise HecktorError(
            "--bounding-boxes",
            f"none, but {edition.name} scores inside a bounding box",
            "a CSV file of boxes or --option bounding_box=whole_image to score the whole image",
        )


def _submission(request: Request, scorer: Scorer, reference: Reference[Any]) -> Submission:
    cases, not_evaluated = reference.targets.keys(), reference.without_target
    if request.predictions is not None:
        return scorer.read_files(request.predictions, cases, not_evaluated)
    return read_submission(request.input_dir, request.task.output, cases, not_evaluated)


def _provenance(request: Request, edition: Edition, reference: Reference[Any], estimates: Estimates) -> dict[str, Any]:
    found = metrics_json.provenance(request.task, edition, reference)
    if request.bounding_boxes is not None:
        try:
            digest = hashlib.sha256(request.bounding_boxes.read_bytes()).hexdigest()
        except OSError:
            raise GroundTruthError(request.bounding_boxes.name, "cannot be read", "a CSV file") from None
        found["options"] = {**found["options"], "bounding_boxes_sha256": digest}
    return {
        **found,
        "seed": request.seed,
        "interval": request.interval,
        "bootstraps": request.bootstraps,
        "redraws": estimates.redraws,
        "redraws_of_extra_metrics": estimates.extra_redraws,
    }


def _estimates(
    metrics: Mapping[str, WeightedMetric], profile: TaskProfile, n_cases: int, request: Request
) -> Estimates:
    """The profile's metrics from common draws; then the others, each from its own, since these may be undefined."""
    ranked = {name: metrics[name] for name in profile.metrics if name in metrics}
    found = estimate(ranked, n_cases, request.bootstraps, np.random.default_rng(request.seed), request.interval)
    others = {name: metric for name, metric in metrics.items() if name not in ranked}
    absent = {name: Estimate(None, None, None) for name in profile.metrics if name not in ranked}
    extra = estimate_extras(others, n_cases, request.bootstraps, request.seed, request.interval)
    return Estimates({**found.by_metric, **absent, **extra.by_metric}, found.redraws, extra.redraws)


def _counted(rows: Sequence[Row], profile: TaskProfile) -> list[Row]:
    """The rows that enter the metrics, by the edition's rule for missing cases."""
    without = [row for row in rows if row.error is not None]
    if without and profile.rules.missing == "stop":
        raise PredictionError(
            f"{len(without)} cases without a usable prediction, {without[0].case}", f"{without[0].error}"
        )
    if profile.rules.missing != "skip":
        return list(rows)
    kept = [row for row in rows if row.error is None]
    if not kept:
        raise PredictionError(f"none of {len(rows)} cases has a usable prediction, expected at least one")
    return kept
