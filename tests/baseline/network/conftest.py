"""A working directory of two patients of noise, planned and preprocessed, and trainers on it."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from baseline.network.patches import set_environment
from baseline.network.planning import plan_and_preprocess
from baseline.network.plans import NetworkPlan
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json, write_json

EDGE = 16
PATIENTS = ("A-1", "A-2")
PLAN = NetworkPlan(
    epochs=1,
    iterations=1,
    validation_iterations=1,
    base_features=4,
    most_features=8,
    batch_size=2,
    backbones=("unet", "segresnet"),
)
UNET = PLAN.with_options(backbones=("unet",))
MakeTrainer = Callable[..., Any]


@pytest.fixture(scope="module")
def noise_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkFolders]:
    """Return a working directory with two patients of noise, planned and preprocessed once and copied for each file."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
            patch.setenv(f"nnUNet_{name}", "")  # so that the test restores them
        work = WorkFolders(tmp_path_factory.mktemp("nnunet"))
        shutil.copytree(plan_noise_once(tmp_path_factory.getbasetemp()), work.root, dirs_exist_ok=True)
        set_environment(work, augmentation_workers=1)
        yield work


@cache
def plan_noise_once(folder: Path) -> Path:
    work = WorkFolders(folder / "planned-noise")
    write_raw(work)
    plan_noise(work, jobs=1)
    return work.root


def plan_noise(work: WorkFolders, jobs: int) -> None:
    """Plan and preprocess with a fingerprint of fewer voxels than nnU-Net draws for its statistics."""
    splits = [{"train": [first], "val": [second]} for first, second in (PATIENTS, PATIENTS[::-1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baseline.network.planning.FINGERPRINT_VOXELS", 10_000)
        plan_and_preprocess(work, PLAN, splits, jobs)


def write_raw(work: WorkFolders) -> None:
    raw, grid = work.raw, Geometry((EDGE,) * 3, (3.0,) * 3, (0.0,) * 3)
    random = np.random.default_rng(0)
    for patient in PATIENTS:
        mask = np.zeros((EDGE,) * 3, np.uint8)
        mask[2:6, 2:6, 2:6], mask[9:12, 9:12, 9:12] = 1, 2
        for channel in (0, 1):
            noise = random.normal(100 * mask, 50).astype(np.float32)
            write_volume(raw / "imagesTr" / f"{patient}_000{channel}.nii.gz", Volume(noise, grid))
        write_volume(raw / "labelsTr" / f"{patient}.nii.gz", Volume(mask, grid))
    dataset = {
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {"background": 0, "GTVp": 1, "GTVn": 2},
        "numTraining": len(PATIENTS),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "SimpleITKIO",
    }
    write_json(raw / "dataset.json", dataset)


@pytest.fixture
def make_trainer(noise_work: WorkFolders) -> MakeTrainer:
    """Return a function that makes a trainer for a plan, with its network, loss and optimiser. It uses `plans` in
    nnU-Net's format, by default the plans of the working directory.
    """

    def make(plan: NetworkPlan, backbone: str = "unet", fold: int = 0, plans: dict[str, Any] | None = None) -> Any:
        set_environment(noise_work, augmentation_workers=0)
        from baseline.network.trainer import make_trainer_class

        plans = (plans or read_json(noise_work.plans)) | {"continue_training": False}
        dataset, device = read_json(noise_work.raw / "dataset.json"), torch.device("cpu")
        trainer: Any = make_trainer_class(plan.trainer)(plans, CONFIGURATIONS[backbone], fold, dataset, device)
        trainer.use_plan(plan, backbone, device)
        trainer.initialize()
        return trainer

    return make


@pytest.fixture
def forked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of nnU-Net and DDP from a server that has imported torch and nnU-Net once, instead of in each
    process.
    """
    from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
    from nnunetv2.preprocessing.preprocessors import default_preprocessor
    from torch.multiprocessing import start_processes

    multiprocessing.set_forkserver_preload(["baseline.network.trainer", "nnunetv2.run.run_training"])
    context = multiprocessing.get_context("forkserver")
    for module in (fingerprint_extractor, default_preprocessor):
        monkeypatch.setattr(module, "multiprocessing", SimpleNamespace(get_context=lambda _: context))
    start = partial(start_processes, start_method="forkserver")
    monkeypatch.setattr(sys.modules["torch.multiprocessing.spawn"], "spawn", start)
