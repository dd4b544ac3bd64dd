"""Everything that changes the behaviour of nnU-Net when it plans and trains. No image contains this module.

Each function states why nnU-Net needs it; docs/architecture.md has the list. `tests/baseline/network/test_patches.py`
fails when a new nnU-Net changes what these functions rely on. nnU-Net is imported in the functions, since this takes
seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from baseline.work import WorkFolders

if TYPE_CHECKING:
    from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter

# Time that worker processes have for their current batches before they are ended.
_GRACE_S: Final = 2


def set_environment(work: WorkFolders, augmentation_workers: int, compile_network: bool = False) -> None:
    """Set the environment variables that nnU-Net reads when it plans or trains.

    nnU-Net has no other setting for its folders, its number of augmentation processes and `torch.compile`.
    """
    for name, data_set in (("raw", work.raw), ("preprocessed", work.preprocessed), ("results", work.results)):
        folder = data_set.parent
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{name}"] = str(folder)
    os.environ["nnUNet_n_proc_DA"] = str(augmentation_workers)  # noqa: SIM112 - nnU-Net's own spelling
    os.environ["nnUNet_compile"] = "t" if compile_network else "f"  # noqa: SIM112


@contextmanager
def replace_process_pools(jobs: int) -> Iterator[None]:
    """Let nnU-Net list files in a thread and, with one job, fingerprint and preprocess in a thread, too.

    nnU-Net forks twelve processes to compare file names (MIC-DKFZ/nnUNet#2313); processes forked after SimpleITK ran
    inherit the locks of its threads and can hang. It also starts a process for a single job, which then imports torch
    and nnU-Net twice and dies where shared memory is small (MIC-DKFZ/nnUNet#2792).
    """
    from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
    from nnunetv2.preprocessing.preprocessors import default_preprocessor
    from nnunetv2.utilities import utils

    threads = SimpleNamespace(get_context=lambda _: SimpleNamespace(Pool=ThreadPool))
    with ExitStack() as patches:
        patches.enter_context(_replace(utils, "Pool", ThreadPool))
        if jobs == 1:
            patches.enter_context(_replace(fingerprint_extractor, "multiprocessing", threads))
            patches.enter_context(_replace(default_preprocessor, "multiprocessing", threads))
        yield


@contextmanager
def replace_augmenters(make: Callable[..., MultiThreadedAugmenter]) -> Iterator[None]:
    """Let `make` create the augmentation workers that nnU-Net's trainer starts within the block.

    nnU-Net's workers cannot be seeded, and they share a queue, so that a training cannot be repeated
    (MIC-DKFZ/nnUNet#1423, MIC-DKFZ/batchgenerators#139). The trainer has no option for another class.
    """
    from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module

    with _replace(module, "NonDetMultiThreadedAugmenter", make):
        yield


def end_workers(augmenters: Iterable[MultiThreadedAugmenter]) -> None:
    """End the worker processes that still run. nnU-Net leaves them behind if a training fails."""
    for augmenter in augmenters:
        augmenter._finish(timeout=_GRACE_S)  # nnU-Net calls the same method at the end of a training


def allow_ddp_on_cpu() -> None:
    """Drop the GPU that nnU-Net passes to DDP, which refuses it on a CPU. This process runs nothing else."""
    from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module
    from torch.nn.parallel import DistributedDataParallel

    def make_ddp(network: Any, device_ids: Any) -> Any:  # noqa: ARG001
        return DistributedDataParallel(network)

    module.DDP = make_ddp


@contextmanager
def _replace(module: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(module, name)  # an AttributeError means that nnU-Net has changed
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)
