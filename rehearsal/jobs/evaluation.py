"""The platform's steps after the jobs: stage the predictions, run the evaluation, and select its ranked values."""

from __future__ import annotations

import math
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError, OutputError
from contract.images.volumes import read_volume, write_volume
from contract.io.files import read_json, write_json
from contract.platform import INPUTS_JSON, METRICS_JSON, PREDICTIONS_JSON, TIFF_SUFFIXES
from contract.predictions import SUCCEEDED, make_job_entry, make_socket_entry
from rehearsal.jobs.cases import place_file
from rehearsal.jobs.execution import JobResult, invoke_once
from rehearsal.platform.runs import CheckedOutput, find_log_warnings, find_run_failure
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import GIB, Call, Limits, Runner
from rehearsal.runners.trees import MAX_BYTES, UntrustedFileError, copy_file

# A call of a server may take as long as the evaluation itself.
EVALUATION_LIMITS: Final = Limits(memory_bytes=8 * GIB, time_limit_s=3600.0, cpus=2, invoke_limit_s=3600.0)
FAILED: Final = "Failed"


@dataclass(frozen=True)
class EvaluationRun:
    """The result of an evaluation.

    Attributes:
        metrics: Content of `metrics.json`, None if there is no result.
        problem: Reason why there is no result.
        warnings: Warnings about the log.
        outcome: Time and memory, None if the evaluation did not run.
        api_method: How the evaluation was called.
    """

    metrics: Any = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    outcome: RunOutcome | None = None
    api_method: str = "exec"


def run_evaluation(
    evaluation: Runner, input_dir: Path, ground_truth_dir: Path, output_dir: Path, work_dir: Path
) -> EvaluationRun:
    """Run the evaluation on staged predictions and copy its `metrics.json` to `output_dir`.

    The image's label decides whether a new process (`exec`) or a server (`invoke`) evaluates. The logs are written to
    `logs/` in `output_dir`, and temporary folders are made in `work_dir`.
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
    if evaluation.api_method == "invoke":
        outcome, failure, server_warnings = invoke_once(evaluation, call)
    else:
        outcome = evaluation.run(call)
        failure = find_run_failure(outcome, call.limits, call.stderr)
        server_warnings = ()
    warnings = (*server_warnings, *find_log_warnings(call.stdout), *find_log_warnings(call.stderr))
    if failure is not None:
        return EvaluationRun(problem=f"evaluation: {failure}", warnings=warnings)
    metrics_file = work_dir / METRICS_JSON
    try:
        metrics = _read_metrics(call.output_dir, metrics_file)
    except HecktorError as error:
        reason = f"evaluation: {error.message}; the platform would fail the evaluation"
        return EvaluationRun(problem=reason, warnings=warnings)
    shutil.copyfile(metrics_file, output_dir / METRICS_JSON)
    return EvaluationRun(metrics, warnings=warnings, outcome=outcome, api_method=evaluation.api_method)


def _read_metrics(folder: Path, target: Path) -> Any:
    """Copy `metrics.json` out of the evaluation's folder to `target` and read it; raise `HecktorError` if unusable."""
    try:
        copy_file(folder, METRICS_JSON, target, MAX_BYTES)
    except UntrustedFileError as error:
        raise OutputError(METRICS_JSON, str(error)) from None
    return read_json(target, error=OutputError, accept_nan=True)


def find_value(metrics: Any, path: str) -> Any:
    """Find the value at a dotted path of keys; None if it is absent. Indices of lists are not keys."""
    for key in path.split("."):
        if not isinstance(metrics, Mapping) or key not in metrics:
            return None
        metrics = metrics[key]
    return metrics


def select_ranked_values(metrics: Any) -> tuple[dict[str, float], list[str]]:
    """Select the ranked metrics of a result.

    The evaluation names the metrics in `provenance.ranked_metrics`. Without that list all aggregates that are numbers
    count; aggregates that are not ranked may be undefined. `metrics` is the content of `metrics.json`.

    Returns:
        The values by path, and the reasons why the platform would leave the result unranked.
    """
    names = find_value(metrics, "provenance.ranked_metrics")
    paths = _make_metric_paths(names) if isinstance(names, list) else _find_numeric_aggregates(metrics)
    values: dict[str, float] = {}
    problems: list[str] = []
    for path in paths or ("aggregates",):
        value = find_value(metrics, path)
        if _is_number(value):
            values[path] = float(value)
        else:
            actual = "nothing" if value is None else f"a {type(value).__name__}"
            problems.append(
                f"metrics.json: found {actual} at {path}, expected a number; "
                "the platform would leave the whole result unranked"
            )
    return values, problems


