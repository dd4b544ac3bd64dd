"""Describe the machine, and time a 3D convolution, a tile of a large network, the end of a pass, and a training.

The training runs for two epochs of the preset `nnunet` on images of noise.
"""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from algorithm.network.backbones import build_untrained_network
from algorithm.network.devices import find_device, use_inference_settings
from algorithm.network.networks import HalfConvolutions, Networks
from algorithm.network.package import load_package
from algorithm.network.tiles import PassSum, cpu_has_bfloat16, synchronise
from baseline.network.nnunet import Machine, train_network
from baseline.network.planning import plan_and_preprocess
from baseline.network.plans import PRESETS, NetworkPlan, store_plan
from baseline.work import WorkFolders
from benchmarks.device.job import CARD_GIB, PLAN_NAMES, CheckJob, Limit
from contract import labels
from contract.documents import find_version
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json, write_json
from contract.packages import CHANNELS
from contract.processes import count_usable_cpus

REPEATS: Final = 10
TILE: Final = "tile (s)"
AUTOCAST: Final = "tile, weights converted by autocast (s)"
CONVERTED: Final = "tile, weights converted once (s)"
BENCHMARK: Final = "tile, cudnn.benchmark on (s)"
HALF: Final = "half precision takes, times float32"
# Half precision is slower than float32 if torch computes the convolution without cuDNN (requirements/torch-cuda.txt).
_HALF_LIMIT: Final = Limit(HALF, maximum=1.0)
_VERSIONS: Final = ("torch", "numpy", "nnunetv2", "monai", "simpleitk", "hecktor")

PRESET: Final = "nnunet"
# Memory on the card that nnU-Net 2 publishes for this network (documentation/resenc_presets.md), as nvidia-smi reports
# it.
PUBLISHED_GB: Final = 7.7
EPOCHS: Final = 2
ITERATIONS: Final = 40
ITERATION_MS: Final = "an iteration (ms)"
PATIENTS: Final = ("A-1", "A-2", "A-3")
_BACKBONE: Final = "unet"
_LESION_HU: Final = 60


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
    device = find_device(job.device)
    channels, edge = (32, 96) if job.on_card else (8, 16)
    figures: dict[str, float] = {}
    for kind in (torch.float32, torch.float16 if job.on_card else torch.bfloat16):
        layer = torch.nn.Conv3d(channels, channels, 3, padding=1).to(device, kind)
        image = torch.ones((1, channels, edge, edge, edge)).to(device, kind)
        with use_inference_settings(device, limited=True):
            figures[str(kind).removeprefix("torch.")] = 1000 * measure_median_s(functools.partial(layer, image), device)
    full, half = figures.values()
    figures[HALF] = half / full
    name = f"{channels} to {channels} channels, {edge}^3 voxels (ms)"
    job.report(name, figures, (_HALF_LIMIT,) if job.on_card else ())


def time_tiles(job: CheckJob) -> None:
    """Measure the seconds of a tile of noise, with the weights of the first fold.

    The algorithm converts the weights of convolutions to half precision once, and leaves `cudnn.benchmark` off. The row
    also has the time of a tile if autocast converts the weights, and on a card the time with `cudnn.benchmark` on.
    """
    device = find_device(job.device)
    half = torch.float16 if job.on_card else torch.bfloat16
    for plan in PLAN_NAMES:
        package = load_package(job.package(plan))
        network = Networks(package, keeps_all=False).get(0, device)
        plain = network.network if isinstance(network, HalfConvolutions) else network
        patch = [int(n) for n in package.configuration["patch_size"]]
        tile = torch.randn((1, len(CHANNELS), *patch), generator=torch.Generator().manual_seed(0)).to(device)
        if job.on_card:
            torch.cuda.reset_peak_memory_stats()
        with (
            use_inference_settings(device, limited=True),
            torch.autocast(device.type, half, job.on_card or cpu_has_bfloat16()),
        ):
            tile_s = measure_median_s(functools.partial(network, tile), device)
            figures = {TILE: tile_s}
            if job.on_card:
                figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
            other = plain if job.on_card else HalfConvolutions(plain, half)
            name = AUTOCAST if job.on_card else CONVERTED
            figures[name] = measure_median_s(functools.partial(other, tile), device)
            if job.on_card:
                torch.backends.cudnn.benchmark = True  # `use_inference_settings` restores it
                figures[BENCHMARK] = measure_median_s(functools.partial(network, tile), device)
        flops = count_tile_flops(package.configuration)
        figures |= {"GFLOP": flops / 1e9, "TFLOP/s": flops / tile_s / 1e12}
        job.report(f"{plan}, {' x '.join(map(str, patch))} voxels", figures)


def time_tail(job: CheckJob) -> None:
    """Measure the milliseconds after the last tile of a pass: softmax, addition, and copy to RAM.

    Here the program waits for the copy. In the algorithm the card computes the next pass in the meantime.
    """
    device = find_device(job.device)
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
    with use_inference_settings(device, limited=True):
        figures = {f"{name} (ms)": 1000 * measure_median_s(step, device) for name, step in steps.items()}
    job.report(f"{' x '.join(map(str, shape))} values", figures)


