"""Patches whose PET is absent, and augmentation workers as real processes with seeds of their own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as nnunet_trainer

from algorithm.network.preprocessing import normalise
from baseline.network.batches import AbsentPet, add_pet_dropout, compute_absent_pet, seed_workers
from baseline.network.patches import end_workers
from baseline.work import WorkFolders
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.baseline.network.conftest import UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
INTENSITIES_KEY = "foreground_intensity_properties_per_channel"
INTENSITIES = {
    "0": {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0},
    "1": {"mean": 4.0, "std": 2.0, "percentile_00_5": 0.5, "percentile_99_5": 20.0},
}


@pytest.mark.parametrize(("scheme", "value"), [("CTNormalization", -1.75), ("ZScoreNormalization", 0.0)])
def test_an_absent_pet_is_what_inference_makes_of_it(scheme: str, value: float) -> None:
    """SUV 0 is clipped to 0.5, and (0.5 - 4) / 2 = -1.75; a z-score of zeros is 0."""
    configuration = {"normalization_schemes": ["CTNormalization", scheme]}
    assert compute_absent_pet(configuration, INTENSITIES) == value
    package: Any = SimpleNamespace(configuration=configuration, intensities=INTENSITIES, channel_sources=(0, 1))
    nothing = np.zeros((2, 2, 2), dtype=np.float32)
    assert (normalise((nothing, nothing), package)[1] == value).all()


def test_the_dropout_comes_last() -> None:
    """Nothing else can change the channel after it."""
    first = ComposeTransforms([])
    *before, last = add_pet_dropout(ComposeTransforms([first]), 0.2, 0.0).transforms
    assert before == [first]
    assert last.apply_probability == 0.2
    assert isinstance(last.transform, AbsentPet)


def test_the_trainer_draws_patches_without_pet(make_trainer: MakeTrainer) -> None:
    for probability, absent in ((1.0, True), (0.0, False)):
        trainer = make_trainer(UNET.with_options(pet_dropout=probability))
        plans = trainer.plans_manager.plans
        nothing = compute_absent_pet(plans["configurations"]["3d_fullres"], plans[INTENSITIES_KEY])
        data = next(trainer.get_dataloaders()[0])["data"]
        assert bool((data[:, 1] == np.float32(nothing)).all()) is absent
        assert not bool((data[:, 0] == 0).all())


def test_a_fixed_scale_of_the_pet_in_training_and_inference(planned: WorkFolders) -> None:
    """For a foreground of mean 0, spread 50 and percentiles of 500 on either side the PET is clipped to those and
    divided by 50, whatever else is in the image.
    """
    from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    plans = read_json(planned.plans)
    statistics = {"mean": 0.0, "std": 50.0, "percentile_00_5": -500.0, "percentile_99_5": 500.0}
    plans["foreground_intensity_properties_per_channel"] = {"0": statistics, "1": statistics}
    configuration = plans["configurations"]["3d_fullres"]
    assert configuration["normalization_schemes"] == ["CTNormalization", "CTNormalization"]
    images = [planned.raw / "imagesTr" / f"A-1_000{channel}.nii.gz" for channel in (0, 1)]
    manager = PlansManager(plans)
    own = manager.get_configuration("3d_fullres"), read_json(planned.raw / "dataset.json")
    data, *_ = DefaultPreprocessor(verbose=False).run_case([str(one) for one in images], None, manager, *own)
    ct, pet = (read_volume(one, "float32").array for one in images)
    np.testing.assert_allclose(data[1], pet.clip(-500, 500) / 50, atol=1e-5)
    package: Any = SimpleNamespace(
        configuration=configuration,
        intensities=plans["foreground_intensity_properties_per_channel"],
        channel_sources=(0, 1),
    )
    np.testing.assert_allclose(normalise((ct, pet), package), data, atol=1e-5)
    half = normalise((ct[:8], pet[:8]), package)  # another field of view
    np.testing.assert_allclose(half[1], data[1, :8], atol=1e-5)


WORKERS = 3


class Drawing:
    """A loader whose batches are the worker's number with the next numbers of both global generators."""

    def __init__(self) -> None:
        self.number = -1

    def set_thread_id(self, number: int) -> None:
        self.number = number

    def __next__(self) -> tuple[int, float, float]:
        return self.number, float(torch.rand(())), float(np.random.rand())  # noqa: NPY002


def augmenter(workers: int = WORKERS, loader: Any = None) -> Any:
    """Made as nnU-Net's trainer makes it, through the name in its module."""
    return nnunet_trainer.NonDetMultiThreadedAugmenter(
        data_loader=loader or Drawing(),
        transform=None,
        num_processes=workers,
        num_cached=6,
        seeds=None,
        pin_memory=False,
        wait_time=0.002,
    )


def draws(seed: int, epoch: int, batches: int = 2 * WORKERS) -> list[list[tuple[int, float, float]]]:
    """Batches of the loaders of training and validation of one process."""
    torch.manual_seed(seed)
    with seed_workers(epoch) as loaders:
        augmenter(), augmenter()
    try:
        return [list(itertools.islice(loader, batches)) for loader in loaders]
    finally:
        end_workers(loaders)


@pytest.fixture(autouse=True)
def states() -> Iterator[None]:
    state, numpys = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    yield
    torch.set_rng_state(state)
    np.random.set_state(numpys)  # noqa: NPY002


def test_the_seed_reproduces_every_batch_and_its_place() -> None:
    """The workers take turns, whatever their speed."""
    training, validation = draws(seed=7, epoch=0)
    assert [number for number, _, _ in training] == [0, 1, 2, 0, 1, 2]
    assert draws(seed=7, epoch=0) == [training, validation]


def test_no_two_workers_draw_the_same() -> None:
    """Two batches of three workers in training and in validation, from two seeds and two epochs: 2 x 12 + 2 x 12
    numbers of each generator, none twice.
    """
    batches = [
        batch for seed, epoch in ((7, 0), (7, 20), (8, 0), (8, 20)) for one in draws(seed, epoch) for batch in one
    ]
    for place in (1, 2):
        assert len({batch[place] for batch in batches}) == len(batches) == 4 * 2 * 2 * WORKERS


def test_a_training_without_workers_goes_on_with_other_numbers() -> None:
    """On a CPU the process itself draws the batches: from the beginning as its seed says, after a resumption anew."""

    def drawn(epoch: int) -> float:
        torch.manual_seed(7)
        with seed_workers(epoch):
            return float(torch.rand(()))

    torch.manual_seed(7)
    plain = float(torch.rand(()))
    assert drawn(0) == plain
    assert len({drawn(0), drawn(5), drawn(10)}) == 3
    assert drawn(5) == drawn(5)


class Broken(Drawing):
    def __next__(self) -> tuple[int, float, float]:
        raise ValueError("no such patient")


def test_a_worker_that_fails_ends_the_training(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the library's thread raises, too
    with seed_workers(0) as augmenters:
        loader = augmenter(workers=1, loader=Broken())
    with pytest.raises(RuntimeError, match="background workers are no longer alive"):
        next(loader)
    end_workers(augmenters)
    assert "no such patient" in capfd.readouterr().out
