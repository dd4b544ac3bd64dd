"""A PET turned and shifted against the CT in a tenth of the patches each, as LesionTracer trained for autoPET III."""

from __future__ import annotations

from typing import Any

from batchgeneratorsv2.transforms.spatial.channel_misalignment import ChannelMisalignmentTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

PET, PROBABILITY = 1, 0.1
# Largest rotation about each axis, and largest shift (z, y, x) in voxels.
DEGREES, SHIFT_VOXELS = 5.0, (0, 2, 2)


class MisalignedTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with patches whose PET lies beside the CT."""

    def get_training_transforms(self, *args: Any, **options: Any) -> Any:
        """nnU-Net's transforms after a misalignment of the PET; the reference, drawn on the CT's grid, stays.

        It comes first, while the patch still has the margin that rotation needs.
        """
        misaligned = ChannelMisalignmentTransform(
            (PET,),
            rotation_ax_cor_sag=(DEGREES,) * 3,
            rad_or_deg="deg",
            p_rotation=PROBABILITY,
            shift_zyx=SHIFT_VOXELS,
            p_shift=PROBABILITY,
        )
        return ComposeTransforms([misaligned, *super().get_training_transforms(*args, **options).transforms])
