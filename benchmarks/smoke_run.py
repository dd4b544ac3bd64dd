"""One run of the algorithm's entry point with a full-size plan, and what a T4 would make of it."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.budget import Budget
from algorithm.case.notices import Notices
from algorithm.case.read import read_case
from algorithm.network.package import load_package
from algorithm.network.windows import TILE_STEP, Plan, whole
from algorithm.region import grids
from algorithm.region.localise import localise
from benchmarks.flop_rate import T4_TFLOPS, FlopRate
from benchmarks.timing import run_command
from contract.errors import HecktorError
from contract.tasks import task_named

HEADER: Final = ("plan, patient, task", "stages", "passes", "whole", "margin", "RAM MiB", "GPU MiB", "on a T4")
_STAGE: Final = re.compile(r"\b([a-z]+) (\d+\.\d) s(?=,)")
_PASSES: Final = re.compile(r"(\d+) of (\d+) passes over (.+?), peak memory (\d+) MiB")
_GPU: Final = re.compile(r"on the GPU (\d+) MiB")
_MARGIN: Final = re.compile(r"(-?\d+\.\d) s of ([\d.]+) s left")


@dataclass(frozen=True)
class Summary:
    """What the algorithm's last line says: seconds a stage, passes, peak memory in MiB, and seconds left."""

    stages: dict[str, float]
    passes_done: int
    passes_planned: int
    how: str
    ram_peak_mib: float
    gpu_peak_mib: float | None
    margin_s: float


@dataclass(frozen=True)
class OnT4:
    """By the cost model, for its slow and its fast end: seconds of a pass, and passes that fit the time limit."""

    pass_s: tuple[float, float]
    passes: tuple[int, int]


@dataclass(frozen=True)
class SmokeRun:
    """One process: its seconds, what it said, the card's peak as the driver counts it, and the T4's prediction."""

    plan: str
    size: str
    task: str
    seconds: float
    summary: Summary
    card_peak_mib: float | None
    tiles_a_pass: int
    on_t4: OnT4
    said: str

    @property
    def passes_done(self) -> int:
        """Passes within the time limit."""
        return self.summary.passes_done

    @property
    def margin_s(self) -> float:
        """Seconds left of the time limit."""
        return self.summary.margin_s

    @property
    def gpu_peak_mib(self) -> float | None:
        """The most that the process had reserved on the card, without the driver's own share."""
        return self.summary.gpu_peak_mib

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        summary, t4 = self.summary, self.on_t4
        pass_s = " to ".join(f"{seconds:.3g}" for seconds in t4.pass_s)
        gpu = "" if summary.gpu_peak_mib is None else f"{summary.gpu_peak_mib:.0f}"
        return (
            f"{self.plan}, {self.size.replace('_', ' ')}, {self.task}",
            ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary.stages.items()),
            f"{summary.passes_done} of {summary.passes_planned}",
            f"{self.seconds:.1f} s",
            f"{summary.margin_s:.0f} s",
            f"{summary.ram_peak_mib:.0f}",
            gpu if self.card_peak_mib is None else f"{gpu} ({self.card_peak_mib:.0f})",
            f"{pass_s} s a pass, {' to '.join(map(str, sorted(set(t4.passes))))} passes",
        )


def smoke_run(
    plan: str, size: str, task: str, device: str, package: Path, input_dir: Path, rate: FlopRate, tiles: int
) -> SmokeRun:
    """`python -m algorithm` on one patient, all folds and mirrors, within the task's own time limit.

    Raises:
        HecktorError: it failed, or the network did not answer.
    """
    command = [sys.executable, "-m", "algorithm", "--task", task, "--device", device, "--model", str(package)]
    with tempfile.TemporaryDirectory() as output, card_memory(device) as card:
        done = run_command([*command, "--input", str(input_dir), "--output", output])
    if done.status:
        raise HecktorError(f"{plan}, {size}, {task}: status {done.status}, it said: {done.said[-2000:]}")
    said = done.said.strip().splitlines()[-1]
    summary = parsed(said)
    limit_s = task_named(task).time_limit_s
    other_s = done.seconds - summary.stages["segment"]
    peak = max(card) if card else None
    flops_a_pass = rate.flops_a_tile * tiles
    on_t4 = predicted(flops_a_pass, other_s, limit_s, summary.passes_planned)
    return SmokeRun(plan, size, task, done.seconds, summary, peak, tiles, on_t4, said)


def parsed(line: str) -> Summary:
    """The figures of the algorithm's last line.

    Raises:
        HecktorError: the line is another, or says that the network did not answer.
    """
    passes, margin, gpu = _PASSES.search(line), _MARGIN.search(line), _GPU.search(line)
    if passes is None or margin is None:
        raise HecktorError(f"the algorithm's last line is {line!r}, expected stages, passes, memory and margin")
    stages = {name: float(seconds) for name, seconds in _STAGE.findall(line[: passes.start()])}
    done, planned, how, ram = passes.groups()
    return Summary(stages, int(done), int(planned), how, float(ram), float(gpu[1]) if gpu else None, float(margin[1]))


def predicted(flops_a_pass: float, other_s: float, limit_s: float, planned: int) -> OnT4:
    """What the T4 cost model says of a pass of so many operations; `other_s` are those around the network, as here."""
    left_s = Budget.start(limit_s, spent_s=other_s).left_s()
    slow, fast = (flops_a_pass / (tflops * 1e12) for tflops in T4_TFLOPS)
    fits = [max(0, min(planned, math.floor(left_s / pass_s))) for pass_s in (slow, fast)]
    return OnT4((slow, fast), (fits[0], fits[1]))


def tiles_a_pass(package: Path, input_dir: Path) -> int:
    """How many tiles the network has on the region of this patient."""
    loaded = load_package(package)
    region = localise(read_case(input_dir, Notices()))
    grid = grids.grid_over(region.lower_mm, region.upper_mm, loaded.spacing_mm)
    z, y, x = (int(n) for n in loaded.configuration["patch_size"])
    return len(Plan(whole(grid.array_shape), TILE_STEP, (z, y, x), "").tiles)


@contextmanager
def card_memory(device: str) -> Iterator[list[float]]:
    """MiB that are taken on the first card beyond what was taken before, sampled twice a second while the block runs.

    This is the driver's count and holds what libraries take for themselves. Empty on a CPU or without `nvidia-smi`.
    """
    samples: list[float] = []
    before = _card_memory_mib() if device == "cuda" and shutil.which("nvidia-smi") else None
    ended = threading.Event()

    def sample(base: float) -> None:
        while not ended.wait(0.5):
            now = _card_memory_mib()
            if now is not None:
                samples.append(now - base)

    if before is None:
        yield samples
        return
    thread = threading.Thread(target=sample, args=(before,), daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _card_memory_mib() -> float | None:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    return float(lines[0]) if done.returncode == 0 and lines and lines[0].isdigit() else None
