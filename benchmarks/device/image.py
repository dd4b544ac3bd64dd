"""The image that is uploaded, run as the platform runs it on a phantom."""

from __future__ import annotations

import shutil
from typing import Final

from benchmarks.device.job import CheckJob
from benchmarks.device.patients import CARD_LIMIT, RUN_LIMITS, TASK, Run
from contract.errors import HecktorError
from contract.files import read_json
from rehearsal.runners.containers import ContainerRunner, find_engine
from rehearsal.runners.runner import GIB, Call, Limits

_MEMORY_BYTES: Final = 16 * GIB


def image(job: CheckJob) -> None:
    """One case with 16 GiB of memory, no network and, on a card, all cards; the run record says what answered.

    Raises:
        HecktorError: no image was named; EngineError if no container engine answers.
    """
    if job.image is None:
        raise HecktorError("--only image", "found no --image", "the image to run")
    limits = Limits(_MEMORY_BYTES, min(TASK.time_limit_s, 0.9 * job.left_s()))
    folder = job.folder / "image"
    call = Call.below(f"hecktor-device-check-{job.folder.name.strip('.')}", folder, folder / "log", limits, None)
    shutil.copytree(job.input_dir("head_and_neck"), call.input_dir, dirs_exist_ok=True)
    outcome = ContainerRunner(find_engine(), job.image, with_gpus=job.on_card).run(call)
    record = read_json(call.record_path) if call.record_path.is_file() else {}
    lines = call.stderr.read_text(errors="replace").splitlines() or ["no output"]
    mask = next(call.output_dir.rglob("*.mha"), call.output_dir / "none")
    run = Run(outcome.exit_code or 0, outcome.seconds, record, mask, lines[-1])
    checked = (*RUN_LIMITS, *((CARD_LIMIT,) if job.on_card else ())) if record else ()
    job.row(job.image, run.figures(), checked, run.failures(job.device))
