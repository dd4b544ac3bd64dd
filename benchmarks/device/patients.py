"""Phantoms through `predict` and an image: networks of full size, card against CPU, and a card that others fill."""

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
from rehearsal.runners.containers import ContainerRunner
from rehearsal.runners.engines import find_engine
from rehearsal.runners.runner import GIB, Call, Limits

TASK: Final = load_edition().find_algorithm("segmentation")
PASSES: Final = "passes"
MARGIN_S: Final = "margin (s)"
RUN_LIMITS: Final = (Limit(PASSES, least=1), Limit(MARGIN_S, least=0))
# A T4 has 16 GiB; the process limits itself to 14.
CARD_LIMIT: Final = Limit(CARD_GIB, most=14.0)
# Rounding to float16 or bfloat16 moves single voxels at the border of a lesion.
LEAST_DICE: Final = 0.95
# GB that the other program leaves free; the context of `predict` takes a part of it, or does not fit.
FREE_GB: Final = (1.0, 0.5, 0.2)
_MEMORY_BYTES: Final = 16 * GIB
# `predict` needs some seconds before its first pass.
_LEAST_S: Final = 20.0


@dataclass(frozen=True)
class Run:
    """One call of `predict`: its exit status, its seconds, its run record (empty if it wrote none), and its mask."""

    status: int
    seconds: float
    record: Mapping[str, Any]
    mask: Path
    read_last_line: str

    @property
    def answered_by(self) -> str:
        """The device of the network, or what answered in its place."""
        return str(self.record.get("device") or self.record.get("segmented_by"))

    def failures(self, device: str) -> list[str]:
        """The faults of it, where `device` should have computed."""
        if self.status or not self.record:
            return [f"predict: exit status {self.status}, expected 0 and a run record: {self.read_last_line}"]
        if not self.mask.is_file():
            return ["predict: no mask"]
        return [] if self._is_by(device) else [f"answered by {self.answered_by}, expected the network on {device}"]

    def figures(self) -> dict[str, Any]:
        """Seconds of each stage, passes, memory, and who answered."""
        record, figures = self.record, {"process (s)": self.seconds, "answered by": self.answered_by}
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


def predict(job: CheckJob, name: str, model: Path, input_dir: Path, device: str, limit_s: float, *options: str) -> Run:
    """Run the task of the segmentation in a process of its own."""
    folder = job.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "record.json"
    command = [sys.executable, "-m", "algorithm", "--task", TASK.name, "--model", str(model), "--input", str(input_dir)]
    command += ["--output", str(folder / "output"), "--device", device, "--record", str(record)]
    command += ["--time-limit", f"{limit_s:.1f}", *options]
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seconds = time.perf_counter() - begun
    sys.stdout.write(done.stdout)
    found = read_json(record) if record.is_file() else {}
    read_last_line = (done.stdout.splitlines() or ["no output"])[-1]
    return Run(done.returncode, seconds, found, next(folder.rglob("*.mha"), folder / "none"), read_last_line)


def patients(job: CheckJob) -> None:
    """All folds and mirrors that fit a share of the part's time, at most the task's own limit."""
    cases = [("default", "head_and_neck"), ("default", "whole_body"), ("resenc-m", "head_and_neck")]
    for number, (plan, size) in enumerate(cases):
        model, input_dir = job.package(plan), job.input_dir(size)
        limit_s = min(TASK.time_limit_s, max(_LEAST_S, 0.95 * job.left_s() / (len(cases) - number)))
        run = predict(job, f"{plan}-{size}", model, input_dir, job.device, limit_s)
        limits = (*RUN_LIMITS, *((CARD_LIMIT,) if job.on_card else ())) if run.record else ()
        figures = {"time limit (s)": limit_s, **run.figures()}
        job.row(f"{plan}, {size.replace('_', ' ')}", figures, limits, run.failures(job.device))


