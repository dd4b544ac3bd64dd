"""Augmentation workers as real processes: seeds of their own, reproduced by the same seed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as nnunet_trainer

from baseline.network.seeding import end_workers, seeded_workers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
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
    with seeded_workers(epoch) as loaders:
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
        with seeded_workers(epoch):
            return float(torch.rand(()))

    torch.manual_seed(7)
    plain = float(torch.rand(()))
    assert drawn(0) == plain
    assert len({drawn(0), drawn(5), drawn(10)}) == 3
    assert drawn(5) == drawn(5)


def test_nnunets_own_class_is_restored() -> None:
    before = nnunet_trainer.NonDetMultiThreadedAugmenter
    with pytest.raises(KeyError), seeded_workers(0):
        raise KeyError
    assert nnunet_trainer.NonDetMultiThreadedAugmenter is before


class Broken(Drawing):
    def __next__(self) -> tuple[int, float, float]:
        raise ValueError("no such patient")


def test_a_worker_that_fails_ends_the_training(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the library's thread raises, too
    with seeded_workers(0) as augmenters:
        loader = augmenter(workers=1, loader=Broken())
    with pytest.raises(RuntimeError, match="background workers are no longer alive"):
        next(loader)
    end_workers(augmenters)
    assert "no such patient" in capfd.readouterr().out
