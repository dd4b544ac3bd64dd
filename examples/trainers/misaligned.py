"""Misalignment of PET and CT as an augmentation, as in LesionTracer for autoPET III.

The PET is rotated against the CT in 10% of the patches, and shifted in 10% of the patches.
"""

from __future__ import annotations

from typing import Any

from batchgeneratorsv2.transforms.spatial.channel_misalignment import ChannelMisalignmentTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

PET_CHANNEL = 1
PROBABILITY = 0.1
# Maximum rotation about each axis, and maximum shift (z, y, x).
MAX_ROTATION_DEGREES = 5.0
MAX_SHIFT_VOXELS = (0, 2, 2)


class MisalignedTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with patches whose PET is not aligned with the CT."""

    def get_training_transforms(self, *args: Any, **options: Any) -> Any:
        """Return the misalignment of the PET, followed by nnU-Net's transforms.

        The reference is not moved, since it was drawn on the CT. The misalignment comes first, because at this point
        the patch still has the margin that a rotation needs.
        """
        misalignment = ChannelMisalignmentTransform(
            (PET_CHANNEL,),
            rotation_ax_cor_sag=(MAX_ROTATION_DEGREES,) * 3,
            rad_or_deg="deg",
            p_rotation=PROBABILITY,
            shift_zyx=MAX_SHIFT_VOXELS,
            p_shift=PROBABILITY,
        )
        return ComposeTransforms([misalignment, *super().get_training_transforms(*args, **options).transforms])
