"""One run of the algorithm with a full-size plan, with the figures of its run record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from algorithm.network.package import load_package
from benchmarks.cases.algorithm import algorithm_command
from benchmarks.cases.patient import network_grid, patient_case, tiles_per_pass
from benchmarks.harness.memory import PeakSampler, card_memory_mib
from benchmarks.harness.timing import Command, Timing, run_command
from benchmarks.smoke.operations import flops_per_tile, t4_prediction
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.files import read_json

PASSES: Final = "passes"
PLANNED: Final = "planned passes"
MARGIN_S: Final = "margin (s)"
LIMIT_S: Final = "time limit (s)"
CARD_GIB: Final = "peak memory on the card (GiB)"
DRIVER_GIB: Final = "with the driver's libraries (GiB)"
T4_PASSES: Final = "T4, slow (passes)"
# The tasks of both editions by name.
EDITIONS: Final = ("hecktor2025", "hecktor2026")
TASKS: Final = {one.name: (name, one) for name in EDITIONS for one in load_edition(name).algorithms}


def record_figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Figures of a run record; the card's memory is what the process reserved.

    Raises:
        HecktorError: the network did not answer.
    """
    if not record["passes_done"]:
        raise HecktorError("run record", f"segmented by {record['segmented_by']}", "passes of the network")
    figures = {f"{name} (s)": seconds for name, seconds in record["seconds"].items()}
    figures |= {PASSES: record["passes_done"], PLANNED: record["passes_planned"], MARGIN_S: record["left_s"]}
    reserved_mib = record["gpu_peak_memory_mib"]
    return figures | ({} if reserved_mib is None else {CARD_GIB: reserved_mib / 1024})


def run_patient(task: str, device: str, model: Path, input_dir: Path, scratch: Path) -> Timing:
    """All folds and mirrors on one patient within the task's time limit.

    The card's memory is what the process reserved, and the driver's count if there is `nvidia-smi`.

    Raises:
        HecktorError: the algorithm failed, or the network did not answer.
    """
    record = scratch / "record.json"
    edition, algorithm = TASKS[task]
    options = ("--edition", edition, "--device", device, "--record", str(record))
    command = algorithm_command(task, model, input_dir, scratch / "output", *options)
    before_mib = card_memory_mib() if device == "cuda" else None
    with PeakSampler(lambda: (card_memory_mib() or 0.0) if before_mib is not None else 0.0, step_s=0.5) as card:
        run = run_command(Command(command))
    if run.status:
        raise HecktorError(f"{task} on {device}: exit status {run.status}, expected 0: {run.output[-2000:]}")
    figures = record_figures(read_json(record))
    package = load_package(model)
    tiles = tiles_per_pass(network_grid(patient_case(input_dir), package), package)
    prediction = t4_prediction(
        tiles * flops_per_tile(package.configuration),
        run.seconds - figures["segment (s)"],
        algorithm.time_limit_s,
        int(figures[PLANNED]),
    )
    figures |= {"tiles a pass": tiles, LIMIT_S: algorithm.time_limit_s, **prediction}
    if before_mib is not None:
        figures[DRIVER_GIB] = (card.peak_mib - before_mib) / 1024
    return Timing((run.seconds,), run.peak_memory_mib, figures)
