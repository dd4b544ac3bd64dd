"""The platform's steps after the jobs: staged predictions, the run of the evaluation, and its ranked values."""

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
from rehearsal.jobs.cases import place
from rehearsal.jobs.execute import JobResult
from rehearsal.jobs.invoke import invoke_once
from rehearsal.platform.outputs import CheckedOutput
from rehearsal.platform.runs import log_warnings, run_failure
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import GIB, Call, Limits, Runner
from rehearsal.runners.trees import MAX_BYTES, copy_file_out

# A call of a server may take as long as the evaluation itself.
EVALUATION_LIMITS: Final = Limits(memory_bytes=8 * GIB, time_limit_s=3600.0, cpus=2, invoke_limit_s=3600.0)
FAILED: Final = "Failed"


@dataclass(frozen=True)
class EvaluationRun:
    """An evaluation: the content of `metrics.json`, or None and the reason, and warnings about the log.

    `outcome` holds its time and memory, None if it did not run; `api_method` is how it was called.
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

    The image's label decides whether a fresh process evaluates (`exec`) or a server (`invoke`). The logs go to `logs/`
    in `output_dir`, temporary folders to `work_dir`.
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
        failure = run_failure(outcome, call.limits, call.stderr)
        server_warnings = ()
    warnings = (*server_warnings, *log_warnings(call.stdout), *log_warnings(call.stderr))
    if failure is not None:
        return EvaluationRun(problem=f"evaluation: {failure}", warnings=warnings)
    written = work_dir / METRICS_JSON
    try:
        if fault := copy_file_out(call.output_dir, METRICS_JSON, written, MAX_BYTES):
            raise OutputError(METRICS_JSON, fault)
        metrics = read_json(written, error=OutputError, accept_nan=True)
    except HecktorError as problem:
        reason = f"evaluation: {problem.message}; the platform would fail the evaluation"
        return EvaluationRun(problem=reason, warnings=warnings)
    shutil.copyfile(written, output_dir / METRICS_JSON)
    return EvaluationRun(metrics, warnings=warnings, outcome=outcome, api_method=evaluation.api_method)


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
    count, since an aggregate that nobody ranks may be undefined. `metrics` is the content of `metrics.json`.
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
    return tuple(metric_path(str(name)) for name in names)


def metric_path(name: str, figure: str = "value") -> str:
    """The leaderboard's path of a metric's figure in metrics.json."""
    return f"aggregates.{name}.{figure}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def stage_predictions(
    results: Sequence[JobResult], input_dir: Path, algorithm: str, generator: np.random.Generator
) -> None:
    """Fill `input_dir` as the evaluation's `/input`: `predictions.json`, `inputs.json`, `<job pk>/output/...`.

    A failed job is listed with the status `Failed` and no output. `algorithm` describes the algorithm's image;
    `generator` shuffles the jobs, since their order on the platform means nothing.
    """
    write_jobs([_job(result, input_dir, algorithm) for result in results], input_dir, generator)


def write_jobs(entries: Sequence[Mapping[str, Any]], input_dir: Path, generator: np.random.Generator) -> None:
    """Write `predictions.json` with the jobs in a random order, and `inputs.json`, into the evaluation's `/input`."""
    shuffled = [entries[index] for index in generator.permutation(len(entries))]
    write_json(input_dir / PREDICTIONS_JSON, shuffled)
    write_json(input_dir / INPUTS_JSON, [])


def copy_by_case(results: Sequence[JobResult], input_dir: Path, folder: Path) -> None:
    """Put each output of the staged predictions at `<folder>/<case>.mha` or `.json`.

    With several answers it is `<folder>/<answer>/<case>.mha` or `.json`.
    """
    for result in results:
        for output in result.outputs:
            socket = output.answer.socket
            staged = socket.path_under(input_dir / result.job.pk / "output")
            parent = folder / output.answer.name if len(result.outputs) > 1 else folder
            name = f"{result.job.case.case_id}{_stored_suffix(output)}"
            place(next(staged.iterdir()) if socket.is_image else staged, parent / name)


def _stored_suffix(output: CheckedOutput) -> str:
    """`.json`, `.mha`, or that of a TIFF, which is not converted."""
    if not output.answer.socket.is_image:
        return ".json"
    return output.path.suffix.lower() if output.path.name.lower().endswith(TIFF_SUFFIXES) else ".mha"


def _job(result: JobResult, input_dir: Path, algorithm: str) -> dict[str, Any]:
    job_dir = input_dir / result.job.pk / "output"
    outputs = [place_output(output, number, job_dir) for number, output in enumerate(result.outputs, start=1)]
    invoked = result.api_method == "invoke"
    return make_job_entry(
        result.job.pk,
        result.job.entries,
        outputs,
        algorithm_image=algorithm,
        exec_duration_s=None if invoked else result.outcome.seconds,
        invoke_duration_s=result.outcome.seconds if invoked else None,
        status=SUCCEEDED if outputs else FAILED,
    )


def place_output(output: CheckedOutput, number: int, job_dir: Path) -> dict[str, Any]:
    """Put an output in the job's folder, an image as `.mha` under a new image pk; returns its entry of the job."""
    socket = output.answer.socket
    target = socket.path_under(job_dir)
    if not socket.is_image:
        # The platform stores the parsed value, in which NaN has become null.
        write_json(target, output.value)
        return make_socket_entry(socket, number, value=output.value)
    image_pk = str(uuid.uuid4())
    target = target / f"{image_pk}{_stored_suffix(output)}"
    if output.path.suffix.lower() == target.suffix:
        place(output.path, target)
    else:
        write_volume(target, read_volume(output.path))
    return make_socket_entry(socket, number, image=(image_pk, output.path.name))
