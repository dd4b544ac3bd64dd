"""The process of one part: its options, phantoms and model packages, and the rows that it reports while it runs.

The packages have networks of full size and random weights.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from algorithm.network.backbones import build_untrained_network
from algorithm.network.loaded_package import DEFAULT_PACKAGES
from algorithm.network.networks import iterate_tensors
from algorithm.network.package import PLANS
from benchmarks.data import BenchData, make_patients
from contract import labels
from contract.editions import DEFAULT_EDITION
from contract.io.files import read_json, write_json
from contract.packages import CHANNELS, MANIFEST, make_file_entry

CARD_GIB: Final = "peak memory of the GPU (GiB)"


FOLDS: Final = 5
CONFIGURATION: Final = "3d_fullres"
# The patches and stages that nnU-Net 2.8 plans with the presets `nnunet` and `resenc-m` for a median image of 310 x 200
# x 200 voxels of 1 mm. The last stage halves only z: 112 = 16 x 7 is halved four times, 192 five times.
_PATCH: Final = (192, 112, 112)
_FEATURES: Final = (32, 64, 128, 256, 320, 320)
_UNETS: Final = "dynamic_network_architectures.architectures.unet"
_NETWORKS: Final[dict[str, tuple[str, dict[str, list[int]]]]] = {
    "default": ("PlainConvUNet", {"n_conv_per_stage": [2] * 6, "n_conv_per_stage_decoder": [2] * 5}),
    "resenc-m": (
        "ResidualEncoderUNet",
        {"n_blocks_per_stage": [1, 3, 4, 6, 6, 6], "n_conv_per_stage_decoder": [1] * 5},
    ),
}
PLAN_NAMES: Final = tuple(_NETWORKS)
# The networks label a voxel as tumour if its PET is this number of standard deviations above the mean of the tile.
TUMOUR_SD: Final = 3.0


@dataclass(frozen=True)
class Limit:
    """The minimum or maximum of a figure."""

    figure: str
    minimum: float = -float("inf")
    maximum: float = float("inf")

    def find_failure(self, figures: Mapping[str, Any]) -> str | None:
        """Return the failure, None if the figure keeps the limit; a figure that was not measured is a failure."""
        value = figures.get(self.figure)
        if value is None:
            return f"{self.figure}: not measured"
        bound = f"at least {self.minimum:g}" if self.minimum > -float("inf") else f"at most {self.maximum:g}"
        return None if self.minimum <= value <= self.maximum else f"{self.figure}: found {value:.4g}, expected {bound}"


@dataclass
class CheckJob:
    """One part in its process.

    Attributes:
        device: `cuda` or `cpu`.
        quick: Whether networks and images are tiny.
        folder: Folder of phantoms, packages and work folders, which later parts reuse.
        result: JSON file with the rows so far, which is complete even if the process is killed.
        seconds: Time until the deadline of the part.
        image: Name of the image to run.
        rows: The rows so far.
        start_s: Start of the part on the monotonic clock.
    """

    device: str
    quick: bool
    folder: Path
    result: Path
    seconds: float
    image: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    start_s: float = field(default_factory=time.monotonic)

    @property
    def on_card(self) -> bool:
        """Return whether the part runs on a card."""
        return self.device == "cuda"

    def remaining_s(self) -> float:
        """Return the seconds until the part is killed."""
        return self.seconds - (time.monotonic() - self.start_s)

    def report(
        self, name: str, figures: Mapping[str, Any], limits: Iterable[Limit] = (), failures: Sequence[str] = ()
    ) -> None:
        """Report figures, the limits that they break, and other failures."""
        broken_limits = [limit.find_failure(figures) for limit in limits]
        row_failures = [*failures, *(text for text in broken_limits if text is not None)]
        self.rows.append({"name": name, "figures": dict(figures), "failures": row_failures})
        write_json(self.result, self.rows)

    def skip(self, reason: str) -> None:
        """Report why the part does not apply to this machine."""
        self.report("skipped", {"why": reason})

    def input_dir(self, size: str) -> Path:
        """Return the input of the phantom of this size; make the phantom if it does not exist."""
        data = BenchData(self.folder / "data", self.quick)
        make_patients(data, size, 1)
        return data.input_dir(size)

    def package(self, plan: str) -> Path:
        """Return a package of random networks; make it if it does not exist."""
        root = self.folder / "packages" / plan
        if not (root / MANIFEST).is_file():  # The manifest is written last.
            write_random_package(root, plan, DEFAULT_EDITION, quick=self.quick)
        return root


def run_job(fields_json: str) -> None:
    """Run the function that the fields name, with a `CheckJob` of the other fields; paths are absolute."""
    fields = json.loads(fields_json)
    module, _, function = fields.pop("function").partition(":")
    job = CheckJob(**{**fields, "folder": Path(fields["folder"]), "result": Path(fields["result"])})
    getattr(import_module(f"benchmarks.device.{module}"), function)(job)


def make_plans(name: str, shipped: Mapping[str, Any], *, quick: bool = False) -> dict[str, Any]:
    """Make plans from the shipped package's plans, with the network called `name` at 1 mm.

    With `quick` the network has two stages, few features and small patches of coarse voxels.
    """
    features = _FEATURES if not quick else (4, 8)
    stages = len(features)
    strides = [[1, 1, 1], *([[2, 2, 2]] * (stages - 2)), [2, 2, 2] if quick else [2, 1, 1]]
    unet, depths = _NETWORKS[name]
    own = shipped["configurations"][CONFIGURATION]
    arguments = {key: value for key, value in own["architecture"]["arch_kwargs"].items() if "_per_stage" not in key}
    arguments |= {
        "n_stages": stages,
        "features_per_stage": list(features),
        "kernel_sizes": [[3, 3, 3]] * stages,
        "strides": strides,
        **{key: value[: stages - key.endswith("decoder")] for key, value in depths.items()},
    }
    architecture = own["architecture"] | {"network_class_name": f"{_UNETS}.{unet}", "arch_kwargs": arguments}
    size = {"patch_size": [16] * 3, "spacing": [9.0] * 3} if quick else {"patch_size": [*_PATCH], "spacing": [1.0] * 3}
    configuration = own | size | {"architecture": architecture}
    return {**shipped, "configurations": {CONFIGURATION: configuration}}


def write_random_package(root: Path, name: str, edition: str, *, quick: bool = False) -> Path:
    """Write a package of five folds with random weights, mirrored along every axis, with the edition's shipped heads.

    One channel of the finest stage passes the PET through, so that the output looks like lesions instead of noise. With
    `quick` there are two folds and one axis.
    """
    shipped = DEFAULT_PACKAGES / edition
    plans = make_plans(name, read_json(shipped / PLANS), quick=quick)
    write_json(root / PLANS, plans)
    shutil.copytree(shipped / "heads", root / "heads")
    folds = [f"fold_{fold}.safetensors" for fold in range(2 if quick else FOLDS)]
    for fold, file_name in enumerate(folds):
        torch.manual_seed(fold)
        network = build_untrained_network(plans["configurations"][CONFIGURATION], len(CHANNELS), len(labels.NAMES))
        pass_pet_through(network)
        save_file(
            {key: tensor.detach().half().contiguous() for key, tensor in iterate_tensors(network)}, root / file_name
        )
    files = {path.relative_to(root).as_posix(): make_file_entry(path) for path in root.rglob("*") if path.is_file()}
    keys = ("format_version", "edition", "fallbacks", "channels", "labels")
    manifest = {key: value for key, value in read_json(shipped / MANIFEST).items() if key in keys}
    manifest |= {
        "name": f"device-check-{name}",
        "purpose": "for measuring: random weights",
        "configuration": CONFIGURATION,
    }
    manifest |= {"mirror_axes": [2] if quick else [0, 1, 2], "folds": folds, "files": files}
    write_json(root / MANIFEST, manifest)
    return root


@torch.no_grad()
def pass_pet_through(network: torch.nn.Module) -> None:
    """Let channel 0 of the finest stage carry the PET from the input to the GTVp logit; other weights stay."""
    encoder: Any = network.encoder
    decoder: Any = network.decoder
    residual = hasattr(encoder, "stem")
    first: list[torch.nn.Conv3d] = [block.conv for block in (encoder.stem if residual else encoder.stages[0][0]).convs]
    for number, convolution in enumerate(first):
        _copy_channel(convolution, CHANNELS.index("PET") if number == 0 else 0)
    for block in encoder.stages[0].blocks if residual else ():
        _copy_channel(block.conv2.conv, None)  # The input of the block is added to its output.
    last: list[torch.nn.Conv3d] = [block.conv for block in decoder.stages[-1].convs]
    for number, convolution in enumerate(last):
        # The channels of the encoder come second.
        _copy_channel(convolution, convolution.in_channels // 2 if number == 0 else 0)
    answer: torch.nn.Conv3d = decoder.seg_layers[-1]
    answer.weight.zero_()
    answer.weight[labels.GTVP, 0] = 1.0
    answer.bias.copy_(torch.tensor([0.0, -TUMOUR_SD, -10.0 * TUMOUR_SD]))  # type: ignore[union-attr]


def _copy_channel(convolution: torch.nn.Conv3d, source: int | None) -> None:
    """Make output channel 0 a copy of input channel `source`, or zero if it is None."""
    convolution.weight[0].zero_()
    if source is not None:
        middle = tuple(size // 2 for size in convolution.kernel_size)
        convolution.weight[(0, source, *middle)] = 1.0
    if convolution.bias is not None:
        convolution.bias[0] = 0.0
