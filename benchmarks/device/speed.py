"""Describe the machine, and time one 3D convolution and one tile of a network of full size."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.network.backbones import build_untrained_network
from algorithm.network.devices import as_inference, device_named
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.tiles import cpu_has_bfloat16, synchronise
from benchmarks.device.job import CARD_GIB, CheckJob, Limit
from benchmarks.device.packages import PLAN_NAMES
from contract import labels
from contract.documents import find_version
from contract.packages import CHANNELS
from contract.processes import count_usable_cpus

REPEATS: Final = 10
HALF: Final = "half precision takes, times float32"
# Above this limit torch computes half-precision convolutions without cuDNN (requirements/torch-cuda.txt).
_HALF_LIMIT: Final = Limit(HALF, maximum=1.0)
_VERSIONS: Final = ("torch", "numpy", "nnunetv2", "monai", "simpleitk", "hecktor")


def describe_machine(job: CheckJob) -> None:
    """Report card, driver and versions; a missing card is not a failure of this part."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    figures: dict[str, Any] = {"cards": cards, "cpus": count_usable_cpus(), "python": platform.python_version()}
    figures |= {name: find_version(name) for name in _VERSIONS}
    figures |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version() if cards else None}
    for number in range(cards):
        facts = torch.cuda.get_device_properties(number)
        figures[f"card {number}"] = facts.name
        figures[f"card {number} (GiB)"] = facts.total_memory / 2**30
        figures[f"card {number}, architecture"] = f"sm_{facts.major}{facts.minor}"
    figures |= {
        "driver": _read_driver_version() if cards else None,
        "architectures": " ".join(torch.cuda.get_arch_list()),
    }
    job.report("machine", figures)


def _read_driver_version() -> str:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return done.stdout.strip() or f"unknown ({done.stderr.strip()})"


def time_convolution(job: CheckJob) -> None:
    """Measure the milliseconds of one 3D convolution as in inference, in float32 and in half precision.

    Half precision, which is float16 on a card and bfloat16 on a CPU, must not be slower than float32 on a card.
    """
    device = device_named(job.device)
    channels, edge = (32, 96) if job.on_card else (8, 16)
    figures: dict[str, float] = {}
    for kind in (torch.float32, torch.float16 if job.on_card else torch.bfloat16):
        layer = torch.nn.Conv3d(channels, channels, 3, padding=1).to(device, kind)
        image = torch.ones((1, channels, edge, edge, edge)).to(device, kind)
        with as_inference(device, limited=True):
            figures[str(kind).removeprefix("torch.")] = 1000 * measure_median_s(layer, image)
    full, half = figures.values()
    figures[HALF] = half / full
    name = f"{channels} to {channels} channels, {edge}^3 voxels (ms)"
    job.report(name, figures, (_HALF_LIMIT,) if job.on_card else ())


def time_tiles(job: CheckJob) -> None:
    """Measure the seconds of a tile of noise as in the algorithm: half precision, weights of the first fold."""
    device = device_named(job.device)
    for plan in PLAN_NAMES:
        package = load_package(job.package(plan))
        network = Networks(package).get(0, device)
        patch = [int(n) for n in package.configuration["patch_size"]]
        tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
        half = torch.float16 if job.on_card else torch.bfloat16
        if job.on_card:
            torch.cuda.reset_peak_memory_stats()
        half_precision = torch.autocast(device.type, half, job.on_card or cpu_has_bfloat16())
        with as_inference(device, limited=True), half_precision:
            tile_s = measure_median_s(network, tile)
        flops = count_tile_flops(package.configuration)
        figures = {"tile (s)": tile_s, "GFLOP": flops / 1e9, "TFLOP/s": flops / tile_s / 1e12}
        if job.on_card:
            figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
        job.report(f"{plan}, {' x '.join(map(str, patch))} voxels", figures)


@torch.inference_mode()
def measure_median_s(network: torch.nn.Module, image: torch.Tensor) -> float:
    """Measure the median seconds of a pass, without the first pass, which includes the warm-up."""
    seconds = []
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        network(image)
        synchronise(image.device)
        seconds.append(time.perf_counter() - start_s)
    return float(np.median(seconds[1:]))


def count_tile_flops(configuration: Mapping[str, Any]) -> float:
    """Count the multiplications and additions of the convolutions on one tile, without computing them."""
    patch = [int(n) for n in configuration["patch_size"]]
    with torch.device("meta"):
        network = build_untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())
