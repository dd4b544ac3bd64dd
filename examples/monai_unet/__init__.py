"""MONAI's UNet as a custom network; the attributes of `Network` do the work of MONAI's transforms."""

from __future__ import annotations

from pathlib import Path

import torch
from monai.networks.nets import UNet
from safetensors.torch import load_file

WEIGHTS = "weights.safetensors"
CT_WINDOW = (-160.0, 240.0)
PET_WINDOW = (0.0, 15.0)


def build_unet() -> UNet:
    """Build the network without weights; its inputs are CT and PET, its outputs background, GTVp and GTVn."""
    return UNet(3, 2, 3, channels=(8, 16, 32, 64), strides=(2, 2, 2), num_res_units=1)


class Network:
    """The trained network; hecktor/template/__init__.py explains the attributes and methods."""

    spacing_mm = (4.0, 4.0, 4.0)
    patch = (48, 48, 48)
    # A window is the same as MONAI's ScaleIntensityRange from the window to 0 to 1, with clip=True.
    channels = (("CT", CT_WINDOW), ("PET", PET_WINDOW))
    labels = ("background", "GTVp", "GTVn")
    mirror_axes = ()
    returns = "logits"
    # In float32, the masks are the same as with MONAI's own inference.
    half_precision = False

    def __init__(self, folder: Path, device: str) -> None:
        self.network = build_unet()
        self.network.load_state_dict(load_file(str(folder / WEIGHTS)))
        self.network.to(device).eval()

    def __call__(self, patch: torch.Tensor) -> torch.Tensor:
        """Compute the logits (batch, label, z, y, x) of patches (batch, channel, z, y, x)."""
        logits: torch.Tensor = self.network(patch)
        return logits