def agreement(job: CheckJob) -> None:
    """One pass of the default network on the CPU and on the device: Dice of their masks by label."""
    model, input_dir, runs = job.package("default"), job.input_dir("head_and_neck"), {}
    for number, device in enumerate((job.device, "cpu")):
        limit_s = max(_LEAST_S, 0.9 * job.left_s() / (2 - number))
        runs[number] = predict(job, f"agreement-{number}-{device}", model, input_dir, device, limit_s, "--passes", "1")
        if failures := runs[number].failures(device):
            job.row(f"one pass on {device}", runs[number].figures(), failures=failures)
            return
    figures: dict[str, Any] = {
        f"{device} (s)": runs[n].seconds for n, device in enumerate((f"first, {job.device}", "then, cpu"))
    }
    masks = [read_volume(runs[number].mask).array for number in runs]
    found = {
        f"Dice {labels.NAMES[label]}": dice(masks[0] == label, masks[1] == label) for label in labels.NAMES if label
    }
    dices = {name: value for name, value in found.items() if value is not None}
    differing = int((masks[0] != masks[1]).sum())
    failures = [] if dices else ["both masks are empty"]
    limits = [Limit(name, least=LEAST_DICE) for name in dices]
    job.row("masks", {**figures, **dices, "differing voxels": differing}, limits, failures)


def dice(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float | None:
    """Dice coefficient of two boolean arrays; None if both are empty."""
    total = int(first.sum()) + int(second.sum())
    return 2 * int((first & second).sum()) / total if total else None


def fallbacks(job: CheckJob) -> None:
    """One pass of the default network at each level; the answer may come from the CPU, but it must come."""
    model, input_dir = job.package("default"), job.input_dir("head_and_neck")
    levels = FREE_GB if job.on_card else (None,)
    for number, free_gb in enumerate(levels):
        limit_s = max(_LEAST_S, 0.9 * job.left_s() / (len(levels) - number))
        name = "no card to fill" if free_gb is None else f"{free_gb:g} GB left"
        with filled_card(free_gb):
            run = predict(job, f"fallback-{number}", model, input_dir, job.device, limit_s, "--passes", "1")
        failures = [text for text in run.failures(job.device) if not text.startswith("answered by")]
        notices = [str(notice["found"]) for notice in run.record.get("notices", ())]
        figures = run.figures() | {
            "time limit (s)": limit_s,
            "last line": run.read_last_line,
            "notices": "; ".join(notices),
        }
        job.row(name, figures, failures=failures)


@contextmanager
def filled_card(free_gb: float | None) -> Iterator[None]:
    """Take the card's memory but for `free_gb`; None takes nothing."""
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


def image(job: CheckJob) -> None:
    """One case with 16 GiB of memory, no network and, on a card, all cards; the run record says what answered.

    Raises:
        HecktorError: no image was named; EngineError if no container engine answers.
    """
    if job.image is None:
        raise HecktorError("--only image", "found no --image", "the image to run")
    limits = Limits(_MEMORY_BYTES, min(TASK.time_limit_s, 0.9 * job.left_s()))
    folder = job.folder / "image"
    call = Call.create(f"hecktor-device-check-{job.folder.name.strip('.')}", folder, folder / "log", limits, None)
    shutil.copytree(job.input_dir("head_and_neck"), call.input_dir, dirs_exist_ok=True)
    outcome = ContainerRunner(find_engine(), job.image, with_gpus=job.on_card).run(call)
    record = read_json(call.record_path) if call.record_path.is_file() else {}
    lines = call.stderr.read_text(errors="replace").splitlines() or ["no output"]
    mask = next(call.output_dir.rglob("*.mha"), call.output_dir / "none")
    run = Run(outcome.exit_code or 0, outcome.seconds, record, mask, lines[-1])
    checked = (*RUN_LIMITS, *((CARD_LIMIT,) if job.on_card else ())) if record else ()
    job.row(job.image, run.figures(), checked, run.failures(job.device))
