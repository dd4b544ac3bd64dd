"""The platform's own steps: image checks at upload, the choice of the API method, and the evaluation."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.errors import EngineError, HecktorError, OutputError
from contract.files import read_json
from contract.platform import METRICS_JSON
from rehearsal.images.checks import API_METHODS, upload_problems
from rehearsal.runners.containers import ContainerRunner
from rehearsal.runners.failures import log_warnings, run_failure
from rehearsal.runners.runner import GIB, Call, Limits, Runner

EVALUATION_LIMITS: Final = Limits(memory_bytes=8 * GIB, time_limit_s=3600.0, cpus=2)


@dataclass(frozen=True)
class EvaluationRun:
    """An evaluation: content of `metrics.json` (None where there is none), the reason for that, and log warnings."""

    metrics: Any = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()


def refusals(*runners: Runner | None) -> tuple[str, ...]:
    """Reasons why the platform would not accept the runners' images."""
    images = [runner for runner in runners if isinstance(runner, ContainerRunner)]
    return tuple(problem for one in images for problem in upload_problems(one.engine.image_facts(one.image)))


def choose_api_method(algorithm: Runner, chosen: str, parallel: int) -> tuple[str, tuple[str, ...]]:
    """How the algorithm is called, and a warning if the platform would call it differently.

    Args:
        algorithm: its image's label decides for `auto`.
        chosen: `auto`, `exec` or `invoke`.
        parallel: cases at a time.

    Raises:
        EngineError: several cases at a time for one server.
    """
    labelled = algorithm.api_method if algorithm.api_method in API_METHODS else "exec"  # other labels are refused
    method = labelled if chosen == "auto" else chosen
    if method == "invoke" and parallel > 1:
        raise EngineError(f"{parallel} cases at a time, expected 1", "a server answers one after the other")
    if method == labelled or not algorithm.is_isolated:
        return method, ()
    return method, (f"the image's label says {labelled}; the platform would call it so, and not by {method}",)


def require_exec(evaluation: Runner) -> None:
    """Raise EngineError for an evaluation image that is not labelled `exec`."""
    if evaluation.api_method != "exec":
        raise EngineError(evaluation.description, "an evaluation is called by exec", "that label")


def run_evaluation(
    evaluation: Runner, input_dir: Path, ground_truth_dir: Path, output_dir: Path, work_dir: Path
) -> EvaluationRun:
    """Run the evaluation and copy its `metrics.json` to `output_dir`.

    Args:
        evaluation: the program.
        input_dir: the staged predictions.
        ground_truth_dir: the reference data.
        output_dir: for `metrics.json` and `logs/`.
        work_dir: for its temporary folders.
    """
    call = Call(
        name=f"hecktor-rehearsal-{uuid.uuid4()}",
        input_dir=input_dir,
        output_dir=work_dir / "evaluation-output",
        tmp_dir=work_dir / "evaluation-tmp",
        stdout=output_dir / "logs" / "evaluation.stdout",
        stderr=output_dir / "logs" / "evaluation.stderr",
        limits=EVALUATION_LIMITS,
        ground_truth_dir=ground_truth_dir,
    )
    call.output_dir.mkdir()
    call.tmp_dir.mkdir()
    outcome = evaluation.run(call)
    warnings = (*log_warnings(call.stdout), *log_warnings(call.stderr))
    failure = run_failure(outcome, call.limits, call.stderr)
    if failure is not None:
        return EvaluationRun(problem=f"evaluation: {failure}", warnings=warnings)
    try:
        metrics = read_json(call.output_dir / METRICS_JSON, error=OutputError, accept_nan=True)
    except HecktorError as problem:
        reason = f"evaluation: {problem.message}; the platform would fail the evaluation"
        return EvaluationRun(problem=reason, warnings=warnings)
    shutil.copyfile(call.output_dir / METRICS_JSON, output_dir / METRICS_JSON)
    return EvaluationRun(metrics, warnings=warnings)
