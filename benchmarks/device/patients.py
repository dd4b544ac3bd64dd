"""Run `predict` and an image on phantoms: with networks of full size, on card and CPU, and on a card that is full."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.device.job import CARD_GIB, CheckJob, Limit
from contract import labels
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.volumes import read_volume
from contract.io.files import read_json
from rehearsal.runners.containers import ContainerRunner, find_engine
from rehearsal.runners.runner import GIB, Call, Limits

TASK: Final = load_edition().find_algorithm("segmentation")
PASSES: Final = "passes"
MARGIN_S: Final = "margin (s)"
RUN_LIMITS: Final = (Limit(PASSES, minimum=1), Limit(MARGIN_S, minimum=0))
# A T4 has 16 GiB, of which a process should use at most 14.
CARD_LIMIT: Final = Limit(CARD_GIB, maximum=14.0)
# Rounding to float16 or bfloat16 moves single voxels at the border of a lesion.
MIN_DICE: Final = 0.95
# GB that another program leaves free. The CUDA context of `predict` takes a part of this memory, or does not fit.
FREE_GB: Final = (1.0, 0.5, 0.2)
_MEMORY_BYTES: Final = 16 * GIB
# `predict` needs some seconds before its first pass.
_MIN_TIME_LIMIT_S: Final = 20.0


@dataclass(frozen=True)
class PredictRun:
    """One call of `predict`.

    Attributes:
        status: Exit status.
        seconds: Seconds of the process.
        record: Run record; empty if there is no record.
        mask: File of the mask.
        last_line: Last line of the output.
    """

    status: int
    seconds: float
    record: Mapping[str, Any]
    mask: Path
    last_line: str

    @property
    def answered_by(self) -> str:
        """Return the device of the network, or the source of the mask that replaced the network's mask."""
        return str(self.record.get("device") or self.record.get("segmented_by"))

    def find_failures(self, device: str) -> list[str]:
        """Find the failures of a run on `device`."""
        if self.status or not self.record:
            return [f"predict: exit status {self.status}, expected 0 and a run record: {self.last_line}"]
        if not self.mask.is_file():
            return ["predict: no mask"]
        return [] if self._is_by(device) else [f"answered by {self.answered_by}, expected the network on {device}"]

    def figures(self) -> dict[str, Any]:
        """Return the seconds of each stage, passes, memory, and the device that answered."""
        record = self.record
        figures: dict[str, Any] = {"process (s)": self.seconds, "answered by": self.answered_by}
        if not record:
            return figures
        figures |= {f"{name} (s)": seconds for name, seconds in record["seconds"].items()}
        figures |= {PASSES: record["passes_done"], "planned passes": record["passes_planned"]}
        figures |= {MARGIN_S: record["left_s"], "peak memory (MiB)": record["peak_memory_mib"]}
        reserved_mib = record["gpu_peak_memory_mib"]
        return figures | ({} if reserved_mib is None else {CARD_GIB: reserved_mib / 1024})

    def _is_by(self, device: str) -> bool:
        # `Backend` names the CPU `cpu (...)` and a card by its name.
        is_cpu = self.answered_by.startswith("cpu (")
        return self.record["segmented_by"] == "network" and is_cpu == (device == "cpu")


@dataclass(frozen=True)
class RunInputs:
    """A model package and the input of a phantom."""

    model: Path
    input_dir: Path


def predict(job: CheckJob, name: str, inputs: RunInputs, device: str, limit_s: float, *options: str) -> PredictRun:
    """Run `predict` for the segmentation task in its own process."""
    folder = job.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "record.json"
    command = [sys.executable, "-m", "algorithm", "--task", TASK.name, "--model", str(inputs.model)]
    command += ["--input", str(inputs.input_dir), "--output", str(folder / "output"), "--device", device]
    command += ["--record", str(record), "--time-limit", f"{limit_s:.1f}", *options]
    start_s = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seconds = time.perf_counter() - start_s
    sys.stdout.write(done.stdout)
    last_line = (done.stdout.splitlines() or ["no output"])[-1]
    return PredictRun(
        status=done.returncode,
        seconds=seconds,
        record=read_json(record) if record.is_file() else {},
        mask=next(folder.rglob("*.mha"), folder / "none"),
        last_line=last_line,
    )


def run_patients(job: CheckJob) -> None:
    """Run `predict` on phantoms, each with a share of the part's time, but at most the time limit of the task."""
    cases = [("default", "head_and_neck"), ("default", "whole_body"), ("resenc-m", "head_and_neck")]
    for number, (plan, size) in enumerate(cases):
        inputs = RunInputs(job.package(plan), job.input_dir(size))
        limit_s = min(TASK.time_limit_s, max(_MIN_TIME_LIMIT_S, 0.95 * job.remaining_s() / (len(cases) - number)))
        run = predict(job, f"{plan}-{size}", inputs, job.device, limit_s)
        limits = (*RUN_LIMITS, *((CARD_LIMIT,) if job.on_card else ())) if run.record else ()
        figures = {"time limit (s)": limit_s, **run.figures()}
        job.report(f"{plan}, {size.replace('_', ' ')}", figures, limits, run.find_failures(job.device))