@torch.inference_mode()
def measure_median_s(work: Callable[[], object], device: torch.device) -> float:
    """Measure the median seconds of a call, without the first call, which includes the warm-up."""
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


def train_plain(job: CheckJob) -> None:
    """Train without torch.compile."""
    _train(job, "plain", Machine(job.device, 1, count_usable_cpus()))


def train_compiled(job: CheckJob) -> None:
    """Train with torch.compile, which is used only on a card."""
    if not job.on_card:
        job.skip("torch.compile is used only on a card")
        return
    _train(job, "compiled", Machine(job.device, 1, count_usable_cpus(), compile=True))


def make_plan(*, quick: bool) -> NetworkPlan:
    """Make the preset at 1 mm with two epochs of 40 iterations; with `quick` the network is tiny."""
    plan = PRESETS[PRESET].with_options(spacing_mm=(1.0, 1.0, 1.0), epochs=EPOCHS)
    if quick:
        tiny = plan.with_options(memory_gb=0.3, base_features=4, most_features=8, batch_size=2)
        return tiny.with_options(iterations=1, validation_iterations=1)
    return plan.with_options(iterations=ITERATIONS, validation_iterations=1)


def _train(job: CheckJob, name: str, machine: Machine) -> None:
    """Train the first fold from the start and report it; the second epoch includes no warm-up and no compilation.

    Raises:
        HecktorError: The training failed.
    """
    plan = make_plan(quick=job.quick)
    start_s = time.monotonic()
    work = prepare_work(job, plan)
    figures: dict[str, Any] = {"prepared (s)": time.monotonic() - start_s}
    shutil.rmtree(work.fold(0, _BACKBONE), ignore_errors=True)
    if job.on_card:
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
    final = train_network(work, plan, 0, _BACKBONE, machine, 0)
    first_s, second_s = read_epoch_seconds(final)
    configuration = read_json(work.plans)["configurations"]["3d_fullres"]
    figures |= {"first epoch (s)": first_s, ITERATION_MS: 1000 * second_s / plan.iterations}
    figures |= {"patch": str(configuration["patch_size"]), "batch": configuration["batch_size"]}
    limits = []
    if job.on_card:
        figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
        limits = [Limit(CARD_GIB, maximum=PUBLISHED_GB)]
    job.report(name, figures, limits)


def prepare_work(job: CheckJob, plan: NetworkPlan) -> WorkFolders:
    """Make the work folder with preprocessed images once; the files of a killed part are removed."""
    root = job.folder / "training"
    work = WorkFolders(root)
    marker = root / "prepared"
    if marker.is_file():
        return work
    shutil.rmtree(root, ignore_errors=True)
    write_noise(work, PATIENTS, (24, 24, 24) if job.quick else (310, 200, 200))
    folds = [[PATIENTS[0]], list(PATIENTS[1:])]
    write_json(work.splits_json, {"format_version": 1, "seed": 0, "folds": folds, "centres": {"A": list(PATIENTS)}})
    store_plan(work, "device-check", plan)
    splits = [{"train": folds[1 - fold], "val": folds[fold]} for fold in range(2)]
    # Tiny images are preprocessed in this process, since new processes would take longer.
    plan_and_preprocess(work, plan, splits, 1 if job.quick else min(len(PATIENTS), count_usable_cpus()))
    marker.touch()
    return work


def read_epoch_seconds(checkpoint: Path) -> tuple[float, ...]:
    """Read the seconds of each epoch from the log of a checkpoint, which is trusted since this process wrote it."""
    log = torch.load(checkpoint, map_location="cpu", weights_only=False)["logging"]
    return tuple(
        float(end - start)
        for start, end in zip(log["epoch_start_timestamps"], log["epoch_end_timestamps"], strict=True)
    )


def write_noise(work: WorkFolders, patients: Sequence[str], shape: tuple[int, int, int]) -> None:
    """Write nnU-Net's raw data set: noise in voxels of 1 mm with one lesion of each label; `shape` is (z, y, x)."""
    rng = np.random.default_rng(0)
    grid = Geometry(shape[::-1], (1.0,) * 3, (0.0,) * 3)
    mask = np.zeros(shape, np.uint8)
    for label, part in ((labels.GTVP, 3), (labels.GTVN, 2)):
        mask[tuple(slice(edge // part, edge // part + max(edge // 8, 3)) for edge in shape)] = label
    for patient in patients:
        for channel in range(2):
            noise = rng.standard_normal(shape, np.float32) * 30 + _LESION_HU * (mask > 0).astype(np.float32)
            write_volume(work.raw / "imagesTr" / f"{patient}_000{channel}.mha", Volume(noise, grid), compress=False)
        write_volume(work.raw / "labelsTr" / f"{patient}.mha", Volume(mask, grid))
    dataset = {
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {name: value for value, name in labels.NAMES.items()},
        "numTraining": len(patients),
        "file_ending": ".mha",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    write_json(work.raw / "dataset.json", dataset)
