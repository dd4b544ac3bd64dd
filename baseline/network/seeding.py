"""Seeds of the augmentation workers, so that `--seed` reproduces a training and no two workers draw the same sequence.

nnU-Net's workers inherit one torch state from the process that starts them, take NumPy's seed from the operating
system, and share one queue, so that the order of the batches depends on their speed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty
from typing import Any, Final

import numpy as np
import torch
from batchgenerators.dataloading import multi_threaded_augmenter
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter, results_loop

from contract.errors import HecktorError

# In the library's own error about a worker that has ended, whose exit status says more.
_WORKER_ENDED: Final = "no longer alive"
# Time for the batches in progress before the worker processes are ended.
_GRACE_S: Final = 2
_EXPECTED_ROOM: Final = (
    "enough memory and shared memory (/dev/shm; `--shm-size` of a container) for all of them: a smaller --jobs starts "
    "fewer, and the same command continues from the last checkpoint"
)


def seed_here(seed: int) -> None:
    """Seed the global generators of this process, from which nnU-Net's loader and transforms draw."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - nnU-Net's loaders draw from the global state


class SeededLoader:
    """A loader of batches that seeds each worker process with one of `seeds` when the worker begins."""

    def __init__(self, loader: Any, seeds: Sequence[int]) -> None:
        self.loader, self.seeds = loader, seeds

    def set_thread_id(self, number: int) -> None:
        """Called by batchgenerators in each worker, first of all."""
        torch.set_num_threads(1)
        seed_here(self.seeds[number])
        self.loader.set_thread_id(number)

    def __next__(self) -> Any:
        return next(self.loader)


class OrderedAugmenter(MultiThreadedAugmenter):  # type: ignore[misc]
    """Worker processes whose batches come in turn. Ctrl-C passes through without a log line of the library's own."""

    _failure: Exception | None = None

    def _start(self) -> None:
        before = multi_threaded_augmenter.results_loop
        multi_threaded_augmenter.results_loop = self._collect
        try:
            super()._start()
        finally:
            multi_threaded_augmenter.results_loop = before

    def _collect(self, *arguments: Any) -> None:
        """The library's thread, whose failure ends the training by `__next__` and not in a trace of its own."""
        try:
            results_loop(*arguments)
        except (RuntimeError, MemoryError, OSError, EOFError) as problem:
            self._failure = problem
            self.abort_event.set()

    def __next__(self) -> Any:
        if not self.was_initialized:
            self._start()
        while not self.abort_event.is_set():
            try:
                return self.pin_memory_queue.get(timeout=self.wait_time)
            except Empty:
                continue
        statuses = [process.exitcode for process in self._processes]
        self._finish()
        raise self._problem(statuses)

    def close(self) -> None:
        """End the worker processes, if they still run. The library leaves them behind if a training fails."""
        self._finish(timeout=_GRACE_S)

    def _problem(self, statuses: Sequence[int | None]) -> Exception:
        """The reason why there are no more batches, from the exit statuses of the workers, None for a running one."""
        for number, status in enumerate(statuses, start=1):
            if status:
                by_signal = f"ended by signal {-status} ({signal.strsignal(-status)})"
                found = by_signal if status < 0 else f"ended with status {status}"
                return HecktorError(f"augmentation process {number} of {len(statuses)}", found, _EXPECTED_ROOM)
        if self._failure is not None and _WORKER_ENDED not in str(self._failure):
            return self._failure
        return HecktorError("augmentation processes", "one failed, with its error above", "batches from all of them")


@contextmanager
def seeded_workers(epoch: int) -> Iterator[list[OrderedAugmenter]]:
    """Let the loaders that nnU-Net makes in the block draw from seeds of their own; yields the list of these loaders.

    All seeds derive from torch's seed of this process and from `epoch`, the one that the training resumes at. The
    process itself is seeded again only after a resumption; without workers it draws the batches.
    """
    from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module

    sequence = np.random.SeedSequence((torch.initial_seed(), epoch))
    if epoch:
        seed_here(int(sequence.generate_state(1)[0]))

    augmenters: list[OrderedAugmenter] = []

    def ordered(data_loader: Any, num_processes: int, pin_memory: bool, wait_time: float, **_: Any) -> OrderedAugmenter:
        seeds = [int(seed) for seed in sequence.spawn(1)[0].generate_state(num_processes)]
        loader = SeededLoader(data_loader, seeds)
        # One batch waits in each worker's queue: with sixteen workers, more would take gigabytes.
        augmenters.append(OrderedAugmenter(loader, None, num_processes, 1, pin_memory=pin_memory, wait_time=wait_time))
        return augmenters[-1]

    before = module.NonDetMultiThreadedAugmenter
    module.NonDetMultiThreadedAugmenter = ordered
    try:
        yield augmenters
    finally:
        module.NonDetMultiThreadedAugmenter = before
