"""The sum of the passes of a case, on the device that makes the passes, and its copies in RAM."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from algorithm.masks.segmentation import log_probabilities

_Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Progress:
    """Sum (label, z, y, x) over the passes so far, in RAM.

    Attributes:
        total: Sum of logits, or of probabilities if the package averages probabilities.
        done: Number of passes in the sum.
        planned: Number of passes that were planned.
        backend: Devices that made the passes.
        of_probabilities: Whether `total` is a sum of probabilities.
    """

    total: _Float
    done: int
    planned: int
    backend: str
    of_probabilities: bool = False

    @property
    def logits(self) -> _Float:
        """Return the mean of the logits, or the logarithm of the mean probabilities.

        Networks trained with cross-entropy return logarithms of probabilities up to a constant per voxel, so networks
        of different architectures share one unit. The mean of logits is the geometric mean of the probabilities, which
        gives confident networks more weight. Both ways take a single sum in memory.
        """
        mean = self.total if self.done == 1 else self.total / np.float32(self.done)
        return log_probabilities(mean) if self.of_probabilities else mean


@dataclass(frozen=True)
class SumCopy:
    """A copy of the sum in RAM, and the number of its passes."""

    total: torch.Tensor
    done: int


class PassSum:
    """The sum (label, z, y, x) over the passes so far, and the copy in RAM that was completed last.

    A pass is added in place. A sum on a card is copied while the card goes on with the next pass: the copy and the next
    addition are in one stream, so the copy holds whole passes. Each copy has its own memory and is read only after
    its event, so an earlier copy stays valid as long as it is needed.

    Attributes:
        done: Number of passes in the sum.
        on_card: Whether the sum is on a card.
    """

    def __init__(self) -> None:
        self.done = 0
        self.on_card = False
        self._total = torch.zeros(())
        self._copy: SumCopy | None = None
        self._in_flight: tuple[SumCopy, torch.cuda.Event] | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether the sum holds passes that no complete copy holds."""
        return self.done > (0 if self._copy is None else self._copy.done)

    @torch.inference_mode()
    def add(self, values: torch.Tensor, *, on_card: bool) -> None:
        """Add the values of a pass (label, z, y, x) in place; the values of the first pass become the sum."""
        if self.done == 0:
            self._total, self.on_card = values, on_card
        else:
            self._note_complete_copy()
            self._total += values.to(self._total.device)
        self.done += 1

    @torch.inference_mode()
    def start_copy(self) -> None:
        """Start a copy to RAM, unless one holds all passes; it is complete at once if the sum is in RAM.

        Raises:
            MemoryError: There is no memory for the copy.
            RuntimeError: There is no memory for the copy, or the card failed.
        """
        self.finish_copy()
        if not self.is_behind:
            return
        if not self.on_card:
            self._copy = SumCopy(self._total.clone(), self.done)
            return
        pinned = torch.empty(self._total.shape, dtype=self._total.dtype, pin_memory=True)
        pinned.copy_(self._total, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(self._total.device))
        self._in_flight = SumCopy(pinned, self.done), copied

    def finish_copy(self) -> None:
        """Wait until the copy in flight is complete, if there is one. Raises `RuntimeError` if the card failed."""
        if self._in_flight is not None:
            copy, copied = self._in_flight
            copied.synchronize()
            self._copy, self._in_flight = copy, None

    def find_copy(self) -> SumCopy | None:
        """Return the copy that was completed last, None before the first one; a card is not waited for.

        A sum in RAM is copied now, so the copy holds all passes.
        """
        if not self.on_card and self.is_behind:
            self.start_copy()
        with suppress(RuntimeError):  # a lost card completes no copy
            self._note_complete_copy()
        return self._copy

    def _note_complete_copy(self) -> None:
        """Keep the copy in flight if it is complete, because nothing can be asked of a card that is lost later."""
        if self._in_flight is not None and self._in_flight[1].query():
            self.finish_copy()

    def move_to_ram(self) -> None:
        """Move the sum away from a card that failed; of a lost card only the copy that was completed last is left.

        Raises:
            MemoryError: There is no memory for the sum.
            RuntimeError: There is no memory for the sum.
        """
        if not self.on_card:
            return
        try:
            self._total = self._total.cpu()
        except RuntimeError:
            copy = self.find_copy()
            self._total, self.done = (torch.zeros(()), 0) if copy is None else (copy.total.clone(), copy.done)
        self._in_flight = None
        self.on_card = False
