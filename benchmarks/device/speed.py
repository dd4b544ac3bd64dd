"""The machine, one 3D convolution in float32 and half precision, and one tile of a network of full size."""

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
# Above it, torch computes half-precision convolutions without cuDNN (requirements/torch-cuda.txt).
_HALF_LIMIT: Final = Limit(HALF, most=1.0)
_VERSIONS: Final = ("torch", "numpy", "nnunetv2", "monai", "simpleitk", "hecktor")


def machine(job: CheckJob) -> None:
    """Card, driver and versions; no card is no failure here."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    figures: dict[str, Any] = {"cards": cards, "cpus": count_usable_cpus(), "python": platform.python_version()}
    figures |= {name: find_version(name) for name in _VERSIONS}
    figures |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version() if cards else None}
    for number in range(cards):
        facts = torch.cuda.get_device_properties(number)
        figures[f"card {number}"] = facts.name
        figures[f"card {number} (GiB)"] = facts.total_memory / 2**30
        figures[f"card {number}, architecture"] = f"sm_{facts.major}{facts.minor}"
    figures |= {"driver": _driver() if cards else None, "architectures": " ".join(torch.cuda.get_arch_list())}
    job.row("machine", figures)


def _driver() -> str:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"unknown ({problem})"
    return done.stdout.strip() or f"unknown ({done.stderr.strip()})"


def convolution(job: CheckJob) -> None:
    """Milliseconds of one 3D convolution as inference computes it, in float32 and in half precision.

    Half precision, which is float16 on a card and bfloat16 on a CPU, must not be slower than float32 on a card.
    """
    device, (channels, edge) = device_named(job.device), (32, 96) if job.on_card else (8, 16)
    figures: dict[str, float] = {}
    for kind in (torch.float32, torch.float16 if job.on_card else torch.bfloat16):
        layer = torch.nn.Conv3d(channels, channels, 3, padding=1).to(device, kind)
        image = torch.ones((1, channels, edge, edge, edge)).to(device, kind)
        with as_inference(device, limited=True):
            figures[str(kind).removeprefix("torch.")] = 1000 * median_s(layer, image)
    full, half = figures.values()
    figures[HALF] = half / full
    name = f"{channels} to {channels} channels, {edge}^3 voxels (ms)"
    job.row(name, figures, (_HALF_LIMIT,) if job.on_card else ())


def tiles(job: CheckJob) -> None:
    """Seconds of a tile of noise as the algorithm computes it: half precision, weights of the first fold."""
    for plan in PLAN_NAMES:
        package, device = load_package(job.package(plan)), device_named(job.device)
        network = Networks(package).get(0, device)
        patch = [int(n) for n in package.configuration["patch_size"]]
        tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
        half = torch.float16 if job.on_card else torch.bfloat16
        if job.on_card:
            torch.cuda.reset_peak_memory_stats()
        half_precision = torch.autocast(device.type, half, job.on_card or cpu_has_bfloat16())
        with as_inference(device, limited=True), half_precision:
            tile_s = median_s(network, tile)
        flops = flops_per_tile(package.configuration)
        figures = {"tile (s)": tile_s, "GFLOP": flops / 1e9, "TFLOP/s": flops / tile_s / 1e12}
        if job.on_card:
            figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
        job.row(f"{plan}, {' x '.join(map(str, patch))} voxels", figures)


@torch.inference_mode()
def median_s(network: torch.nn.Module, image: torch.Tensor) -> float:
    """Median seconds of a pass, without the first one, which includes the warm-up."""
    seconds = []
    for _ in range(REPEATS + 1):
        begun = time.perf_counter()
        network(image)
        synchronise(image.device)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds[1:]))


def flops_per_tile(configuration: Mapping[str, Any]) -> float:
    """Multiplications and additions of the convolutions on one tile, counted without computing them."""
    patch = [int(n) for n in configuration["patch_size"]]
    with torch.device("meta"):
        network = build_untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())
