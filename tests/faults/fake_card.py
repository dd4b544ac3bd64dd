"""A card on a machine without one: the CPU computes, and the card can be slow, full, or lost at a chosen image."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

GIB: Final = 2**30
NAME: Final = "Fake T4"
FULL: Final = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.56 GiB."
LOST: Final = "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported"


class FakeCard:
    """The state of the card.

    `on_image` is called with the number, from 1, of each image (five dimensions, no weights, no labels) that is brought to the
    card, and may fail as the card. A lost card fails from then on.
    """

    def __init__(self) -> None:
        self.images, self.lost, self.share = 0, False, 1.0
        self.least_share = 1.0
        self.is_copying = False  # copies are not complete until something waits for them
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.on_image: Callable[[int], None] = lambda _: None

    def copy_later(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Start a copy from the card: until its event the target holds NaN, as memory that is still written to."""
        target.fill_(float("nan"))
        self._copies.append((target, source.clone()))

    def complete_copies(self) -> None:
        """Complete the copies in the order of their start."""
        self.answer()
        for target, values in self._copies:
            target.numpy()[...] = values.numpy()
        self._copies.clear()

    def take(self, tensor: torch.Tensor) -> None:
        """Count an image that is brought to the card, and let the card fail."""
        self.answer()
        if tensor.ndim == 5 and tensor.is_floating_point() and not isinstance(tensor, nn.Parameter):
            self.images += 1
            self.on_image(self.images)

    def limit(self, share: float, _: Any) -> None:
        """Remember the share of the memory that the process may take."""
        self.share, self.least_share = share, min(share, self.least_share)

    def answer(self, *_: Any) -> None:
        """Fail if the card is lost."""
        if self.lost:
            raise RuntimeError(LOST)

    def answer_for(self, device: Any) -> None:
        """Fail if the device is the card and the card is lost."""
        if is_card(device):
            self.answer()

    def full_at(self, *numbers: int) -> None:
        """Have too little memory for these images."""

        def full(number: int) -> None:
            if number in numbers:
                raise torch.OutOfMemoryError(FULL)

        self.on_image = full

    def lost_at(self, image: int) -> None:
        """Be lost at this image and afterwards."""

        def lose(number: int) -> None:
            self.lost = self.lost or number >= image
            self.answer()

        self.on_image = lose

    def slow(self, seconds: float) -> None:
        """Take this long for each image."""
        self.on_image = lambda _: time.sleep(seconds)


class FakeEvent:
    """An event of the fake card, which completes all copies before it."""

    def __init__(self, card: FakeCard) -> None:
        self.synchronize, self._card = card.complete_copies, card

    def record(self, *_: Any) -> None:
        self._card.answer()

    def query(self) -> bool:
        self._card.answer()
        if not self._card.is_copying:
            self.synchronize()
        return not self._card.is_copying


def is_card(value: Any) -> bool:
    """Return whether the value is a CUDA device or its name."""
    return str(value).startswith("cuda") if isinstance(value, str | torch.device) else False


def replace_card(value: Any) -> Any:
    return torch.device("cpu") if is_card(value) else value


@contextmanager
def fake_card() -> Iterator[FakeCard]:
    """Let torch report one card with 16 GiB until the block ends."""
    card, state = FakeCard(), torch.get_rng_state()
    move, empty_like, zeros, load_tensors = torch.Tensor.to, torch.empty_like, torch.zeros, torch.load
    copy, cpu, empty = torch.Tensor.copy_, torch.Tensor.cpu, torch.empty

    def move_tensor(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if any(map(is_card, (*args, *options.values()))):
            card.take(tensor)
        return move(tensor, *map(replace_card, args), **tree_map(replace_card, options))

    def copy_from_card(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if not non_blocking:
            return copy(target, source)
        card.copy_later(target, source)
        return target

    def leave_card(tensor: torch.Tensor) -> torch.Tensor:
        card.answer()
        return cpu(tensor)

    def make_empty(*sizes: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        card.answer_for(options.get("device"))
        return empty(*sizes, **tree_map(replace_card, options))

    def make_empty_like(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
        if is_card(options.get("device")):
            card.take(tensor)
        return empty_like(tensor, **tree_map(replace_card, options))

    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "manual_seed_all": None,
        "get_rng_state": state,
        "set_rng_state": None,
        "get_device_name": NAME,
        "get_device_properties": SimpleNamespace(total_memory=16 * GIB),
        "reset_peak_memory_stats": None,
        "max_memory_reserved": 5 * GIB,
        "max_memory_allocated": 5 * GIB,
        "memory_reserved": 0,
        "memory_allocated": 0,
        "memory_stats": {},
        "mem_get_info": (16 * GIB, 16 * GIB),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, answer in answers.items():
            patch.setattr(torch.cuda, name, functools.partial(lambda result, *_, **__: result, answer))
        patch.setattr(torch.cuda, "synchronize", card.answer)
        patch.setattr(torch.cuda, "empty_cache", card.answer)
        patch.setattr(torch.cuda, "set_per_process_memory_fraction", card.limit)
        patch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda *_: card.share)
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor)
        patch.setattr(torch.Tensor, "to", move_tensor)
        patch.setattr(torch.Tensor, "copy_", copy_from_card)
        patch.setattr(torch.Tensor, "cpu", leave_card)
        patch.setattr(torch, "empty", make_empty)
        patch.setattr(torch.cuda, "Event", lambda: FakeEvent(card))
        patch.setattr(torch.cuda, "current_stream", lambda *_: None)
        patch.setattr(torch, "empty_like", make_empty_like)
        patch.setattr(torch, "zeros", lambda *args, **options: zeros(*args, **tree_map(replace_card, options)))
        patch.setattr(torch, "load", lambda path, **options: load_tensors(path, **tree_map(replace_card, options)))
        yield card


def run_process_of_two(rank: int, *arguments: Any) -> None:
    """Run a process of a shared training whose second card is full; the first waits for it."""
    from baseline.network import nnunet

    def train(*_: Any) -> None:
        if rank == 1:
            raise torch.OutOfMemoryError(FULL)
        torch.distributed.barrier()

    nnunet.train_network = train  # type: ignore[assignment]
    nnunet.allow_ddp_on_cpu = lambda: None  # would import nnU-Net
    nnunet._run_ddp_process(rank, *arguments)
