"""One run of the algorithm with a full-size plan, with the figures of its summary line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from algorithm.network.package import load_package
from benchmarks.cases.algorithm import algorithm_command
from benchmarks.cases.patient import network_grid, patient_case, tiles_per_pass
from benchmarks.harness.memory import PeakSampler, card_memory_mib
from benchmarks.harness.timing import Command, Timing, run_command
from benchmarks.smoke.operations import flops_per_tile, t4_prediction
from contract.errors import HecktorError
from contract.tasks import task_named

PASSES: Final = "passes"
PLANNED: Final = "planned passes"
MARGIN_S: Final = "margin (s)"
CARD_GIB: Final = "peak memory on the card (GiB)"
_STAGE: Final = re.compile(r"\b([a-z]+) (\d+\.\d) s(?=,)")
_PASSES: Final = re.compile(r"(\d+) of (\d+) passes over .+?, peak memory \d+ MiB")
_GPU: Final = re.compile(r"on the GPU (\d+) MiB")
_MARGIN: Final = re.compile(r"(-?\d+\.\d) s of [\d.]+ s left")


def parse_summary(line: str) -> dict[str, float]:
    """Figures of the last line of the algorithm's log; the card's memory is what the process reserved.

    Raises:
        HecktorError: it is another line, or the network did not answer.
    """
    passes, margin, gpu = _PASSES.search(line), _MARGIN.search(line), _GPU.search(line)
    if passes is None or margin is None:
        raise HecktorError(f"the algorithm's last line: found {line!r}, expected stages, passes, memory and margin")
    figures = {f"{name} (s)": float(seconds) for name, seconds in _STAGE.findall(line[: passes.start()])}
    figures |= {PASSES: int(passes[1]), PLANNED: int(passes[2]), MARGIN_S: float(margin[1])}
    return figures | ({CARD_GIB: float(gpu[1]) / 1024} if gpu else {})


def run_patient(task: str, device: str, model: Path, input_dir: Path, scratch: Path) -> Timing:
    """All folds and mirrors on one patient within the task's time limit.

    The card's memory is the driver's count, libraries included; without `nvidia-smi` it is the process's own.

    Raises:
        HecktorError: the algorithm failed, or the network did not answer.
    """
    before_mib = card_memory_mib() if device == "cuda" else None
    with PeakSampler(lambda: (card_memory_mib() or 0.0) if before_mib is not None else 0.0, step_s=0.5) as card:
        run = run_command(Command(algorithm_command(task, model, input_dir, scratch, "--device", device)))
    if run.status:
        raise HecktorError(f"{task} on {device}: exit status {run.status}, expected 0: {run.output[-2000:]}")
    figures = parse_summary(run.output.strip().splitlines()[-1])
    package = load_package(model)
    tiles = tiles_per_pass(network_grid(patient_case(input_dir), package), package)
    prediction = t4_prediction(
        tiles * flops_per_tile(package.configuration),
        run.seconds - figures["segment (s)"],
        task_named(task).time_limit_s,
        int(figures[PLANNED]),
    )
    figures |= {"tiles a pass": tiles, **prediction}
    if before_mib is not None:
        figures[CARD_GIB] = (card.peak_mib - before_mib) / 1024
    return Timing((run.seconds,), run.peak_memory_mib, figures)
