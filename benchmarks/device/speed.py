"""The machine, one 3D convolution in every way that torch computes it, and one tile of a network of full size."""

from __future__ import annotations

import itertools
import platform
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.network.devices import as_inference, cpu_has_bfloat16, device_named, synchronise
from algorithm.network.networks import Networks, untrained_network
from algorithm.network.package import load_package
from benchmarks.device.job import CARD_GIB, CheckJob, Limit
from benchmarks.device.packages import PLAN_NAMES
from contract import labels
from contract.documents import installed_version
from contract.packages import CHANNELS
from contract.processes import usable_cpus

REPEATS: Final = 10
HALF: Final = "half precision takes, times float32"
# Above it, torch computes half-precision convolutions without cuDNN (requirements/torch-cuda.txt).
_HALF_LIMIT: Final = Limit(HALF, most=1.0)
_VERSIONS: Final = ("torch", "numpy", "nnunetv2", "monai", "simpleitk", "hecktor")


def machine(job: CheckJob) -> None:
    """Card, driver and versions; no card is no failure here."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    figures: dict[str, Any] = {"cards": cards, "cpus": usable_cpus(), "python": platform.python_version()}
    figures |= {name: installed_version(name) for name in _VERSIONS}
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
    """Milliseconds by precision, memory format, deterministic or not, and cuDNN's benchmark on or off.

    Inference computes deterministically, without the benchmark, channels first: there half precision, which is float16
    on a card and bfloat16 on a CPU, must not be slower than float32.
    """
    device, (channels, edge) = device_named(job.device), (32, 96) if job.on_card else (8, 16)
    half = torch.float16 if job.on_card else torch.bfloat16
    formats = {"channels first": torch.contiguous_format, "channels last": torch.channels_last_3d}
    milliseconds: dict[tuple[torch.dtype, str, bool, bool], float] = {}
    for way in itertools.product((torch.float32, half), formats, (True, False), (False, True)):
        kind, order, deterministic, benchmark = way
        layer = torch.nn.Conv3d(channels, channels, 3, padding=1).to(device, kind)
        layer.to(memory_format=formats[order])  # type: ignore[call-overload]
        image = torch.ones((1, channels, edge, edge, edge)).to(device, kind, memory_format=formats[order])
        with as_inference(device, limited=True):  # restores what this way sets
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, benchmark
            milliseconds[way] = 1000 * median_s(layer, image)
    of_inference = ("channels first", True, False)
    figures = {_named(way): value for way, value in milliseconds.items()}
    figures[HALF] = milliseconds[(half, *of_inference)] / milliseconds[(torch.float32, *of_inference)]
    name = f"{channels} to {channels} channels, {edge}^3 voxels (ms)"
    job.row(name, figures, (_HALF_LIMIT,) if job.on_card else ())


def _named(way: tuple[torch.dtype, str, bool, bool]) -> str:
    kind, order, deterministic, benchmark = way
    words = [str(kind).removeprefix("torch."), order, *["deterministic"] * deterministic, *["benchmark"] * benchmark]
    return ", ".join(words)


def tiles(job: CheckJob) -> None:
    """Seconds of a tile of noise as the algorithm computes it: half precision, weights of the first fold."""
    for plan in PLAN_NAMES:
        package, device = load_package(job.package(plan)), device_named(job.device)
        network = Networks(package).of(0, device)
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
        network = untrained_network(configuration, len(CHANNELS), len(labels.NAMES))
        tile = torch.empty((1, len(CHANNELS), *patch))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(tile)
    return float(counter.get_total_flops())
