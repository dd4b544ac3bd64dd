"""Tests of the trainer: loss, first weights, the user's own class, absent PETs and seeded augmentation workers."""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as nnunet_trainer
from safetensors.torch import load_file

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from algorithm.network.networks import build_network, iterate_tensors
from algorithm.network.package import load_package
from algorithm.network.preprocessing import normalise
from baseline.network.checkpoint import load_starting_weights
from baseline.network.nnunet import check_trainer
from baseline.network.patches import end_workers
from baseline.network.trainer import compute_absent_pet, seed_workers
from baseline.work import WorkFolders
from contract.archives import pack
from contract.errors import HecktorError, OutputError
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.baseline.network.conftest import UNET, MakeTrainer
from tests.baseline.network.test_nnunet import PLAN

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

INTENSITIES_KEY = "foreground_intensity_properties_per_channel"
INTENSITIES = {
    "0": {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0},
    "1": {"mean": 4.0, "std": 2.0, "percentile_00_5": 0.5, "percentile_99_5": 20.0},
}


def test_a_checkpoint_on_a_full_disk(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's error does not mention the disk. If the disk has space left, the error is a bug and is raised unchanged."""

    def fail(*_: object) -> None:
        raise RuntimeError("unexpected pos 832 vs 726")

    trainer = make_trainer(UNET)
    monkeypatch.setattr("nnunetv2.training.nnUNetTrainer.nnUNetTrainer.nnUNetTrainer.save_checkpoint", fail)
    with pytest.raises(RuntimeError, match="unexpected pos"):
        trainer.save_checkpoint(str(tmp_path / "latest.pth"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OutputError, match=r"^latest\.pth: no space left on the disk"):
        trainer.save_checkpoint(str(tmp_path / "latest.pth"))
    assert list(tmp_path.glob("*.pth")) == []


def test_training_starts_from_a_checkpoint(
    make_trainer: MakeTrainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same tensors are copied as by nnU-Net's own function, and the output layers start at random. No tensor fits a
    SegResNet.
    """
    from nnunetv2.run.load_pretrained_weights import load_pretrained_weights

    source, path = make_trainer(UNET), tmp_path / "checkpoint.pth"
    source.save_checkpoint(str(path))
    ours, reference = make_trainer(UNET.with_options(starting_weights=str(path)), fold=1), make_trainer(UNET, fold=1)
    printed = capsys.readouterr().out
    assert re.search(
        r"fold 1 \(unet\): starting weights of checkpoint\.pth: tensors taken: \d+ of encoder, \d+ of decoder; random at "
        r"the start: heads; not taken: \d+ tensors, such as decoder\.seg_layers",
        printed,
    )
    load_pretrained_weights(reference.network, str(path))
    own = reference.network.state_dict()
    for name, tensor in ours.network.state_dict().items():
        if ".seg_layers." not in name:
            assert torch.equal(tensor, own[name]), name
        elif name.endswith("weight"):
            assert not torch.equal(tensor, source.network.state_dict()[name]), name
    segresnet = make_trainer(PLAN, "segresnet").network
    with pytest.raises(HecktorError, match=r"^--starting-weights: checkpoint\.pth: no .*"):
        load_starting_weights(segresnet, PLAN.with_options(starting_weights=str(path)), 0, "conv_final")


def test_a_checkpoint_that_runs_code_is_refused(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    torch.save({"network_weights": {}, "more": Path}, tmp_path / "code.pth")
    plan = UNET.with_options(starting_weights=str(tmp_path / "code.pth"))
    with pytest.raises(HecktorError, match="can run code"):
        load_starting_weights(make_trainer(UNET).network, plan, 0, "seg_layers")


def test_training_starts_from_a_package(tmp_path: Path) -> None:
    """Folds 0 and 1 start from the two networks of the shipped package, fold 2 from the first again; the package may be
    a folder or an archive.
    """
    package, archive = load_package(DEFAULT_PACKAGE), tmp_path / "model.tar.gz"
    pack(DEFAULT_PACKAGE, archive)
    for fold, path in ((0, DEFAULT_PACKAGE), (1, archive), (2, archive)):
        network = build_network(package)
        load_starting_weights(network, UNET.with_options(starting_weights=str(path)), fold, "seg_layers")
        own, weights = dict(iterate_tensors(network)), load_file(str(package.fold_files[fold % 2]))
        same = {name for name, tensor in weights.items() if torch.equal(own[name], tensor.float())}
        assert {name for name in weights if "seg_layers" not in name} <= same


CUSTOM_TRAINERS = """
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.training.nnUNetTrainer.variants.loss.nnUNetTrainerDiceLoss import nnUNetTrainerDiceCELoss_noSmooth
from baseline.network.trainer import HecktorTrainer
import torch

class Mine(nnUNetTrainerDiceCELoss_noSmooth):
    def configure_optimizers(self):
        optimiser, schedule = super().configure_optimizers()
        optimiser.param_groups[0]["weight_decay"] = 0.5
        return optimiser, schedule

class Ours(HecktorTrainer):
    def configure_optimizers(self):
        return torch.optim.Adam(self.network.parameters()), None

Other = dict
"""


@pytest.fixture
def _custom_trainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_trainers.py").write_text(CUSTOM_TRAINERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_trainers", None)


@pytest.mark.usefixtures("_custom_trainers")
def test_the_users_trainer_wins_over_the_plans_recipe(make_trainer: MakeTrainer) -> None:
    """The user's loss has no smoothing (1e-5 otherwise), and the optimiser is the plan's AdamW with another weight
    decay. Epochs, results folder and checkpoints are ours. A subclass of our trainer works as well.
    """
    assert make_trainer(UNET).loss.loss.dc.smooth == 1e-5
    trainer = make_trainer(UNET.with_options(trainer="my_trainers:Mine"))
    assert trainer.loss.loss.dc.smooth == 0
    assert isinstance(trainer.optimizer, torch.optim.AdamW)
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 0.5
    assert (trainer.num_epochs, trainer.save_every) == (UNET.epochs, 5)
    assert Path(trainer.output_folder).parts[-2] == "HecktorTrainer__hecktorPlans__3d_fullres"
    ours = make_trainer(UNET.with_options(trainer="my_trainers:Ours"))
    assert type(ours.optimizer) is torch.optim.Adam


@pytest.mark.usefixtures("_custom_trainers")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Mine", "nowhere:Mine (No module named 'nowhere')"),
        ("my_trainers:MINE", "my_trainers:MINE (module 'my_trainers' has no attribute 'MINE')"),
        ("nnUNetTrainer", "nnUNetTrainer, which is not a trainer"),
        ("my_trainers:Other", "my_trainers:Other, which is not a trainer"),
    ],
)
def test_invalid_trainers(noise_work: WorkFolders, name: str, message: str) -> None:
    expected = re.escape(f"--trainer: found {message}")
    with pytest.raises(HecktorError, match=rf"^{expected}.*expected a variant of nnU-Net's by name, such as nnUNetTr"):
        check_trainer(PLAN.with_options(trainer=name))


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({"trainer": "nnUNetTrainerAdam3en4"}, 3e-4),
        ({"trainer": "nnUNetTrainerAdam3en4", "learning_rate": 0.02}, 0.02),
        ({"trainer": "nnUNetTrainerAdam"}, 1e-3),
    ],
)
def test_a_trainers_own_learning_rate_wins_unless_the_plan_states_a_rate(
    make_trainer: MakeTrainer, options: dict[str, Any], rate: float
) -> None:
    """`short` has the learning rate 0.001. The variants' AdamW has `amsgrad`."""
    optimiser = make_trainer(UNET.with_options(**options)).optimizer
    assert type(optimiser) is torch.optim.AdamW
    assert optimiser.param_groups[0]["lr"] == rate
    assert optimiser.param_groups[0]["amsgrad"]


def test_pet_dropout_with_a_variant_that_has_its_own_augmentation(noise_work: WorkFolders) -> None:
    with pytest.raises(HecktorError, match=r"^--pet-dropout: found with nnUNetTrainerNoDA, which replaces the augment"):
        check_trainer(UNET.with_options(trainer="nnUNetTrainerNoDA", pet_dropout=0.1))


@pytest.mark.parametrize(("scheme", "value"), [("CTNormalization", -1.75), ("ZScoreNormalization", 0.0)])
def test_an_absent_pet_is_what_inference_makes_of_it(scheme: str, value: float) -> None:
    """SUV 0 is clipped to 0.5, and (0.5 - 4) / 2 = -1.75; a z-score of zeros is 0."""
    configuration = {"normalization_schemes": ["CTNormalization", scheme]}
    assert compute_absent_pet(configuration, INTENSITIES) == value
    package: Any = SimpleNamespace(configuration=configuration, intensities=INTENSITIES, channel_sources=(0, 1))
    nothing = np.zeros((2, 2, 2), dtype=np.float32)
    assert (normalise((nothing, nothing), package)[1] == value).all()


def test_the_trainer_draws_patches_without_pet(make_trainer: MakeTrainer) -> None:
    """The dropout comes last, so that no other transform changes the channel."""
    for probability, absent in ((1.0, True), (0.0, False)):
        trainer = make_trainer(UNET.with_options(pet_dropout=probability))
        plans = trainer.plans_manager.plans
        nothing = compute_absent_pet(plans["configurations"]["3d_fullres"], plans[INTENSITIES_KEY])
        data = next(trainer.get_dataloaders()[0])["data"]
        assert bool((data[:, 1] == np.float32(nothing)).all()) is absent
        assert not bool((data[:, 0] == 0).all())


def test_a_fixed_scale_of_the_pet_in_training_and_inference(noise_work: WorkFolders) -> None:
    """For a foreground of mean 0, spread 50 and percentiles of -500 and 500 the PET is clipped to the percentiles and
    divided by 50. The rest of the image does not matter.
    """
    from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    plans = read_json(noise_work.plans)
    statistics = {"mean": 0.0, "std": 50.0, "percentile_00_5": -500.0, "percentile_99_5": 500.0}
    plans[INTENSITIES_KEY] = {"0": statistics, "1": statistics}
    configuration = plans["configurations"]["3d_fullres"]
    assert configuration["normalization_schemes"] == ["CTNormalization", "CTNormalization"]
    images = [noise_work.raw / "imagesTr" / f"A-1_000{channel}.nii.gz" for channel in (0, 1)]
    manager = PlansManager(plans)
    own = manager.get_configuration("3d_fullres"), read_json(noise_work.raw / "dataset.json")
    data, *_ = DefaultPreprocessor(verbose=False).run_case([str(path) for path in images], None, manager, *own)
    ct, pet = (read_volume(path, "float32").array for path in images)
    np.testing.assert_allclose(data[1], pet.clip(-500, 500) / 50, atol=1e-5)
    package: Any = SimpleNamespace(
        configuration=configuration, intensities=plans[INTENSITIES_KEY], channel_sources=(0, 1)
    )
    np.testing.assert_allclose(normalise((ct, pet), package), data, atol=1e-5)
    half = normalise((ct[:8], pet[:8]), package)  # another field of view
    np.testing.assert_allclose(half[1], data[1, :8], atol=1e-5)


WORKERS = 3


class DrawingLoader:
    """Loader whose batches hold the worker's number and the next numbers of both global generators."""

    def __init__(self) -> None:
        self.number = -1

    def set_thread_id(self, number: int) -> None:
        self.number = number

    def __next__(self) -> tuple[int, float, float]:
        return self.number, float(torch.rand(())), float(np.random.rand())  # noqa: NPY002


def make_augmenter(workers: int = WORKERS, loader: Any = None) -> Any:
    """Make an augmenter through the name in nnU-Net's module, as nnU-Net's trainer does."""
    return nnunet_trainer.NonDetMultiThreadedAugmenter(
        data_loader=loader or DrawingLoader(),
        transform=None,
        num_processes=workers,
        num_cached=6,
        seeds=None,
        pin_memory=False,
        wait_time=0.002,
    )


def draw_batches(seed: int, epoch: int, batches: int = 2 * WORKERS) -> list[list[tuple[int, float, float]]]:
    """Draw the batches of training and validation in one process."""
    torch.manual_seed(seed)
    with seed_workers(epoch) as loaders:
        make_augmenter(), make_augmenter()
    try:
        return [list(itertools.islice(loader, batches)) for loader in loaders]
    finally:
        end_workers(loaders)


@pytest.fixture(autouse=True)
def restore_random_states() -> Iterator[None]:
    state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    yield
    torch.set_rng_state(state)
    np.random.set_state(numpy_state)  # noqa: NPY002


def test_the_seed_reproduces_every_batch_and_its_place() -> None:
    """Workers take turns regardless of their speed, and no two workers draw the same.

    Three workers draw two batches in training and in validation, for three pairs of seed and epoch: 3 x 12 numbers of
    each generator, all different.
    """
    training, validation = draw_batches(seed=7, epoch=0)
    assert [number for number, _, _ in training] == [0, 1, 2, 0, 1, 2]
    assert draw_batches(seed=7, epoch=0) == [training, validation]
    loaders = [training, validation, *draw_batches(7, 20), *draw_batches(8, 0)]
    for place in (1, 2):
        assert len({batch[place] for batches in loaders for batch in batches}) == 3 * 2 * 2 * WORKERS


def test_a_training_without_workers_goes_on_with_other_numbers() -> None:
    """On a CPU the process itself draws the batches: at first from its seed, after a resumption from other numbers."""

    def draw_number(epoch: int) -> float:
        torch.manual_seed(7)
        with seed_workers(epoch):
            return float(torch.rand(()))

    torch.manual_seed(7)
    plain = float(torch.rand(()))
    assert draw_number(0) == plain
    assert len({draw_number(0), draw_number(5), draw_number(10)}) == 3
    assert draw_number(5) == draw_number(5)


class BrokenLoader(DrawingLoader):
    def __next__(self) -> tuple[int, float, float]:
        raise ValueError("no such patient")


def test_a_worker_that_fails_ends_the_training(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the library's thread raises, too
    with seed_workers(0) as augmenters:
        loader = make_augmenter(workers=1, loader=BrokenLoader())
    with pytest.raises(RuntimeError, match="background workers are no longer alive"):
        next(loader)
    end_workers(augmenters)
    assert "no such patient" in capfd.readouterr().out
