"""Run nnU-Net's planning, preprocessing and training in this process.

nnU-Net reads its folders from the environment at import, so every function here sets them before it imports nnU-Net.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baseline.network.plans import NetworkPlan, write_plans
from baseline.work import CONFIGURATION, CONFIGURATIONS, DATASET_ID, PLANS_NAME, WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json

# Maximum number of augmentation processes for a GPU; more only take memory.
MOST_AUGMENTING = 16
# Seed offset between processes, far above any number of folds.
_BETWEEN_RANKS = 10_000


def set_environment(work: WorkFolders, augmentation_workers: int) -> None:
    """Set nnU-Net's environment variables; call it before the first import of nnU-Net."""
    for name in ("raw", "preprocessed", "results"):
        folder = work.nnunet / name
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{name}"] = str(folder)
    os.environ["nnUNet_n_proc_DA"] = str(augmentation_workers)  # noqa: SIM112 - nnU-Net's own spelling
    os.environ["nnUNet_compile"] = "f"  # noqa: SIM112


def plan_and_preprocess(
    work: WorkFolders, plan: NetworkPlan, splits: list[dict[str, list[str]]], jobs: int
) -> dict[str, Any]:
    """Fingerprint, plan and preprocess the raw data set; returns the plans."""
    set_environment(work, augmentation_workers=1)  # nnU-Net's planner uses this as its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    if not work.plans.is_file():
        DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False).run(overwrite_existing=False)
        write_plans(plan, work.plans)
    write_json(work.preprocessed / "splits_final.json", splits)
    plans: dict[str, Any] = read_json(work.plans)
    preprocess_dataset(DATASET_ID, PLANS_NAME, (CONFIGURATION,), (jobs,), verbose=False)
    return plans


@dataclass(frozen=True)
class Machine:
    """Hardware for a training.

    Attributes:
        device: `cpu` or `cuda`.
        gpus: GPUs, or processes on a CPU, that share each batch (DDP).
        threads: processor cores in total.
    """

    device: str = "cpu"
    gpus: int = 1
    threads: int = 1


def train_network(
    work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int, rank: int = 0
) -> Path:
    """Train one network, resuming from its last checkpoint if there is one; returns the final checkpoint.

    With DDP each process passes its `rank` and has joined the process group before.

    Raises:
        HecktorError: the GPU is out of memory.
    """
    final = work.final(fold, backbone)
    if final.is_file():
        return final
    threads = max(1, machine.threads // machine.gpus)
    # On a CPU the network needs the cores; a GPU waits for augmentation.
    set_environment(work, augmentation_workers=0 if machine.device == "cpu" else min(threads, MOST_AUGMENTING))
    import torch

    from baseline.network.trainer import ShortTrainer

    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    # DDP processes draw different patches; their weights are broadcast from the first.
    torch.manual_seed(seed + fold + _BETWEEN_RANKS * rank)
    np.random.seed(seed + fold + _BETWEEN_RANKS * rank)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    if rank == 0:
        for partial in work.fold(fold, backbone).glob(".partial-*"):  # of a process that was killed while writing
            partial.unlink()
    latest = work.fold(fold, backbone) / "checkpoint_latest.pth"
    plans = read_json(work.plans) | {"continue_training": latest.is_file()}
    dataset = read_json(work.preprocessed / "dataset.json")
    device = torch.device(machine.device)
    trainer = ShortTrainer(plans, CONFIGURATIONS[backbone], fold, dataset, device)
    trainer.use_plan(plan, device)
    if latest.is_file():
        trainer.load_checkpoint(str(latest))
    try:
        trainer.run_training()
    except torch.OutOfMemoryError as problem:
        raise HecktorError(
            f"fold {fold} ({backbone})",
            str(problem).partition(". ")[0],
            "a free GPU, or a `plan` with a smaller --memory-gb or --batch-size",
        ) from None
    return final
