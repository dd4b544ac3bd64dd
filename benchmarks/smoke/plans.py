"""Full-size plans of nnU-Net v2 for the head and neck at 1 mm, and model packages with random weights.

The patches and stages are those of the presets `nnunet` and `resenc-m`, which nnU-Net 2.8 plans for a median image of
310 x 200 x 200 voxels of 1 mm.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import nn

from algorithm.network.networks import own_tensors, untrained_network
from algorithm.network.package import DEFAULT_PACKAGE, DEFAULT_PACKAGES, PLANS
from contract import labels
from contract.editions import DEFAULT_EDITION
from contract.files import read_json, write_json
from contract.packages import CHANNELS, FORMAT_VERSION, MANIFEST, file_entry

CONFIGURATION: Final = "3d_fullres"
INTENSITIES: Final = "foreground_intensity_properties_per_channel"
FOLDS: Final = 5
# The last stage halves z alone: 112 = 16 x 7 is halved four times, 192 five times.
_PATCH: Final = (192, 112, 112)
_LAST_STRIDE: Final = (2, 1, 1)
PLAN_NAMES: Final = ("default", "resenc-m")
# A voxel is tumour if its PET lies this number of standard deviations above the mean of its tile.
HOT: Final = 3.0
_STAGES: Final[dict[str, dict[str, Any]]] = {
    "default": {
        "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "n_conv_per_stage": [2] * 6,
        "n_conv_per_stage_decoder": [2] * 5,
    },
    "resenc-m": {
        "network_class_name": "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet",
        "n_blocks_per_stage": [1, 3, 4, 6, 6, 6],
        "n_conv_per_stage_decoder": [1] * 5,
    },
}


def plans_named(name: str, *, quick: bool = False) -> dict[str, Any]:
    """The plans called `name`; `quick` reduces them to two stages, few features and small patches of coarse voxels."""
    features = [4, 8] if quick else [32, 64, 128, 256, 320, 320]
    stages = len(features)
    strides = [[1, 1, 1], *([[2, 2, 2]] * (stages - 2)), [2, 2, 2] if quick else [*_LAST_STRIDE]]
    blocks = {key: value for key, value in _STAGES[name].items() if isinstance(value, list)}
    depths = {key: value[: stages - 1] if key.endswith("decoder") else value[:stages] for key, value in blocks.items()}
    configuration = {
        "patch_size": [16] * 3 if quick else [*_PATCH],
        "spacing": [9.0 if quick else 1.0] * 3,
        "normalization_schemes": ["CTNormalization", "ZScoreNormalization"],
        "use_mask_for_norm": [False, False],
        "architecture": {
            "network_class_name": _STAGES[name]["network_class_name"],
            "arch_kwargs": {
                "n_stages": stages,
                "features_per_stage": features,
                "kernel_sizes": [[3, 3, 3]] * stages,
                "strides": strides,
                "conv_op": "torch.nn.modules.conv.Conv3d",
                "conv_bias": True,
                "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
                "norm_op_kwargs": {"eps": 1e-5, "affine": True},
                "dropout_op": None,
                "dropout_op_kwargs": None,
                "nonlin": "torch.nn.LeakyReLU",
                "nonlin_kwargs": {"inplace": True},
                **depths,
            },
            "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
        },
    }
    return {
        "plans_name": f"smoke-{name}",
        "label_manager": "LabelManager",
        INTENSITIES: read_json(DEFAULT_PACKAGE / PLANS)[INTENSITIES],
        "configurations": {CONFIGURATION: configuration},
    }


def write_random_package(root: Path, name: str, edition: str = DEFAULT_EDITION, *, quick: bool = False) -> Path:
    """Write a package of five folds with random weights, mirrored along every axis, with the edition's shipped heads.

    One channel of the finest stage passes the PET through, so that the output looks like lesions and not like noise.
    `quick` has two folds and one axis.
    """
    plans = plans_named(name, quick=quick)
    write_json(root / PLANS, plans)
    shipped = DEFAULT_PACKAGES / edition
    shutil.copytree(shipped / "heads", root / "heads")
    folds = [f"fold_{fold}.safetensors" for fold in range(2 if quick else FOLDS)]
    for fold, file_name in enumerate(folds):
        torch.manual_seed(fold)
        network = untrained_network(plans["configurations"][CONFIGURATION], len(CHANNELS), len(labels.NAMES))
        pass_pet_through(network)
        save_file({key: tensor.detach().half().contiguous() for key, tensor in own_tensors(network)}, root / file_name)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    manifest = {
        "format_version": FORMAT_VERSION,
        "name": f"smoke-{name}",
        "purpose": "for measuring: random weights",
        **{key: value for key, value in read_json(shipped / MANIFEST).items() if key in ("edition", "fallbacks")},
        "mirror_axes": [2] if quick else [0, 1, 2],
        "channels": list(CHANNELS),
        "labels": {str(value): label for value, label in labels.NAMES.items()},
        "configuration": CONFIGURATION,
        "folds": folds,
        "files": {path.relative_to(root).as_posix(): file_entry(path) for path in files},
    }
    write_json(root / MANIFEST, manifest)
    return root


@torch.no_grad()
def pass_pet_through(network: nn.Module) -> None:
    """Let channel 0 of the finest stage carry the PET from the input to the GTVp logit; other weights stay."""
    encoder: Any = network.encoder
    decoder: Any = network.decoder
    residual = hasattr(encoder, "stem")
    first: list[nn.Conv3d] = [block.conv for block in (encoder.stem if residual else encoder.stages[0][0]).convs]
    for number, convolution in enumerate(first):
        _carry(convolution, CHANNELS.index("PET") if number == 0 else 0)
    for block in encoder.stages[0].blocks if residual else ():
        _carry(block.conv2.conv, None)  # its input is added to its output
    last: list[nn.Conv3d] = [block.conv for block in decoder.stages[-1].convs]
    for number, convolution in enumerate(last):
        _carry(convolution, convolution.in_channels // 2 if number == 0 else 0)  # the encoder's half comes second
    answer: nn.Conv3d = decoder.seg_layers[-1]
    answer.weight.zero_()
    answer.weight[labels.GTVP, 0] = 1.0
    answer.bias.copy_(torch.tensor([0.0, -HOT, -10.0 * HOT]))  # type: ignore[union-attr]


def _carry(convolution: nn.Conv3d, source: int | None) -> None:
    """Make output channel 0 a copy of input channel `source`, or zero without one."""
    convolution.weight[0].zero_()
    if source is not None:
        middle = tuple(size // 2 for size in convolution.kernel_size)
        convolution.weight[(0, source, *middle)] = 1.0
    if convolution.bias is not None:
        convolution.bias[0] = 0.0
