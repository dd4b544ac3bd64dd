"""The evaluation's `/input`: outputs under new names, and a shuffled `predictions.json`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.files import write_json
from contract.images.volumes import read_volume, write_volume
from contract.platform import INPUTS_JSON, PREDICTIONS_JSON
from contract.predictions import SUCCEEDED, job_entry, socket_entry
from rehearsal.jobs.cases import place
from rehearsal.jobs.execute import JobResult
from rehearsal.jobs.outputs import CheckedOutput

FAILED: Final = "Failed"


def stage_predictions(
    results: Sequence[JobResult], input_dir: Path, algorithm: str, generator: np.random.Generator
) -> None:
    """Fill `input_dir` as the evaluation's `/input`: `predictions.json`, `inputs.json`, `<job pk>/output/...`.

    A failed job is listed with the status `Failed` and no output. `algorithm` describes the algorithm's image;
    `generator` shuffles the jobs, since their order on the platform means nothing.
    """
    entries = [_job(result, input_dir, algorithm) for result in results]
    shuffled = [entries[index] for index in generator.permutation(len(entries))]
    write_json(input_dir / PREDICTIONS_JSON, shuffled)
    write_json(input_dir / INPUTS_JSON, [])


def copy_by_case(results: Sequence[JobResult], input_dir: Path, folder: Path) -> None:
    """Put each output of the staged predictions at its `path_by_case`."""
    for result in results:
        for output in result.outputs:
            socket = output.answer.socket
            staged = socket.path_under(input_dir / result.job.pk / "output")
            place(next(staged.iterdir()) if socket.is_image else staged, path_by_case(folder, result, output))


def path_by_case(folder: Path, result: JobResult, output: CheckedOutput) -> Path:
    """`<folder>/<case>.mha` or `.json`; with several answers `<folder>/<answer>/<case>.mha` or `.json`."""
    parent = folder / output.answer.name if len(result.outputs) > 1 else folder
    return parent / f"{result.job.case.case_id}{'.mha' if output.answer.socket.is_image else '.json'}"


def _job(result: JobResult, input_dir: Path, algorithm: str) -> dict[str, Any]:
    job_dir = input_dir / result.job.pk / "output"
    outputs = [_place_output(output, number, job_dir) for number, output in enumerate(result.outputs, start=1)]
    invoked = result.api_method == "invoke"
    return job_entry(
        result.job.pk,
        result.job.entries,
        outputs,
        algorithm_image=algorithm,
        exec_duration_s=None if invoked else result.outcome.seconds,
        invoke_duration_s=result.outcome.seconds if invoked else None,
        status=SUCCEEDED if outputs else FAILED,
    )


def _place_output(output: CheckedOutput, number: int, job_dir: Path) -> dict[str, Any]:
    """Copy an output, an image as `.mha` under a new image pk, and describe it."""
    socket = output.answer.socket
    target = socket.path_under(job_dir)
    if not socket.is_image:
        # The platform stores the parsed value, in which NaN has become null.
        write_json(target, output.value)
        return socket_entry(socket, number, value=output.value)
    image_pk = str(uuid.uuid4())
    target = target / f"{image_pk}.mha"
    if output.path.suffix.lower() == ".mha":
        place(output.path, target)
    else:
        write_volume(target, read_volume(output.path))
    return socket_entry(socket, number, image=(image_pk, output.path.name))
