"""A working directory of two patients of noise, planned and preprocessed, and trainers on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from baseline.network.nnunet import set_environment
from baseline.network.plans import NetworkPlan, write_plans
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.files import read_json
from tests.baseline.network.test_nnunet import PLAN, preprocess, write_raw

UNET = replace(PLAN, backbones=("unet",), enhance=())
MakeTrainer = Callable[..., Any]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkFolders]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
            patch.setenv(f"nnUNet_{name}", "")  # so that the test restores them
        work = WorkFolders(tmp_path_factory.mktemp("training"))
        set_environment(work, augmentation_workers=1)  # nnU-Net takes it for threads, too
        write_raw(work)
        write_plans(replace(PLAN, enhance=()), work.plans)
        preprocess(work)
        yield work


@pytest.fixture
def make_trainer(planned: WorkFolders) -> MakeTrainer:
    """A trainer of nnU-Net's by a plan, with its network, loss and optimiser; by nnU-Net's `plans` of that plan, or
    those of the working directory.
    """

    def made(plan: NetworkPlan, backbone: str = "unet", fold: int = 0, plans: dict[str, Any] | None = None) -> Any:
        set_environment(planned, augmentation_workers=0)
        from baseline.network.trainer import ShortTrainer

        plans = (plans or read_json(planned.plans)) | {"continue_training": False}
        dataset, device = read_json(planned.preprocessed / "dataset.json"), torch.device("cpu")
        trainer = ShortTrainer(plans, CONFIGURATIONS[backbone], fold, dataset, device)
        trainer.use_plan(plan, device)
        trainer.initialize()
        return trainer

    return made
