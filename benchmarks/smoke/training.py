"""Five epochs of a full preset on images of noise: seconds an epoch and peak memory, before a week of training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch

from baseline.network.nnunet import Machine, train_network
from baseline.network.planning import plan_and_preprocess
from baseline.network.plans import PRESETS, NetworkPlan, store_plan
from baseline.work import WorkFolders
from benchmarks.smoke.runs import CARD_GIB
from contract import labels
from contract.errors import HecktorError
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.processes import usable_cpus

# The presets for a card, and ways to train the first of them.
FULL_PRESETS: Final = tuple(name for name in PRESETS if name != "short")
WAYS: Final = ("compile", "deterministic")
# Memory on the card that nnU-Net publishes for each preset's network, as nvidia-smi reports it; above the planner's
# target for ResEnc-M (documentation/resenc_presets.md of nnU-Net 2).
PUBLISHED_GB: Final = {"nnunet": 7.7, "resenc-m": 9.1, "resenc-l": 22.7}
EPOCHS: Final = 5
FITS: Final = "fits the card"
FIRST_EPOCH_S: Final = "first epoch (s)"
EPOCH_S: Final = "an epoch (s)"
HOURS: Final = "hours a network"
PATIENTS: Final = 6
_LESION_HU: Final = 60


def plan_of_preset(preset: str, *, quick: bool) -> NetworkPlan:
    """The preset at 1 mm with a few epochs; `quick` is a tiny network."""
    plan = PRESETS[preset].changed(spacing_mm=(1.0, 1.0, 1.0), epochs=EPOCHS)
    if not quick:
        return plan
    tiny = plan.changed(memory_gb=0.3, base_features=4, most_features=8, batch_size=2)
    return tiny.changed(epochs=2, iterations=1, validation_iterations=1)


def time_training(preset: str, way: str | None, device: str, quick: bool, scratch: Path) -> dict[str, float]:
    """Train the first fold; an epoch's seconds are the median of those after the first, which includes the warm-up.

    A network that does not fit the card has 0 as `FITS` and no other figure.
    """
    work, plan = WorkFolders(scratch / "work"), plan_of_preset(preset, quick=quick)
    patients = patient_names(3 if quick else PATIENTS)
    write_noise(work, patients, (24, 24, 24) if quick else (310, 200, 200))
    folds = [[patients[0]], list(patients[1:])]
    write_json(work.splits_json, {"format_version": 1, "seed": 0, "folds": folds, "centres": {"A": list(patients)}})
    store_plan(work, "smoke", plan)
    splits = [{"train": list(patients[1:]), "val": [patients[0]]}]
    plan_and_preprocess(work, plan, splits, 1 if quick else usable_cpus())
    machine = Machine(device, 1, usable_cpus(), compile=way == "compile", deterministic=way == "deterministic")
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        final = train_network(work, plan, 0, "unet", machine, seed=0)
    except HecktorError as problem:
        sys.stderr.write(f"gpu-smoke: {problem}\n")
        return {FITS: 0.0}
    first_s, *others_s = epoch_seconds(final)
    epoch_s = float(np.median(others_s))
    figures = {FITS: 1.0, FIRST_EPOCH_S: first_s, EPOCH_S: epoch_s, HOURS: epoch_s * PRESETS[preset].epochs / 3600}
    if device == "cuda":
        figures[CARD_GIB] = torch.cuda.max_memory_reserved() / 2**30
    return figures


def epoch_seconds(checkpoint: Path) -> tuple[float, ...]:
    """The seconds of each epoch in the log of a checkpoint that this process's own training wrote."""
    log = torch.load(checkpoint, map_location="cpu", weights_only=False)["logging"]
    return tuple(
        float(end - start)
        for start, end in zip(log["epoch_start_timestamps"], log["epoch_end_timestamps"], strict=True)
    )


def patient_names(count: int) -> tuple[str, ...]:
    """Names of patients of one centre."""
    return tuple(f"A-{number}" for number in range(1, count + 1))


def write_noise(work: WorkFolders, patients: Sequence[str], shape: tuple[int, int, int]) -> None:
    """nnU-Net's raw data set: noise of 1 mm voxels with one lesion of each label, in (z, y, x)."""
    random, grid = np.random.default_rng(0), Geometry(shape[::-1], (1.0,) * 3, (0.0,) * 3)
    mask = np.zeros(shape, np.uint8)
    for label, part in ((labels.GTVP, 3), (labels.GTVN, 2)):
        mask[tuple(slice(edge // part, edge // part + max(edge // 8, 3)) for edge in shape)] = label
    for patient in patients:
        for channel in range(2):
            noise = random.normal(_LESION_HU * (mask > 0), 30).astype(np.float32)
            write_volume(work.raw / "imagesTr" / f"{patient}_000{channel}.nii.gz", Volume(noise, grid))
        write_volume(work.raw / "labelsTr" / f"{patient}.nii.gz", Volume(mask, grid))
    dataset = {
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {name: value for value, name in labels.NAMES.items()},
        "numTraining": len(patients),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    write_json(work.raw / "dataset.json", dataset)
