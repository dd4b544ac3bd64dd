"""One tile of a network, and one run of the algorithm with a full-size plan, with a prediction for a T4."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.case.notices import Notices
from algorithm.case.read import read_case
from algorithm.deadline import Deadline
from algorithm.network.devices import cpu_has_bfloat16, prepared_device, synchronise
from algorithm.network.networks import Networks, untrained_network
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.windows import TILE_STEP
from algorithm.region.lattice import upright_grid
from algorithm.region.localise import localise
from benchmarks.stages import algorithm_command
from contract import labels
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.files import read_json
from contract.packages import CHANNELS

PASSES: Final = "passes"
PLANNED: Final = "planned passes"
MARGIN_S: Final = "margin (s)"
LIMIT_S: Final = "time limit (s)"
CARD_GIB: Final = "peak memory on the card (GiB)"
T4_PASSES: Final = "T4, slow (passes)"
# The tasks of both editions by name.
TASKS: Final = {
    one.name: (name, one) for name in ("hecktor2025", "hecktor2026") for one in load_edition(name).algorithms
}
# A T4 is assumed to take 8 to 12 s for a pass of the default network over 91 slices of 512 x 512 in 108 tiles. Tiles of
# 52 x 160 x 160 voxels (610 GFLOP each) give that number of tiles.
T4_TFLOPS: Final = (5.49, 8.23)
TILES: Final = 10
HALF: Final = "half precision takes, times float32"


def time_tile(model: Path, device_name: str) -> dict[str, float]:
    """Median seconds of a tile of noise as the algorithm computes it: half precision, weights of the first fold."""
    package, device = load_package(model), prepared_device(device_name)
    network = Networks(package).of(0, device)
    patch = [int(n) for n in package.configuration["patch_size"]]
    tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
    on_cuda = device.type == "cuda"
    with torch.autocast(device.type, torch.float16 if on_cuda else torch.bfloat16, on_cuda or cpu_has_bfloat16()):
        median_s = _median_s(network, tile)
    flops = flops_per_tile(package.configuration)
    return {"tile (s)": median_s, "GFLOP": flops / 1e9, "TFLOP/s": flops / median_s / 1e12}


def time_convolution(device_name: str, *, quick: bool) -> dict[str, float]:
    """Milliseconds of one 3D convolution in float32 and in half precision, and how many times as long half takes.

    Half precision is float16 on a card and bfloat16 on a CPU. It takes several times as long where torch computes it
    without cuDNN.
    """
    device, (channels, edge) = prepared_device(device_name), (8, 16) if quick else (32, 96)
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    median_ms = {}
    for kind in (torch.float32, half):
        convolution = torch.nn.Conv3d(channels, channels, 3, padding=1).to(device, kind)
        image = torch.ones((1, channels, edge, edge, edge)).to(device, kind)
        median_ms[kind] = 1000 * _median_s(convolution, image)
    single_ms, half_ms = median_ms.values()
    return {"float32 (ms)": single_ms, f"{str(half).removeprefix('torch.')} (ms)": half_ms, HALF: half_ms / single_ms}


@torch.inference_mode()
def _median_s(network: torch.nn.Module, image: torch.Tensor) -> float:
    """Median seconds of a pass, without the first one, which includes the warm-up."""
    seconds = []
    for _ in range(TILES + 1):
        begun = time.perf_counter()
        network(image)
        synchronise(image.device)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds[1:]))


def run_patient(task: str, device: str, model: Path, input_dir: Path, scratch: Path) -> dict[str, float]:
    """All folds and mirrors on one patient within the task's time limit.

    Raises:
        HecktorError: the algorithm failed, or the network did not answer.
    """
    record, (edition, algorithm) = scratch / "record.json", TASKS[task]
    options = ("--edition", edition, "--device", device, "--record", str(record))
    command = algorithm_command(task, model, input_dir, scratch / "output", *options)
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise HecktorError(f"{task} on {device}: exit status {done.returncode}, expected 0: {done.stdout[-2000:]}")
    figures, package = record_figures(read_json(record)), load_package(model)
    tiles = tiles_per_pass(input_dir, package)
    flops = tiles * flops_per_tile(package.configuration)
    other_s = seconds - figures["segment (s)"]
    prediction = t4_prediction(flops, other_s, algorithm.time_limit_s, int(figures[PLANNED]))
    return {"process (s)": seconds, **figures, "tiles a pass": tiles, LIMIT_S: algorithm.time_limit_s, **prediction}


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


def tiles_per_pass(input_dir: Path, package: ModelPackage) -> int:
    """Number of tiles that a pass of the network computes on a patient's region."""
    from nnunetv2.inference.sliding_window_prediction import compute_steps_for_sliding_window

    edition = load_edition()
    case = read_case(input_dir, edition, edition.algorithms[0], Notices())
    region = localise(case)
    grid = upright_grid(case.ct.geometry, region.lower_mm, region.upper_mm, package.spacing_mm)
    patch = tuple(int(n) for n in package.configuration["patch_size"])
    padded = tuple(np.maximum(grid.array_shape, patch).tolist())
    return math.prod(len(steps) for steps in compute_steps_for_sliding_window(padded, patch, TILE_STEP))


def flops_per_tile(configuration: Mapping[str, Any]) -> float:
    """Multiplications and additions of the convolutions on one tile, counted without computing them."""
    patch = [int(n) for n in configuration["patch_size"]]
    with torch.device("meta"):
        network = untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())


def t4_prediction(flops_per_pass: float, other_s: float, limit_s: float, planned: int) -> dict[str, float]:
    """Seconds of a pass on a T4 and the passes that fit its time limit, at both ends of its assumed rate.

    Args:
        flops_per_pass: floating point operations.
        other_s: seconds outside the network, taken as measured here.
        limit_s: time limit of the task.
        planned: passes of the plan.
    """
    left_s = Deadline(limit_s, spent_s=other_s).left_s()
    prediction = {}
    for name, tflops in zip(("slow", "fast"), T4_TFLOPS, strict=True):
        pass_s = flops_per_pass / (tflops * 1e12)
        prediction[f"T4, {name} (s a pass)"] = pass_s
        prediction[f"T4, {name} (passes)"] = max(0, min(planned, math.floor(left_s / pass_s)))
    return prediction
