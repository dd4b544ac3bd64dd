"""Training batches: patches without a PET, and seeds of the workers that draw and augment them.

With these seeds `--seed` reproduces a training, and no two workers draw the same sequence. nnU-Net's workers inherit
one torch state from the process that starts them, take NumPy's seed from the operating system, and share one queue, so
that the order of the batches depends on their speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.preprocessing.normalization import default_normalization_schemes

from baseline.network.patches import replace_augmenters
from contract.packages import CHANNELS

PET: Final = CHANNELS.index("PET")


class AbsentPet(ImageOnlyTransform):  # type: ignore[misc]
    """The PET channel as inference fills it if a case has no PET: `value` in every voxel."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def _apply_to_image(self, img: torch.Tensor, **_: Any) -> torch.Tensor:
        img[PET] = self.value
        return img


def absent_pet(configuration: Mapping[str, Any], intensities: Mapping[str, Mapping[str, float]]) -> float:
    """The normalised value of an absent PET, which inference takes for SUV 0 everywhere.

    Args:
        configuration: of nnU-Net's plans, with the normalisation of each channel.
        intensities: the data set's foreground values of each channel.
    """
    scheme = getattr(default_normalization_schemes, configuration["normalization_schemes"][PET])
    normaliser = scheme(use_mask_for_norm=False, intensityproperties=intensities[str(PET)])
    return float(normaliser.run(np.zeros((1, 1, 1), dtype=np.float32), None).item())


def with_absent_pets(transforms: ComposeTransforms, probability: float, absent: float) -> ComposeTransforms:
    """nnU-Net's training transforms, after which a patch has no PET with this probability.

    The dropout comes last, so that no noise is left in the channel. `absent` is the value of an absent PET.
    """
    dropout = RandomTransform(AbsentPet(absent), apply_probability=probability)
    return ComposeTransforms([*transforms.transforms, dropout])


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


@contextmanager
def seed_workers(epoch: int) -> Iterator[list[MultiThreadedAugmenter]]:
    """Let the loaders that nnU-Net makes in the block draw from seeds of their own; yields the list of these loaders.

    Their workers take turns, whatever their speed. All seeds derive from torch's seed of this process and from `epoch`,
    the one that the training resumes at. The process itself is seeded again only after a resumption; without workers it
    draws the batches.
    """
    sequence = np.random.SeedSequence((torch.initial_seed(), epoch))
    if epoch:
        seed_here(int(sequence.generate_state(1)[0]))

    augmenters: list[MultiThreadedAugmenter] = []

    def ordered(data_loader: Any, num_processes: int, pin_memory: bool, wait_time: float, **_: Any) -> Any:
        seeds = [int(seed) for seed in sequence.spawn(1)[0].generate_state(num_processes)]
        loader = SeededLoader(data_loader, seeds)
        # One batch waits in each worker's queue: with sixteen workers, more would take gigabytes.
        options = {"pin_memory": pin_memory, "wait_time": wait_time}
        augmenters.append(MultiThreadedAugmenter(loader, None, num_processes, 1, **options))
        return augmenters[-1]

    with replace_augmenters(ordered):
        yield augmenters
