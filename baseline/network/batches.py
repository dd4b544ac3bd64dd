"""Training batches: patches without a PET, and seeds of the workers that draw and augment the patches.

With these seeds `--seed` reproduces a training, and no two workers draw the same sequence. nnU-Net's own workers
inherit one torch state from the process that starts them, take NumPy's seed from the operating system, and share one
queue, so that the order of the batches depends on their speed.
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
    """Transform that fills the PET channel with `value`, as inference does for a case without a PET."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def _apply_to_image(self, img: torch.Tensor, **_: Any) -> torch.Tensor:
        img[PET] = self.value
        return img


def compute_absent_pet(configuration: Mapping[str, Any], intensities: Mapping[str, Mapping[str, float]]) -> float:
    """Compute the normalised value of an absent PET, which inference replaces by SUV 0 everywhere.

    Args:
        configuration: Configuration of nnU-Net's plans, with the normalisation of each channel.
        intensities: Foreground values of each channel in the data set.
    """
    scheme = getattr(default_normalization_schemes, configuration["normalization_schemes"][PET])
    normaliser = scheme(use_mask_for_norm=False, intensityproperties=intensities[str(PET)])
    return float(normaliser.run(np.zeros((1, 1, 1), dtype=np.float32), None).item())


def add_pet_dropout(transforms: ComposeTransforms, probability: float, absent: float) -> ComposeTransforms:
    """Add a dropout of the PET to nnU-Net's training transforms, with this probability for each patch.

    The dropout comes last, so that the channel has no noise. `absent` is the value of an absent PET.
    """
    dropout = RandomTransform(AbsentPet(absent), apply_probability=probability)
    return ComposeTransforms([*transforms.transforms, dropout])


def seed_process(seed: int) -> None:
    """Seed the global generators of this process; nnU-Net's loader and transforms draw from them."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - nnU-Net's loaders draw from the global state


class SeededLoader:
    """A loader of batches that seeds each worker process with its own number of `seeds` when the worker begins."""

    def __init__(self, loader: Any, seeds: Sequence[int]) -> None:
        self.loader, self.seeds = loader, seeds

    def set_thread_id(self, number: int) -> None:
        """Seed the worker; batchgenerators calls this method first in each worker."""
        torch.set_num_threads(1)
        seed_process(self.seeds[number])
        self.loader.set_thread_id(number)

    def __next__(self) -> Any:
        return next(self.loader)


@contextmanager
def seed_workers(epoch: int) -> Iterator[list[MultiThreadedAugmenter]]:
    """Seed the workers of the loaders that nnU-Net makes in the block; yield the list of these loaders.

    The workers take turns, independent of their speed. All seeds derive from torch's seed of this process and from
    `epoch`, at which the training resumes. The process itself, which draws the batches if there are no workers, is
    seeded again only after a resumption.
    """
    sequence = np.random.SeedSequence((torch.initial_seed(), epoch))
    if epoch:
        seed_process(int(sequence.generate_state(1)[0]))

    augmenters: list[MultiThreadedAugmenter] = []

    def make_ordered_augmenter(
        data_loader: Any, num_processes: int, pin_memory: bool, wait_time: float, **_: Any
    ) -> Any:
        seeds = [int(seed) for seed in sequence.spawn(1)[0].generate_state(num_processes)]
        loader = SeededLoader(data_loader, seeds)
        # The queue of each worker holds one batch, because more batches of sixteen workers would take gigabytes.
        options = {"pin_memory": pin_memory, "wait_time": wait_time}
        augmenters.append(MultiThreadedAugmenter(loader, None, num_processes, 1, **options))
        return augmenters[-1]

    with replace_augmenters(make_ordered_augmenter):
        yield augmenters
