"""Sums of passes on a card, their copies in RAM, and what remains of them when the card fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.deadline import Deadline
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, PassSum, list_mirrored_passes
from tests.algorithm.network.conftest import CPU, predict_logits
from tests.conftest import write_tiny_package
from tests.faults.fake_card import FakeCard, fake_card

CARD = torch.device("cuda", 0)
# One tile for each pass.
DATA = np.random.default_rng(3).normal(0, 1, (2, 16, 16, 16)).astype(np.float32)
PASSES = list_mirrored_passes(5, (0, 2))


@pytest.fixture
def card() -> Iterator[FakeCard]:
    with fake_card() as card:
        yield card


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    """Load a package of five folds, which make 20 passes with two mirror axes."""
    return load_package(write_tiny_package(tmp_path_factory.mktemp("package") / "five", ("3d_fullres",) * 5))


@pytest.fixture
def make_passes(package: ModelPackage) -> Callable[..., Passes]:
    def make(count: int = 12, device: torch.device = CARD) -> Passes:
        return Passes(
            NetworkImage.from_channels(DATA), PASSES[:count], Networks(package), Deadline(600), device
        )  # fmt: skip

    return make


def fill(value: float) -> torch.Tensor:
    return torch.full((3, 2, 2, 2), value)


@pytest.mark.parametrize("on_card", [False, True])
def test_a_copy_keeps_its_passes_while_the_sum_grows(card: FakeCard, on_card: bool) -> None:
    passes = PassSum()
    copies = []
    for value in (1.0, 2.0, 4.0):
        passes.add(fill(value), on_card=on_card)
        passes.start_copy()
        passes.finish_copy()
        copies.append(passes.find_copy())
    values = [(copy.done, copy.total.unique().tolist()) for copy in copies if copy is not None]
    assert values == [(1, [1.0]), (2, [3.0]), (3, [7.0])]


def test_a_copy_in_flight_is_not_read(card: FakeCard) -> None:
    """The copy's memory holds NaN until its event, and a later pass does not change the copy."""
    passes = PassSum()
    passes.add(fill(1.0), on_card=True)
    passes.start_copy()
    passes.finish_copy()
    card.is_copying = True
    passes.add(fill(2.0), on_card=True)
    passes.start_copy()
    passes.add(fill(4.0), on_card=True)
    early = passes.find_copy()
    card.is_copying = False
    late = passes.find_copy()
    assert early is not None
    assert late is not None
    assert (early.done, early.total.unique().tolist()) == (1, [1.0])
    assert (late.done, late.total.unique().tolist()) == (2, [3.0])
    assert passes.is_behind


def test_a_card_copies_after_the_first_pass_every_fifth_and_the_last(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    real = PassSum.start_copy
    monkeypatch.setattr(PassSum, "start_copy", lambda self: (counts.append(self.done), real(self))[1])
    progress = make_passes().make_all()
    assert (progress.done, counts) == (12, [1, 5, 10, 12])
    np.testing.assert_array_equal(progress.logits, predict_logits(package, DATA, PASSES[:12]))


def test_the_last_pass_is_waited_for_if_its_copy_is_in_flight(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard
) -> None:
    """Pass 10 is the last one and a multiple of five; during the passes nothing waits for its copy."""
    card.is_copying = True
    progress = make_passes(10).make_all()
    assert progress.done == 10
    np.testing.assert_array_equal(progress.logits, predict_logits(package, DATA, PASSES[:10]))


@pytest.mark.parametrize(("is_copying", "done"), [(False, 5), (True, 1)])
def test_the_last_complete_copy_answers_when_the_deadline_stops_a_card(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard, is_copying: bool, done: int
) -> None:
    """Stop in the ninth pass; if the copy after the fifth is still in flight, the copy of the first pass answers."""
    passes = make_passes()
    first = passes.make_first()
    card.is_copying = is_copying
    card.on_image = lambda number: passes.deadline.stop() if number == 9 else None
    progress = passes.make_all()
    assert (first.done, progress.done, card.images) == (1, done, 9)
    np.testing.assert_array_equal(progress.logits, predict_logits(package, DATA, PASSES[:done]))


def test_all_passes_answer_when_the_deadline_stops_a_cpu(package: ModelPackage) -> None:
    """The sums are in RAM, so no pass is lost."""
    deadline = Deadline(600)
    passes = Passes(NetworkImage.from_channels(DATA), PASSES, Networks(package), deadline, CPU)
    calls = itertools.count(1)
    check = deadline.check
    deadline.check = lambda: (deadline.stop() if next(calls) == 9 else None, check())[1]  # type: ignore[method-assign]
    assert passes.make_all().done == 8


def test_a_full_card_moves_its_sum_to_ram(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard
) -> None:
    """Memory runs out in the ninth pass: the eight passes before it are kept."""
    card.full_at(9)
    progress = make_passes().make_all()
    assert (progress.done, card.images) == (12, 13)
    np.testing.assert_array_equal(progress.logits, predict_logits(package, DATA, PASSES[:12]))


def test_passes_that_a_lost_card_took_with_it_are_made_again(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard
) -> None:
    """Pass 9 loses the card. Five passes are in RAM; the CPU makes the ninth, then those since the fifth."""
    card.lost_at(9)
    passes = make_passes()
    progress = passes.make_all()
    assert progress.done == 12
    assert [number for number, _ in passes._added] == [1, 2, 3, 4, 5, 9, 6, 7, 8, 10, 11, 12]
    np.testing.assert_allclose(progress.logits, predict_logits(package, DATA, PASSES[:12]), atol=1e-5)


@pytest.mark.parametrize("call", [1, 2, 4])
def test_a_card_that_is_lost_in_a_copy(
    make_passes: Callable[..., Passes],
    package: ModelPackage,
    card: FakeCard,
    monkeypatch: pytest.MonkeyPatch,
    call: int,
) -> None:
    """The card is lost in the first copy, a later one, and the last: the answer still holds all passes."""
    calls = itertools.count(1)
    real = PassSum.start_copy

    def start_copy(self: PassSum) -> None:
        card.lost = card.lost or next(calls) == call
        real(self)

    monkeypatch.setattr(PassSum, "start_copy", start_copy)
    progress = make_passes().make_all()
    assert progress.done == 12
    np.testing.assert_allclose(progress.logits, predict_logits(package, DATA, PASSES[:12]), atol=1e-5)


def test_without_ram_for_any_copy_the_cpu_makes_the_passes(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither locked nor other memory suffices for the sum of the first pass, which is lost with its place on the card."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes")

    passes = make_passes()
    with monkeypatch.context() as full:
        full.setattr(PassSum, "start_copy", fail)
        full.setattr(torch.Tensor, "cpu", fail)
        passes._make_next()
    assert (card.images, passes._sum.done, len(passes._waiting)) == (1, 0, 12)
    progress = passes.make_all()
    assert (progress.done, card.images) == (12, 1)
    np.testing.assert_allclose(progress.logits, predict_logits(package, DATA, PASSES[:12]), atol=1e-5)


def test_a_copy_without_memory_moves_the_sum_to_ram(
    make_passes: Callable[..., Passes], package: ModelPackage, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If locked memory is scarce, the card continues with the passes."""

    empty = torch.empty

    def fail_if_pinned(*sizes: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return empty(*sizes, **options)

    monkeypatch.setattr(torch, "empty", fail_if_pinned)
    passes = make_passes()
    progress = passes.make_all()
    assert (progress.done, card.images, passes._sum.on_card) == (12, 12, False)
    np.testing.assert_array_equal(progress.logits, predict_logits(package, DATA, PASSES[:12]))
