"""Training patches without a PET."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.preprocessing.normalization import default_normalization_schemes

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
