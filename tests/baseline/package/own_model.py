"""A folder of user code with a small network, and its package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from algorithm.deadline import Deadline
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, list_passes
from baseline.package.assemble import PackageRequest, package_training
from contract.code import Code

CPU = torch.device("cpu")
# A UNet of MONAI with three labels in another order, a fixed window for CT and a custom scale for PET.
MODEL = """
from pathlib import Path
import numpy as np
import torch
from monai.networks.nets import UNet

def make_unet():
    return UNet(3, 2, 3, channels=(4, 8), strides=(2,), norm="instance")

def root_of_suv(suv):
    return np.sqrt(np.clip(suv, 0, 25))

class Network:
    spacing_mm = (3.0, 3.0, 4.0)
    patch = (16, 16, 24)
    channels = (("CT", (-160, 240)), ("PET", root_of_suv))
    labels = ("GTVn", "background", "GTVp")
    mirror_axes = ()
    half_precision = False

    def __init__(self, folder, device):
        self.unet = make_unet()
        self.unet.load_state_dict(torch.load(Path(folder) / "unet.pt", weights_only=True))
        self.unet.to(device).eval()

    def __call__(self, patch):
        return self.unet(patch)
"""


def write_model(root: Path, source: str = MODEL, change: tuple[str, str] = ("", "")) -> tuple[Path, Path]:
    """Write the code `my_model` and the folder of its weights, which come from a fixed seed."""
    code, weights = root / "my_model", root / "weights"
    code.mkdir(parents=True)
    assert change[0] in source
    (code / "__init__.py").write_text(source.replace(*change))
    weights.mkdir()
    torch.manual_seed(2)
    torch.save(build_unet().state_dict(), weights / "unet.pt")
    return code, weights


def build_unet() -> torch.nn.Module:
    from monai.networks.nets import UNet

    return UNet(3, 2, 3, channels=(4, 8), strides=(2,), norm="instance").eval()


def package_model(root: Path, code: Path, *weights: Path, **options: Any) -> Path:
    request = PackageRequest(nnunet=(), heads=None, output=root / "package", code=(code,), weights=weights, **options)
    return package_training(request).path


def load_with_code(package: Path, code: Path) -> ModelPackage:
    return load_package(package, Code.from_folders([code]))


def compute_logits(package: ModelPackage, data: np.ndarray) -> np.ndarray:
    return (
        Passes(NetworkImage.from_channels(data), list_passes(package), Networks(package), Deadline(600), CPU)
        .make_all()
        .logits
    )
