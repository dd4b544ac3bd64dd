"""Train the UNet with the loop of MONAI's tutorials, and write its weights.

    python examples/monai_unet/train.py RAW OUTPUT [EPOCHS]

RAW is the data set that `hecktor train prepare --spacing-mm 4 4 4` writes, WORK/nnunet/raw/Dataset101_HECKTOR.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from monai import transforms as mt
from monai.data import CacheDataset, DataLoader
from monai.losses import DiceCELoss
from monai.utils import set_determinism
from safetensors.torch import save_file

# This file is run as a script, so that Python does not find its package by itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from monai_unet import CT_WINDOW, PET_WINDOW, WEIGHTS, Network, build_unet

KEYS = ("ct", "pet", "label")
SUFFIX = ".nii.gz"


def build_transforms() -> mt.Compose:
    """Build the transforms of a training case, which return four patches (channel, z, y, x) and their labels.

    CT and PET are scaled to 0 to 1. On average three of the four patches are centred on a lesion voxel.
    """
    windows = [
        mt.ScaleIntensityRanged(name, low, high, 0.0, 1.0, clip=True)
        for name, (low, high) in (("ct", CT_WINDOW), ("pet", PET_WINDOW))
    ]
    return mt.Compose(
        [
            mt.LoadImaged(KEYS),
            mt.EnsureChannelFirstd(KEYS),
            mt.Transposed(KEYS, (0, 3, 2, 1)),  # MONAI reads images as (channel, x, y, z).
            *windows,
            mt.ConcatItemsd(("ct", "pet"), "image"),
            mt.SelectItemsd(("image", "label")),
            mt.SpatialPadd(("image", "label"), Network.patch),
            mt.RandCropByPosNegLabeld(("image", "label"), "label", Network.patch, pos=3, neg=1, num_samples=4),
        ]
    )


def main(raw: Path, output: Path, epochs: int = 40) -> None:
    """Train on all patients of the raw data set `raw`, and write the weights into the folder `output`.

    Raises:
        FileNotFoundError: The folder `raw` contains no labels.
    """
    set_determinism(0)
    cases = [
        {
            "ct": str(raw / "imagesTr" / label.name.replace(SUFFIX, f"_0000{SUFFIX}")),
            "pet": str(raw / "imagesTr" / label.name.replace(SUFFIX, f"_0001{SUFFIX}")),
            "label": str(label),
        }
        for label in sorted((raw / "labelsTr").glob(f"*{SUFFIX}"))
    ]
    if not cases:
        raise FileNotFoundError(f"{raw}: found no labelsTr/*{SUFFIX}, expected a raw data set of nnU-Net")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = build_unet().to(device)
    compute_loss = DiceCELoss(to_onehot_y=True, softmax=True, include_background=False)
    optimiser = torch.optim.AdamW(network.parameters(), 2e-3)
    loader = DataLoader(CacheDataset(cases, build_transforms(), progress=False), batch_size=2, shuffle=True)
    for epoch in range(epochs):
        losses = []
        for batch in loader:
            optimiser.zero_grad()
            loss = compute_loss(network(batch["image"].to(device)), batch["label"].to(device))
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        print(f"epoch {epoch + 1} of {epochs}: loss {sum(losses) / len(losses):.3f}", flush=True)
    output.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}, output / WEIGHTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the UNet, and write its weights.")
    parser.add_argument("raw", type=Path, metavar="RAW", help="nnU-Net's raw data set")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="folder for the weights")
    parser.add_argument("epochs", type=int, nargs="?", default=40, metavar="EPOCHS", help="default: %(default)s")
    main(**vars(parser.parse_args()))
