"""What the platform hands to the evaluation: outputs under new names, and a shuffled `predictions.json`."""

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
from rehearsal.cases import place
from rehearsal.outputs import CheckedOutput
from rehearsal.runners.jobs import JobResult

FAILED: Final = "Failed"


def stage_predictions(
    results: Sequence[JobResult], input_dir: Path, algorithm: str, generator: np.random.Generator
) -> None:
    """Lay out the evaluation's `/input`.

    Args:
        results: every job; one that failed is listed with the status `Failed` and no output.
        input_dir: the folder to fill: `predictions.json`, `inputs.json`, `<job pk>/output/...`.
        algorithm: what `predictions.json` says of the algorithm's image.
        generator: shuffles the jobs, since their order on the platform means nothing.
    """
    entries = [_job(result, input_dir, algorithm) for result in results]
    shuffled = [entries[index] for index in generator.permutation(len(entries))]
    write_json(input_dir / PREDICTIONS_JSON, shuffled)
    write_json(input_dir / INPUTS_JSON, [])


def keep_by_case(results: Sequence[JobResult], input_dir: Path, folder: Path) -> None:
    """Put each output at `<folder>/<case>.mha` or `.json`, for people and reports."""
    for result in results:
        if result.output is None:
            continue
        socket = result.output.socket
        staged = socket.path_under(input_dir / result.job.pk / "output")
        source = next(staged.iterdir()) if socket.is_image else staged
        place(source, folder / f"{result.job.case.case_id}{source.suffix}")


def _job(result: JobResult, input_dir: Path, algorithm: str) -> dict[str, Any]:
    outputs = [] if result.output is None else [_place_output(result.output, input_dir / result.job.pk / "output")]
    invoked = result.api_method == "invoke"
    return job_entry(
        result.job.pk,
        result.job.entries,
        outputs,
        algorithm_image=algorithm,
        exec_duration_s=None if invoked else result.outcome.seconds,
        invoke_duration_s=result.outcome.seconds if invoked else None,
        status=FAILED if result.output is None else SUCCEEDED,
    )


def _place_output(output: CheckedOutput, job_dir: Path) -> dict[str, Any]:
    """Copy an output under a new image pk, as `.mha` whatever it was, and describe it."""
    target = output.socket.path_under(job_dir)
    if not output.socket.is_image:
        # The platform stores the parsed value, in which NaN has become null.
        write_json(target, output.value)
        return socket_entry(output.socket, 1, value=output.value)
    image_pk = str(uuid.uuid4())
    target = target / f"{image_pk}.mha"
    if output.path.suffix.lower() == ".mha":
        place(output.path, target)
    else:
        write_volume(target, read_volume(output.path))
    return socket_entry(output.socket, 1, image=(image_pk, output.path.name))
