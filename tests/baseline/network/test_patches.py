"""Tests of what each patch of nnU-Net relies on: a newer nnU-Net that needs no patch, or has moved its code, fails
here.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
from nnunetv2.preprocessing.preprocessors import default_preprocessor
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as trainer_module
from nnunetv2.utilities import utils
from torch import distributed

from baseline.network.patches import allow_ddp_on_cpu, replace_augmenters, replace_process_pools, set_environment
from baseline.network.planning import _make_planner
from baseline.network.trainer import Recipe, Supervision
from baseline.work import WorkFolders
from tests.baseline.network.conftest import EDGE, PATIENTS, UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class StartedProcessError(Exception):
    """Raised when nnU-Net starts a process."""


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: BaseProcess) -> None:
        raise StartedProcessError

    monkeypatch.setattr(BaseProcess, "start", refuse)


def list_files(work: WorkFolders) -> Any:
    return utils.get_filenames_of_train_images_and_targets(str(work.raw))


def fingerprint(work: WorkFolders) -> Any:
    extractor = fingerprint_extractor.DatasetFingerprintExtractor(work.raw.name, 1)
    extractor.num_foreground_voxels_for_intensitystats = 10_000
    return extractor.run(overwrite_existing=True)


def preprocess(_: WorkFolders) -> None:
    default_preprocessor.DefaultPreprocessor(verbose=False).run(1, "3d_fullres", "hecktorPlans", num_processes=1)


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("step", [list_files, fingerprint])
def test_nnunet_starts_processes_and_the_patch_prevents_it(
    noise_work: WorkFolders, step: Callable[[WorkFolders], Any]
) -> None:
    """`test_one_job_starts_no_process` covers preprocessing as well."""
    with pytest.raises(StartedProcessError):
        step(noise_work)
    with replace_process_pools(1):
        assert step(noise_work)


@pytest.mark.usefixtures("no_processes")
def test_two_jobs_preprocess_in_processes(noise_work: WorkFolders) -> None:
    """Only the list of files is made in a thread."""
    with replace_process_pools(2):
        assert sorted(list_files(noise_work)) == list(PATIENTS)
        with pytest.raises(StartedProcessError):
            fingerprint_extractor.multiprocessing.get_context("spawn").Pool(2)


def test_an_error_in_a_thread_is_raised_and_the_pools_are_back() -> None:
    def originals() -> tuple[Any, ...]:
        return utils.Pool, fingerprint_extractor.multiprocessing, default_preprocessor.multiprocessing

    before = originals()
    with (
        pytest.raises(ZeroDivisionError),
        replace_process_pools(1),
        default_preprocessor.multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        pool.starmap_async(divmod, [(1, 0)]).get()
    assert originals() == before


def test_the_modules_use_nothing_else_of_multiprocessing() -> None:
    """Only `get_context` is used, which is all that the replacement has."""
    for module in (fingerprint_extractor, default_preprocessor):
        uses = [line for line in inspect.getsource(module).splitlines() if "multiprocessing." in line]
        assert uses
        assert all('multiprocessing.get_context("spawn").Pool(' in line for line in uses)


def test_nnunet_reads_its_environment_when_it_runs(noise_work: WorkFolders) -> None:
    from nnunetv2 import paths
    from nnunetv2.utilities.default_n_proc_DA import get_allowed_n_proc_DA

    on_card: Any = SimpleNamespace(device=torch.device("cuda"))
    for workers, compile_network in ((1, True), (0, False)):
        set_environment(noise_work, workers, compile_network)
        assert get_allowed_n_proc_DA() == workers
        assert trainer_module.nnUNetTrainer._do_i_compile(on_card) is compile_network
    places = (paths.nnUNet_raw, paths.nnUNet_preprocessed, paths.nnUNet_results)
    wanted = [folder.parent for folder in (noise_work.raw, noise_work.preprocessed, noise_work.results)]
    assert [Path(os.fspath(place)) for place in places] == wanted


def test_the_trainer_makes_its_workers_through_the_replaced_name(
    noise_work: WorkFolders, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of training and validation are made with the arguments that `seed_workers` takes, and the class is
    restored.
    """
    trainer, calls, before = make_trainer(UNET), [], trainer_module.NonDetMultiThreadedAugmenter

    def make(**arguments: Any) -> Iterator[None]:
        calls.append(arguments)
        return iter([None])

    set_environment(noise_work, augmentation_workers=2)
    monkeypatch.setattr("baseline.network.trainer.seed_workers", lambda _: replace_augmenters(make))
    trainer.get_dataloaders()
    assert [call["num_processes"] for call in calls] == [2, 1]
    assert all(call.keys() >= {"data_loader", "num_processes", "pin_memory", "wait_time"} for call in calls)
    assert all(call["transform"] is call["seeds"] is None for call in calls)
    assert trainer_module.NonDetMultiThreadedAugmenter is before
    with pytest.raises(KeyError), replace_augmenters(make):
        raise KeyError
    assert trainer_module.NonDetMultiThreadedAugmenter is before


def test_workers_are_ended_by_a_private_method() -> None:
    assert "timeout" in inspect.signature(MultiThreadedAugmenter._finish).parameters
    assert "._finish(" in inspect.getsource(trainer_module.nnUNetTrainer.on_train_end)


def test_ddp_on_a_cpu(make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nnU-Net passes a GPU, which DDP refuses; without it the same trainer shares its network."""
    monkeypatch.setattr(trainer_module, "DDP", trainer_module.DDP)  # so that it is restored
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="device_ids"):
            make_trainer(UNET)
        allow_ddp_on_cpu()
        network = make_trainer(UNET).network
        assert network(torch.zeros(1, 2, EDGE, EDGE, EDGE))[0].shape[1] == 3
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(("ours", "own"), [(Recipe, set()), (Supervision, {"use_plan"})])
def test_each_override_exists_in_nnunets_trainer(ours: type, own: set[str]) -> None:
    """Overridden methods exist in nnU-Net's trainer; a method that nnU-Net renames would never be called."""
    methods = {name for name, value in vars(ours).items() if inspect.isfunction(value)} - own
    assert methods
    assert [name for name in sorted(methods) if not hasattr(trainer_module.nnUNetTrainer, name)] == []


def test_the_planner_has_what_is_overridden_and_set(noise_work: WorkFolders) -> None:
    set_environment(noise_work, augmentation_workers=1)
    with replace_process_pools(1):
        planner = _make_planner(UNET, "plans")
    base = type(planner).__mro__[1]
    overridden = [name for name, value in vars(type(planner)).items() if inspect.isfunction(value)]
    assert overridden == ["determine_resampling", "determine_segmentation_softmax_export_fn"]
    assert all(hasattr(base, name) for name in overridden)
    for name in ("UNet_base_num_features", "UNet_max_features_3d", "UNet_max_features_2d"):
        assert f"self.{name}" in inspect.getsource(base.__mro__[-2])
