"""nnU-Net's own planning, preprocessing and training, in-process and without worker pools.

nnU-Net reads its folders from the environment when it is imported, so every function here sets them first and
imports nnU-Net itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baseline.network.plans import CONFIGURATION, CONFIGURATIONS, PLANS_NAME, Plan, write_plans
from baseline.release.data_set import DATASET_ID, DATASET_NAME
from contract.errors import HecktorError
from contract.files import read_json, write_json

# Processes that augment for a card: more take memory for patches that nobody waits for.
MOST_AUGMENTING = 16
# Far above any number of folds, so that no two processes draw alike.
_BETWEEN_RANKS = 10_000


@dataclass(frozen=True)
class Folders:
    """nnU-Net's three folders below one working directory."""

    root: Path

    @property
    def raw(self) -> Path:
        """Raw data sets."""
        return self.root / "raw"

    @property
    def preprocessed(self) -> Path:
        """Plans, splits and preprocessed data."""
        return self.root / "preprocessed"

    @property
    def results(self) -> Path:
        """Checkpoints and logs."""
        return self.root / "results"

    @property
    def plans(self) -> Path:
        """The plans file."""
        return self.preprocessed / DATASET_NAME / f"{PLANS_NAME}.json"

    def fold(self, fold: int, backbone: str = "unet") -> Path:
        """Where the checkpoints of a fold's network lie."""
        trainer = f"ShortTrainer__{PLANS_NAME}__{CONFIGURATIONS[backbone]}"
        return self.results / DATASET_NAME / trainer / f"fold_{fold}"

    def final(self, fold: int, backbone: str = "unet") -> Path:
        """The checkpoint that stands once a network is trained."""
        return self.fold(fold, backbone) / "checkpoint_final.pth"

    def announce(self, augmentation_workers: int) -> None:
        """Tell nnU-Net, which reads the environment when it is imported."""
        for name in ("raw", "preprocessed", "results"):
            folder = self.root / name
            folder.mkdir(parents=True, exist_ok=True)
            os.environ[f"nnUNet_{name}"] = str(folder)
        os.environ["nnUNet_n_proc_DA"] = str(augmentation_workers)  # noqa: SIM112 - nnU-Net's own spelling
        os.environ["nnUNet_compile"] = "f"  # noqa: SIM112


def plan_and_preprocess(folders: Folders, plan: Plan, splits: list[dict[str, list[str]]], jobs: int) -> dict[str, Any]:
    """Fingerprint, plan and preprocess the raw data set; returns the plans."""
    folders.announce(augmentation_workers=1)  # its planner takes this for its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    if not folders.plans.is_file():
        DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False).run(overwrite_existing=False)
        write_plans(plan, folders.plans)
    write_json(folders.preprocessed / DATASET_NAME / "splits_final.json", splits)
    plans: dict[str, Any] = read_json(folders.plans)
    preprocess_dataset(DATASET_ID, PLANS_NAME, (CONFIGURATION,), (jobs,), verbose=False)
    return plans


@dataclass(frozen=True)
class Machine:
    """What a network is trained on.

    Attributes:
        device: `cpu` or `cuda`.
        gpus: cards (processes on a CPU) that share each batch; 1 for no sharing.
        threads: processor cores for all of it.
    """

    device: str = "cpu"
    gpus: int = 1
    threads: int = 1


def train_network(
    folders: Folders, plan: Plan, fold: int, backbone: str, machine: Machine, seed: int, rank: int = 0
) -> Path:
    """Train one network, from its last checkpoint where one lies; returns the final checkpoint.

    One of several processes that share each batch has its number as `rank` and has joined their group before.

    Raises:
        HecktorError: the card's memory is full.
    """
    final = folders.final(fold, backbone)
    if final.is_file():
        return final
    threads = max(1, machine.threads // machine.gpus)
    # On a CPU the network itself needs the cores; a card waits for whoever augments.
    folders.announce(augmentation_workers=0 if machine.device == "cpu" else min(threads, MOST_AUGMENTING))
    import torch

    from baseline.network.trainer import ShortTrainer

    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    # Processes of one group draw different patches; their weights are those of the first.
    torch.manual_seed(seed + fold + _BETWEEN_RANKS * rank)
    np.random.seed(seed + fold + _BETWEEN_RANKS * rank)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    if rank == 0:
        for half in folders.fold(fold, backbone).glob(".partial-*"):  # of a process that was killed while it wrote
            half.unlink()
    latest = folders.fold(fold, backbone) / "checkpoint_latest.pth"
    plans = read_json(folders.plans) | {"continue_training": latest.is_file()}
    dataset = read_json(folders.preprocessed / DATASET_NAME / "dataset.json")
    device = torch.device(machine.device)
    trainer = ShortTrainer(plans, CONFIGURATIONS[backbone], fold, dataset, device)
    trainer.follow(plan, device)
    if latest.is_file():
        trainer.load_checkpoint(str(latest))
    try:
        trainer.run_training()
    except torch.OutOfMemoryError as problem:
        said = str(problem).partition(". ")[0]
        raise HecktorError(
            f"fold {fold} ({backbone})",
            f"{said}",
            "a card with nothing else on it, or a `plan` with a smaller --memory-gb or --batch-size",
        ) from None
    return final