def _find_numeric_aggregates(metrics: Any) -> tuple[str, ...]:
    aggregates = find_value(metrics, "aggregates")
    paths = _make_metric_paths(aggregates) if isinstance(aggregates, Mapping) else ()
    return tuple(path for path in paths if _is_number(find_value(metrics, path)))


def _make_metric_paths(names: Iterable[object]) -> tuple[str, ...]:
    return tuple(make_metric_path(str(name)) for name in names)


def make_metric_path(name: str, figure: str = "value") -> str:
    """Make the leaderboard's path of a metric's figure in metrics.json."""
    return f"aggregates.{name}.{figure}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def stage_predictions(
    results: Sequence[JobResult], input_dir: Path, algorithm: str, generator: np.random.Generator
) -> None:
    """Write the evaluation's `/input` into `input_dir`: `predictions.json`, `inputs.json`, `<job pk>/output/...`.

    A failed job is listed with the status `Failed` and no output. `algorithm` describes the algorithm's image;
    `generator` shuffles the jobs, since their order on the platform is arbitrary.
    """
    write_jobs([_write_job(result, input_dir, algorithm) for result in results], input_dir, generator)


def write_jobs(entries: Sequence[Mapping[str, Any]], input_dir: Path, generator: np.random.Generator) -> None:
    """Write `predictions.json` with the jobs in a random order, and `inputs.json`, into the evaluation's `/input`."""
    shuffled = [entries[index] for index in generator.permutation(len(entries))]
    write_json(input_dir / PREDICTIONS_JSON, shuffled)
    write_json(input_dir / INPUTS_JSON, [])


def copy_outputs_by_case(results: Sequence[JobResult], input_dir: Path, folder: Path) -> None:
    """Copy each output of the staged predictions to `<folder>/<case>.mha` or `.json`.

    If there are several answers, the copies are `<folder>/<answer>/<case>.mha` or `.json`.
    """
    for result in results:
        for output in result.outputs:
            socket = output.answer.socket
            staged = socket.path_under(input_dir / result.job.pk / "output")
            parent = folder / output.answer.name if len(result.outputs) > 1 else folder
            name = f"{result.job.case.case_id}{_choose_suffix(output)}"
            place_file(next(staged.iterdir()) if socket.is_image else staged, parent / name)


def _choose_suffix(output: CheckedOutput) -> str:
    """Choose the suffix of a stored output: `.json`, `.mha`, or the suffix of a TIFF, which is not converted."""
    if not output.answer.socket.is_image:
        return ".json"
    return output.path.suffix.lower() if output.path.name.lower().endswith(TIFF_SUFFIXES) else ".mha"


def _write_job(result: JobResult, input_dir: Path, algorithm: str) -> dict[str, Any]:
    job_dir = input_dir / result.job.pk / "output"
    outputs = [write_output(output, number, job_dir) for number, output in enumerate(result.outputs, start=1)]
    is_invoked = result.api_method == "invoke"
    return make_job_entry(
        result.job.pk,
        result.job.entries,
        outputs,
        algorithm_image=algorithm,
        exec_duration_s=None if is_invoked else result.outcome.seconds,
        invoke_duration_s=result.outcome.seconds if is_invoked else None,
        status=SUCCEEDED if outputs else FAILED,
    )


def write_output(output: CheckedOutput, number: int, job_dir: Path) -> dict[str, Any]:
    """Write an output into the job's folder, an image as `.mha` with a new primary key; return its entry of the job."""
    socket = output.answer.socket
    target = socket.path_under(job_dir)
    if not socket.is_image:
        # The platform stores the parsed value, and NaN has become null.
        write_json(target, output.value)
        return make_socket_entry(socket, number, value=output.value)
    image_pk = str(uuid.uuid4())
    target = target / f"{image_pk}{_choose_suffix(output)}"
    if output.path.suffix.lower() == target.suffix:
        place_file(output.path, target)
    else:
        write_volume(target, read_volume(output.path))
    return make_socket_entry(socket, number, image=(image_pk, output.path.name))
