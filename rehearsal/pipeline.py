"""A rehearsal from images and cases to a ranked result, in the platform's order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import EngineError, GroundTruthError
from contract.files import write_json
from contract.platform import METRICS_JSON
from rehearsal.jobs.cases import find_cases
from rehearsal.jobs.execute import JobResult, Jobs, Rehearsal, run_jobs
from rehearsal.jobs.invoke import invoke_jobs
from rehearsal.platform import EvaluationRun, choose_api_method, ranked_values, refusals, run_evaluation
from rehearsal.predictions import copy_by_case, stage_predictions
from rehearsal.record import REHEARSAL_JSON, RehearsalResult, rehearsal_json

_OWN_NAMES: Final = ("predictions", "evaluation", "logs", METRICS_JSON, REHEARSAL_JSON)


def _ignore(_: object) -> None:
    """Progress callback that does nothing."""


def rehearse(
    rehearsal: Rehearsal, *, on_start: Callable[[int], None] = _ignore, on_job: Callable[[JobResult], None] = _ignore
) -> RehearsalResult:
    """Run a submission as the platform does, and write the results below `output_dir`.

    Written: `predictions/`, `evaluation/input/` as the evaluation sees it, `metrics.json`, `logs/`, `rehearsal.json`.
    Results of an earlier rehearsal are removed first.

    Args:
        rehearsal: programs, cases and limits.
        on_start: called with the number of cases.
        on_job: called with the result of each job as it ends.

    Raises:
        HecktorError: nothing can be run: no cases, no ground truth, no image, an evaluation not labelled `exec`.
    """
    output_dir, algorithm, evaluation = rehearsal.output_dir, rehearsal.algorithm, rehearsal.evaluation
    cases = find_cases(rehearsal.cohort, rehearsal.task, rehearsal.only)
    if rehearsal.ground_truth_dir is not None and not rehearsal.ground_truth_dir.is_dir():
        raise GroundTruthError(rehearsal.ground_truth_dir.name, "no such folder", "the ground truth")
    refused = refusals(algorithm, evaluation)
    api_method, warnings = choose_api_method(algorithm, rehearsal.api_method, rehearsal.parallel)
    if evaluation is not None and evaluation.api_method != "exec":
        raise EngineError(evaluation.description, "an evaluation is called by exec", "that label")
    _clear(output_dir)
    on_start(len(cases))
    with tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=output_dir) as temporary:
        work_dir, input_dir = Path(temporary), output_dir / "evaluation" / "input"
        work_dir.chmod(0o755)  # an image's user enters it
        jobs = (invoke_jobs if api_method == "invoke" else run_jobs)(cases, rehearsal, work_dir, on_job)
        stage_predictions(jobs.results, input_dir, algorithm.description, np.random.default_rng(rehearsal.seed))
        copy_by_case(jobs.results, input_dir, output_dir / "predictions")
        evaluated = _evaluate(rehearsal, jobs, input_dir, work_dir)
    metrics, unranked = ({}, []) if evaluated.metrics is None else ranked_values(evaluated.metrics)
    problems = unranked if evaluated.problem is None else [evaluated.problem]
    of_cases = (f"{job.job.case.case_id}: {warning}" for job in jobs.results for warning in job.warnings)
    warnings += (*jobs.warnings, *of_cases, *evaluated.warnings)
    result = RehearsalResult(jobs.results, refused, tuple(problems), warnings, metrics, api_method, jobs.startup_s)
    write_json(output_dir / REHEARSAL_JSON, rehearsal_json(rehearsal, result))
    return result


def _evaluate(rehearsal: Rehearsal, jobs: Jobs, input_dir: Path, work_dir: Path) -> EvaluationRun:
    """The evaluation of all jobs; an empty one if none is wanted or possible."""
    if rehearsal.evaluation is None or rehearsal.ground_truth_dir is None:
        return EvaluationRun()
    if rehearsal.on_failure == "abort" and any(job.failure is not None for job in jobs.results):
        return EvaluationRun(problem="a job failed, so the platform would not start the evaluation")
    return run_evaluation(rehearsal.evaluation, input_dir, rehearsal.ground_truth_dir, rehearsal.output_dir, work_dir)


def _clear(output_dir: Path) -> None:
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in _OWN_NAMES:
        path = output_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
