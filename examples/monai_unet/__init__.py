"""A UNet of MONAI as a network: its transforms expressed as the hook's declaration."""

from __future__ import annotations

from pathlib import Path

import torch
from monai.networks.nets import UNet
from safetensors.torch import load_file

WEIGHTS = "weights.safetensors"
CT_WINDOW = (-160.0, 240.0)
PET_WINDOW = (0.0, 15.0)


def unet() -> UNet:
    """The network without weights: CT and PET to background, GTVp and GTVn."""
    return UNet(3, 2, 3, channels=(8, 16, 32, 64), strides=(2, 2, 2), num_res_units=1)


class Network:
    """The trained network, made from the folder of its weights."""

    spacing_mm = (4.0, 4.0, 4.0)
    patch = (48, 48, 48)
    # What MONAI's ScaleIntensityRange does with clip=True.
    channels = (("CT", CT_WINDOW), ("PET", PET_WINDOW))
    labels = ("background", "GTVp", "GTVn")
    mirror_axes = ()
    returns = "logits"
    half_precision = False  # the masks are those of MONAI's inference in float32

    def __init__(self, folder: Path, device: str) -> None:
        self.network = unet()
        self.network.load_state_dict(load_file(str(folder / WEIGHTS)))
        self.network.to(device).eval()

    def __call__(self, patch: torch.Tensor) -> torch.Tensor:
        """Logits (batch, label, z, y, x) of a patch (batch, channel, z, y, x)."""
        logits: torch.Tensor = self.network(patch)
        return logits
