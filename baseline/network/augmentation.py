"""Augmentations of the PET: misaligned against the CT, or absent. Both leave the reference as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform
from batchgeneratorsv2.transforms.spatial.channel_misalignment import ChannelMisalignmentTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.preprocessing.normalization import default_normalization_schemes

from baseline.network.plans import NetworkPlan
from contract.packages import CHANNELS

PET: Final = CHANNELS.index("PET")
# Largest rotation about each axis, and largest shift in plane in voxels.
MISALIGN_DEGREES, MISALIGN_VOXELS = 5.0, 2


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


def misalignment(plan: NetworkPlan) -> ChannelMisalignmentTransform:
    """The PET turned about each axis and shifted in plane, each with the plan's probability.

    The PET moves and not the CT, because the reference is drawn on the CT's grid.
    """
    return ChannelMisalignmentTransform(
        (PET,),
        rotation_ax_cor_sag=(MISALIGN_DEGREES,) * 3,
        rad_or_deg="deg",
        p_rotation=plan.misalign,
        shift_zyx=(0, MISALIGN_VOXELS, MISALIGN_VOXELS),
        p_shift=plan.misalign,
    )


def with_pet_augmentations(transforms: ComposeTransforms, plan: NetworkPlan, absent: float) -> ComposeTransforms:
    """nnU-Net's training transforms with those of the plan.

    The misalignment comes first, while the patch still has the margin that rotation needs; the dropout comes last, so
    that no noise is left in the channel. `absent` is the value of an absent PET.
    """
    first = [misalignment(plan)] if plan.misalign else []
    last = [RandomTransform(AbsentPet(absent), apply_probability=plan.pet_dropout)] if plan.pet_dropout else []
    return ComposeTransforms([*first, *transforms.transforms, *last])
