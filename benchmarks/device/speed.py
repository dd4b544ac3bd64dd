"""Describe the machine, and time one 3D convolution, one tile of a network of full size and the tail of a pass."""

from __future__ import annotations

import functools
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.network.backbones import build_untrained_network
from algorithm.network.devices import as_inference, device_named
from algorithm.network.networks import HalfConvolutions, Networks
from algorithm.network.package import load_package
from algorithm.network.tiles import PassSum, cpu_has_bfloat16, synchronise
from benchmarks.device.job import CARD_GIB, CheckJob, Limit
from benchmarks.device.packages import PLAN_NAMES
from contract import labels
from contract.documents import find_version
from contract.packages import CHANNELS
from contract.processes import count_usable_cpus

REPEATS: Final = 10
TILE: Final = "tile (s)"
AUTOCAST: Final = "tile, weights converted by autocast (s)"
CONVERTED: Final = "tile, weights converted once (s)"
BENCHMARK: Final = "tile, cudnn.benchmark on (s)"
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
            figures[str(kind).removeprefix("torch.")] = 1000 * measure_median_s(functools.partial(layer, image), device)
    full, half = figures.values()
    figures[HALF] = half / full
    name = f"{channels} to {channels} channels, {edge}^3 voxels (ms)"
    job.report(name, figures, (_HALF_LIMIT,) if job.on_card else ())


def time_tiles(job: CheckJob) -> None:
    """Measure the seconds of a tile of noise, with the weights of the first fold.

    The algorithm converts the weights of convolutions to half precision once, and leaves `cudnn.benchmark` off. The row
    shows what a tile takes if autocast converts them instead, and on a card with `cudnn.benchmark` on.
    """
    device = device_named(job.device)
    half = torch.float16 if job.on_card else torch.bfloat16
    for plan in PLAN_NAMES:
        package = load_package(job.package(plan))
        network = Networks(package, keeps_all=False).get(0, device)
        plain = network.network if isinstance(network, HalfConvolutions) else network
        patch = [int(n) for n in package.configuration["patch_size"]]
        tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
        if job.on_card:
            torch.cuda.reset_peak_memory_stats()
        with as_inference(device, limited=True), torch.autocast(device.type, half, job.on_card or cpu_has_bfloat16()):
            tile_s = measure_median_s(functools.partial(network, tile), device)
            figures = {TILE: tile_s}
            if job.on_card:
                figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
            other = plain if job.on_card else HalfConvolutions(plain, half)
            name = AUTOCAST if job.on_card else CONVERTED
            figures[name] = measure_median_s(functools.partial(other, tile), device)
            if job.on_card:
                torch.backends.cudnn.benchmark = True  # `as_inference` restores it
                figures[BENCHMARK] = measure_median_s(functools.partial(network, tile), device)
        flops = count_tile_flops(package.configuration)
        figures |= {"GFLOP": flops / 1e9, "TFLOP/s": flops / tile_s / 1e12}
        job.report(f"{plan}, {' x '.join(map(str, patch))} voxels", figures)


def time_tail(job: CheckJob) -> None:
    """Measure the milliseconds after the last tile of a pass: softmax, addition, and copy to RAM.

    The copy is waited for here. In the algorithm the card goes on with the next pass.
    """
    device = device_named(job.device)
    shape = (len(labels.NAMES), *((24, 24, 24) if job.quick else (310, 200, 200)))
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    passes = PassSum()
    passes.add(logits.clone(), on_card=job.on_card)

    def copy() -> None:
        passes.start_copy()
        passes.finish_copy()

    steps: dict[str, Callable[[], object]] = {
        "softmax": functools.partial(torch.softmax, logits, 0),
        "addition": functools.partial(passes.add, logits, on_card=job.on_card),
        "copy to RAM": copy,
    }
    with as_inference(device, limited=True):
        figures = {f"{name} (ms)": 1000 * measure_median_s(step, device) for name, step in steps.items()}
    job.report(f"{' x '.join(map(str, shape))} values", figures)


@torch.inference_mode()
def measure_median_s(work: Callable[[], object], device: torch.device) -> float:
    """Measure the median seconds of some work, without the first call, which includes the warm-up."""
    seconds = []
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        work()
        synchronise(device)
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
