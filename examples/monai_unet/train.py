"""Train the UNet with the loop of MONAI's tutorials: train.py RAW OUTPUT [EPOCHS].

RAW is the data set that `hecktor train prepare --spacing-mm 4 4 4` writes, WORK/nnunet/raw/Dataset101_HECKTOR.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from monai import transforms as mt
from monai.data import CacheDataset, DataLoader
from monai.losses import DiceCELoss
from monai.utils import set_determinism
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from monai_unet import CT_WINDOW, PET_WINDOW, WEIGHTS, Network, build_unet

KEYS = ("ct", "pet", "label")


def build_transforms() -> mt.Compose:
    """Build the transforms that cut patches (channel, z, y, x) out of CT and PET, scaled to 0 to 1.

    On average three of four patches are centred on a lesion voxel.
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
    """Train on all patients of the raw data set, and write the weights into `output`."""
    set_determinism(0)
    cases = [
        {
            "ct": str(raw / "imagesTr" / f"{label.name[:-7]}_0000.nii.gz"),
            "pet": str(raw / "imagesTr" / f"{label.name[:-7]}_0001.nii.gz"),
            "label": str(label),
        }
        for label in sorted((raw / "labelsTr").glob("*.nii.gz"))
    ]
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
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
