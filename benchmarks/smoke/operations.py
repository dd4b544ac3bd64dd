"""Floating point operations of a network's tile, its seconds on this device, and the prediction for a T4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.deadline import Deadline
from algorithm.network.devices import cpu_has_bfloat16, prepared_device, synchronise
from algorithm.network.networks import Networks, untrained_network
from algorithm.network.package import load_package
from benchmarks.harness.measurement import Work
from benchmarks.harness.timing import Repeats, time_calls
from contract import labels
from contract.packages import CHANNELS

# A T4 is assumed to take 8 to 12 s for a pass of the default network over 91 slices of 512 x 512 in 108 tiles. Tiles of
# 52 x 160 x 160 voxels (610 GFLOP each) give that number of tiles.
T4_TFLOPS: Final = (5.49, 8.23)
TILE_REPEATS: Final = Repeats(least=10)


def flops_per_tile(configuration: Mapping[str, Any]) -> float:
    """Multiplications and additions of the convolutions on one tile, counted without computing them."""
    patch = [int(n) for n in configuration["patch_size"]]
    with torch.device("meta"):
        network = untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())


def time_tile(model: Path, device_name: str, _: Path) -> Work:
    """Time tiles of noise as the algorithm computes them: half precision, weights of the first fold."""
    package, device = load_package(model), prepared_device(device_name)
    network = Networks(package).of(0, device)
    patch = [int(n) for n in package.configuration["patch_size"]]
    tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
    on_cuda = device.type == "cuda"
    dtype = torch.float16 if on_cuda else torch.bfloat16

    @torch.inference_mode()
    def forward() -> None:
        with torch.autocast(device.type, dtype, enabled=on_cuda or cpu_has_bfloat16()):
            network(tile)
            synchronise(device)

    timing, flops = time_calls(forward, TILE_REPEATS), flops_per_tile(package.configuration)
    return replace(timing, figures={"GFLOP": flops / 1e9, "TFLOP/s": flops / timing.median_s / 1e12})


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
