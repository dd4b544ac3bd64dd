"""What a network's tile costs: floating point operations, and seconds on this device; in a process of its own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.network.devices import backends, cpu_has_bfloat16, device_named, prepare_gpu, synchronise
from algorithm.network.networks import Networks, untrained_network
from algorithm.network.package import CHANNELS, ModelPackage, load_package
from benchmarks.timing import run_command
from contract import labels
from contract.errors import HecktorError, run_main
from contract.files import read_json, write_json

# A T4 is assumed to take 8 to 12 s for a pass of the default network over 91 slices of 512 x 512 in 108 tiles. Tiles of
# 52 x 160 x 160 voxels make that number of them, of 608 GFLOP each.
T4_TFLOPS: Final = (5.47, 8.21)


@dataclass(frozen=True)
class FlopRate:
    """A tile's floating point operations, the seconds that it takes on `device`, and the device's memory in MiB."""

    device: str
    device_memory_mib: float | None
    flops_a_tile: float
    seconds_a_tile: float

    @property
    def tflops(self) -> float:
        """10^12 floating point operations a second."""
        return self.flops_a_tile / self.seconds_a_tile / 1e12


def flops_a_tile(configuration: Mapping[str, Any]) -> float:
    """Multiplications and additions of the convolutions on one tile of the patch's size, without computing them."""
    patch = [int(n) for n in configuration["patch_size"]]
    with torch.device("meta"):
        network = untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())


def measure_rate(package: ModelPackage, device_name: str, repeats: int) -> FlopRate:
    """Time tiles of noise as the algorithm computes them: half precision, weights of the first fold."""
    device = device_named(device_name)
    prepare_gpu(device)
    network = Networks(package).of(0, device)
    patch = [int(n) for n in package.configuration["patch_size"]]
    tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0))
    tile = tile.to(device)
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    half = device.type == "cuda" or cpu_has_bfloat16()
    seconds = []
    with torch.inference_mode(), torch.autocast(device.type, dtype, enabled=half):
        for _ in range(repeats + 2):  # the first two warm up
            begun = time.perf_counter()
            network(tile)
            synchronise(device)
            seconds.append(time.perf_counter() - begun)
    memory = torch.cuda.get_device_properties(device).total_memory / 2**20 if device.type == "cuda" else None
    name = str(backends(device, 0)[0]).partition(",")[0]
    return FlopRate(name, memory, flops_a_tile(package.configuration), float(np.median(seconds[2:])))


def rate_in_a_process(model: Path, device: str, repeats: int, report: Path) -> FlopRate:
    """`measure_rate` in a new process, so that this one keeps off the card.

    Raises:
        HecktorError: the process failed.
    """
    command = [sys.executable, "-m", "benchmarks.flop_rate", "--model", str(model), "--device", device]
    done = run_command([*command, "--repeats", str(repeats), "--report", str(report)])
    if done.status:
        raise HecktorError(f"benchmarks.flop_rate: status {done.status}, it said: {done.said[-2000:]}")
    found: dict[str, Any] = read_json(report)
    return FlopRate(**found)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(prog="benchmarks.flop_rate")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args(argv)
    write_json(options.report, asdict(measure_rate(load_package(options.model), options.device, options.repeats)))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