def compare_devices(job: CheckJob) -> None:
    """Compute the Dice of the masks of one pass of the default network on the device and on the CPU."""
    inputs = RunInputs(job.package("default"), job.input_dir("head_and_neck"))
    runs: list[PredictRun] = []
    for number, device in enumerate((job.device, "cpu")):
        limit_s = max(_MIN_TIME_LIMIT_S, 0.9 * job.remaining_s() / (2 - number))
        run = predict(job, f"agreement-{number}-{device}", inputs, device, limit_s, "--passes", "1")
        failures = run.find_failures(device)
        if failures:
            job.report(f"one pass on {device}", run.figures(), failures=failures)
            return
        runs.append(run)
    figures: dict[str, Any] = {f"first, {job.device} (s)": runs[0].seconds, "then, cpu (s)": runs[1].seconds}
    masks = [read_volume(run.mask).array for run in runs]
    dices: dict[str, float] = {}
    for label in labels.FOREGROUND:
        value = dice(masks[0] == label, masks[1] == label)
        if value is not None:
            dices[f"Dice {labels.NAMES[label]}"] = value
    differing = int((masks[0] != masks[1]).sum())
    failures = [] if dices else ["both masks are empty"]
    limits = [Limit(name, minimum=MIN_DICE) for name in dices]
    job.report("masks", {**figures, **dices, "differing voxels": differing}, limits, failures)


def dice(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float | None:
    """Compute the Dice coefficient of two boolean arrays; None if both are empty."""
    total = int(first.sum()) + int(second.sum())
    return 2 * int((first & second).sum()) / total if total else None


def run_fallbacks(job: CheckJob) -> None:
    """Run one pass of the default network at each level of free memory; the CPU may answer instead of the card."""
    inputs = RunInputs(job.package("default"), job.input_dir("head_and_neck"))
    levels = FREE_GB if job.on_card else (None,)
    for number, free_gb in enumerate(levels):
        limit_s = max(_MIN_TIME_LIMIT_S, 0.9 * job.remaining_s() / (len(levels) - number))
        name = "no card to fill" if free_gb is None else f"{free_gb:g} GB left"
        with fill_card(free_gb):
            run = predict(job, f"fallback-{number}", inputs, job.device, limit_s, "--passes", "1")
        failures = [text for text in run.find_failures(job.device) if not text.startswith("answered by")]
        notices = [str(notice["found"]) for notice in run.record.get("notices", ())]
        figures = run.figures() | {
            "time limit (s)": limit_s,
            "last line": run.last_line,
            "notices": "; ".join(notices),
        }
        job.report(name, figures, failures=failures)


@contextmanager
def fill_card(free_gb: float | None) -> Iterator[None]:
    """Fill the card's memory except `free_gb`; None fills nothing."""
    if free_gb is None:
        yield
        return
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0]
    balloon = torch.empty(max(0, free - int(free_gb * 1e9)), dtype=torch.uint8, device="cuda")
    sys.stdout.write(f"balloon: {balloon.numel() / 1e9:.2f} GB, left: {torch.cuda.mem_get_info()[0] / 1e9:.2f} GB\n")
    try:
        yield
    finally:
        del balloon
        torch.cuda.empty_cache()


def run_image(job: CheckJob) -> None:
    """Run one case in an image with 16 GiB of memory, without network, and with all cards if there is a card.

    Raises:
        HecktorError: No image was named, or no container engine responds.
    """
    if job.image is None:
        raise HecktorError("--only image", "found no --image", "the image to run")
    limits = Limits(_MEMORY_BYTES, min(TASK.time_limit_s, 0.9 * job.remaining_s()))
    folder = job.folder / "image"
    call = Call.create(f"hecktor-device-check-{job.folder.name.strip('.')}", folder, folder / "log", limits, None)
    shutil.copytree(job.input_dir("head_and_neck"), call.input_dir, dirs_exist_ok=True)
    outcome = ContainerRunner(find_engine(), job.image, with_gpus=job.on_card).run(call)
    record = read_json(call.record_path) if call.record_path.is_file() else {}
    lines = call.stderr.read_text(errors="replace").splitlines() or ["no output"]
    mask = next(call.output_dir.rglob("*.mha"), call.output_dir / "none")
    run = PredictRun(outcome.exit_code or 0, outcome.seconds, record, mask, lines[-1])
    checked = (*RUN_LIMITS, *((CARD_LIMIT,) if job.on_card else ())) if record else ()
    job.report(job.image, run.figures(), checked, run.find_failures(job.device))
