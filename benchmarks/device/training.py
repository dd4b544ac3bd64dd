"""Train two epochs of the preset `nnunet` on images of noise, to measure the time of an iteration."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from baseline.network.nnunet import Machine, train_network, train_with_ddp
from baseline.network.planning import plan_and_preprocess
from baseline.network.plans import PRESETS, NetworkPlan, store_plan
from baseline.work import WorkFolders
from benchmarks.device.job import CARD_GIB, CheckJob, Limit
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json, write_json
from contract.processes import count_usable_cpus

PRESET: Final = "nnunet"
# Memory on the card that nnU-Net 2 publishes for this network in documentation/resenc_presets.md, as nvidia-smi reports
# it.
PUBLISHED_GB: Final = 7.7
EPOCHS: Final = 2
ITERATIONS: Final = 40
ITERATION_MS: Final = "an iteration (ms)"
PATIENTS: Final = ("A-1", "A-2", "A-3")
_BACKBONE: Final = "unet"
_LESION_HU: Final = 60


def train_plain(job: CheckJob) -> None:
    """Train without torch.compile."""
    _train(job, "plain", Machine(job.device, 1, count_usable_cpus()))


def train_compiled(job: CheckJob) -> None:
    """Train with torch.compile, which trainings only use on a card."""
    if not job.on_card:
        job.skip("torch.compile is used on a card only")
        return
    _train(job, "compiled", Machine(job.device, 1, count_usable_cpus(), compile=True))


def train_on_two_cards(job: CheckJob) -> None:
    """Train two folds, each with DDP on two cards by NCCL."""
    cards = torch.cuda.device_count() if job.on_card else 0
    if cards < 2:
        job.skip(f"{cards} cards, two are needed")
        return
    for fold in (0, 1):
        _train(job, f"fold {fold}", Machine(job.device, 2, count_usable_cpus()), fold)


def make_plan(*, quick: bool) -> NetworkPlan:
    """Make the preset at 1 mm with two epochs of 40 iterations; with `quick` the network is tiny."""
    plan = PRESETS[PRESET].with_options(spacing_mm=(1.0, 1.0, 1.0), epochs=EPOCHS)
    if quick:
        tiny = plan.with_options(memory_gb=0.3, base_features=4, most_features=8, batch_size=2)
        return tiny.with_options(iterations=1, validation_iterations=1)
    return plan.with_options(iterations=ITERATIONS, validation_iterations=1)


def _train(job: CheckJob, name: str, machine: Machine, fold: int = 0) -> None:
    """Train one fold from the start and report it; the second epoch is without warm-up and compilation.

    Raises:
        HecktorError: The training failed.
    """
    plan = make_plan(quick=job.quick)
    start_s = time.monotonic()
    work = prepare_work(job, plan)
    figures: dict[str, Any] = {"prepared (s)": time.monotonic() - start_s}
    shutil.rmtree(work.fold(fold, _BACKBONE), ignore_errors=True)
    # With DDP the networks are in other processes, so their memory is not measured.
    is_measured = job.on_card and machine.gpus == 1
    if is_measured:
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
    train = train_network if machine.gpus == 1 else train_with_ddp
    final = train(work, plan, fold, _BACKBONE, machine, 0)
    first_s, second_s = read_epoch_seconds(final)
    configuration = read_json(work.plans)["configurations"]["3d_fullres"]
    figures |= {"first epoch (s)": first_s, ITERATION_MS: 1000 * second_s / plan.iterations}
    figures |= {"patch": str(configuration["patch_size"]), "batch": configuration["batch_size"]}
    limits = []
    if is_measured:
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
    """Read the seconds of each epoch from the log of a checkpoint, which this process wrote and may trust."""
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
