"""The networks that plans may name, one record for each backbone. Importing this module imports no network library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contract.errors import HecktorError, ModelPackageError

if TYPE_CHECKING:
    from torch import Tensor, nn

# Builds a network from a configuration of nnU-Net's plans, the numbers of channels and labels, and deep supervision.
Build = Callable[[Mapping[str, Any], int, int, bool], "nn.Module"]
# Makes the `architecture` of nnU-Net's plans from the filters at the finest resolution and the patch (z, y, x).
Design = Callable[[int, Sequence[int]], dict[str, Any]]
# Modules that plans may name.
_MODULES: Final = (
    "torch.nn.modules.conv.Conv3d",
    "torch.nn.modules.instancenorm.InstanceNorm3d",
    "torch.nn.LeakyReLU",
    "torch.nn.ReLU",
)
_SEGRESNET_ARGUMENTS: Final = (
    "act", "blocks_down", "blocks_up", "dropout_prob", "init_filters", "norm", "upsample_mode",
)  # fmt: skip
# Minimum and maximum of the numbers in `arch_kwargs`; no GPU has enough memory for a network with larger numbers. An
# argument is one number, or a list with a number or three numbers (z, y, x) for each stage.
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "n_stages": (2, 12),
    "features_per_stage": (1, 4096),
    "stem_channels": (1, 4096),
    "bottleneck_channels": (1, 4096),
    "kernel_sizes": (1, 31),
    "strides": (1, 16),
    "n_conv_per_stage": (1, 64),
    "n_blocks_per_stage": (1, 64),
    "n_conv_per_stage_decoder": (1, 64),
    "init_filters": (1, 4096),
    "blocks_down": (1, 64),
    "blocks_up": (1, 64),
}
# Errors that libraries raise if they cannot build a network from its arguments.
_NOT_BUILT: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
# Forward pre-hooks that reduce the normalised CT and PET to one channel, by the value of an architecture's key `sees`.
_SEEN: Final[Mapping[str, Callable[[nn.Module, Any], Tensor]]] = {
    "CT": lambda _, inputs: inputs[0][:, :1],
    "PET": lambda _, inputs: inputs[0][:, 1:],
    "mean": lambda _, inputs: inputs[0].mean(1, keepdim=True),
}
# Residual blocks of SegResNet's encoder at each resolution, as in MONAI.
_SEGRESNET_BLOCKS: Final = (1, 2, 2, 4)


@dataclass(frozen=True)
class Backbone:
    """A kind of network.

    Attributes:
        classes: Names of its classes in nnU-Net's plans.
        build: Builds the network with PyTorch's random weights.
        deep_supervision: Whether it has an output at each resolution in training.
        kernels: Names of the arguments that have, for each stage, one number for each axis of the grid.
        output_layers: Part of the names of the layers whose outputs are the labels.
        design: Makes the architecture for a patch; None if nnU-Net's planner does this.
    """

    classes: tuple[str, ...]
    build: Build
    deep_supervision: bool
    kernels: tuple[str, ...]
    output_layers: str
    design: Design | None = None


def find_backbone(architecture: Mapping[str, Any]) -> Backbone:
    """Return the backbone that an `architecture` of nnU-Net's plans names; else raise `ModelPackageError`."""
    name = _class_name(architecture)
    for backbone in BACKBONES.values():
        if name in backbone.classes:
            return backbone
    known = ", ".join(name_of_class for backbone in BACKBONES.values() for name_of_class in backbone.classes)
    raise ModelPackageError("plans.json", f"network {name!r}", f"one of {known}")


def _class_name(architecture: Mapping[str, Any]) -> str:
    return str(architecture["network_class_name"]).rsplit(".", 1)[-1]


def check_architecture(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `architecture` of a configuration; raise `ModelPackageError` unless its numbers are within bounds."""
    architecture = configuration["architecture"]
    if not isinstance(architecture, dict):
        raise ModelPackageError("plans.json", f"architecture {architecture!r:.80}", "an object")
    arguments = architecture.get("arch_kwargs", {})
    if not isinstance(arguments, dict):
        raise ModelPackageError("plans.json", f"arch_kwargs {arguments!r:.80}", "an object")
    for name, (low, high) in _BOUNDS.items():
        value = arguments.get(name)
        if value is not None and not _is_within(value, low, high):
            expected = f"whole numbers from {low} to {high}, at most {_BOUNDS['n_stages'][1]} stages"
            raise ModelPackageError("plans.json", f"{name} {value!r:.80}", expected)
    return architecture


def _is_within(value: Any, low: int, high: int) -> bool:
    if isinstance(value, list):
        most = _BOUNDS["n_stages"][1]
        return 0 < len(value) <= most and all(_is_within(item, low, high) for item in value)
    return type(value) is int and low <= value <= high


def _build_unet(configuration: Mapping[str, Any], channels: int, classes: int, deep_supervision: bool) -> nn.Module:
    """Build one of nnU-Net's own networks."""
    import torch

    from algorithm.network.nnunet import find_unet

    architecture = configuration["architecture"]
    arguments = dict(architecture["arch_kwargs"])
    for key in architecture["_kw_requires_import"]:
        if (name := arguments[key]) is not None and name not in _MODULES:
            raise ModelPackageError("plans.json", f"module {name!r}", f"one of {', '.join(_MODULES)}")
        arguments[key] = None if name is None else getattr(torch.nn, name.rsplit(".", 1)[-1])
    _check_unet_patch(configuration["patch_size"], arguments)
    network: nn.Module = find_unet(_class_name(architecture))(
        input_channels=channels, num_classes=classes, deep_supervision=deep_supervision, **arguments
    )
    return network


def _check_unet_patch(patch: Sequence[int], arguments: Mapping[str, Any]) -> None:
    """Check that a U-Net returns the shape of the patch.

    The strides must divide the patch, and instance normalisation needs more than one voxel at the lowest resolution.
    """
    strides, stages = arguments["strides"], int(arguments["n_stages"])
    per_stage = [strides] * stages if isinstance(strides, int) else strides
    per_axis = zip(*([stage] * 3 if isinstance(stage, int) else stage for stage in per_stage), strict=True)
    multiples = [math.prod(axis) for axis in per_axis]
    if any(int(n) % multiple for n, multiple in zip(patch, multiples, strict=True)):
        raise ModelPackageError("plans.json", f"patch_size {list(patch)}", f"multiples of {multiples} for this U-Net")
    if arguments.get("norm_op") is not None and list(patch) == multiples:
        fault = f"patch_size {list(patch)} with one voxel at the lowest resolution"
        raise ModelPackageError("plans.json", fault, "two or more, which instance normalisation needs")


def _build_segresnet(
    configuration: Mapping[str, Any], channels: int, classes: int, _deep_supervision: bool
) -> nn.Module:
    """Build MONAI's SegResNet, and check that it returns the shape of the patch."""
    arguments = dict(configuration["architecture"]["arch_kwargs"])
    odd = sorted(arguments.keys() - _SEGRESNET_ARGUMENTS)
    if odd:
        raise ModelPackageError("plans.json", f"argument {odd[0]!r} of SegResNet", f"{', '.join(_SEGRESNET_ARGUMENTS)}")
    from monai.networks.nets.segresnet import SegResNet  # takes seconds, and U-Nets do not need it

    network: Any = SegResNet(spatial_dims=3, in_channels=channels, out_channels=classes, **arguments)
    down, up = len(network.down_layers), len(network.up_layers)
    if down != up + 1:
        fault = f"{down} entries of blocks_down and {up} of blocks_up"
        raise ModelPackageError("plans.json", fault, "one more down than up")
    multiple, patch = 2**up, list(configuration["patch_size"])
    if any(int(n) % multiple for n in patch):
        raise ModelPackageError("plans.json", f"patch_size {patch}", f"multiples of {multiple} for this SegResNet")
    built: nn.Module = network
    return built


def _design_segresnet(filters: int, patch: Sequence[int]) -> dict[str, Any]:
    """Make the architecture of a SegResNet with up to four resolutions, as many as the patch can be halved to."""
    halvings = min((edge & -edge).bit_length() - 1 for edge in map(int, patch))
    if halvings == 0:
        raise HecktorError("--backbones segresnet", f"the planned patch is {list(patch)}", "even edges")
    blocks = _SEGRESNET_BLOCKS[: halvings + 1]
    return {
        "network_class_name": "monai.networks.nets.segresnet.SegResNet",
        "arch_kwargs": {
            "init_filters": filters,
            "blocks_down": list(blocks),
            "blocks_up": [1] * (len(blocks) - 1),
            "norm": ["INSTANCE", {"affine": True}],
        },
        "_kw_requires_import": [],
    }


# The first backbone is the network that nnU-Net plans; each of the others has an additional configuration in the plans.
BACKBONES: Final[Mapping[str, Backbone]] = {
    "unet": Backbone(
        classes=("PlainConvUNet", "ResidualEncoderUNet"),
        build=_build_unet,
        deep_supervision=True,
        kernels=("kernel_sizes", "strides"),
        output_layers="seg_layers",
    ),
    "segresnet": Backbone(
        classes=("SegResNet",),
        build=_build_segresnet,
        deep_supervision=False,
        kernels=(),
        output_layers="conv_final",
        design=_design_segresnet,
    ),
}


def build_untrained_network(
    configuration: Mapping[str, Any], channels: int, classes: int, deep_supervision: bool = False
) -> nn.Module:
    """Build the network of a configuration of nnU-Net's plans, with PyTorch's random weights.

    Args:
        configuration: Configuration of nnU-Net's plans.
        channels: Number of input channels.
        classes: Number of labels, background included.
        deep_supervision: Whether the network has an output at each resolution, as nnU-Net's loss expects; ignored by a
            backbone without deep supervision.

    Raises:
        ModelPackageError: The network or a module is unknown, or the network cannot be built.
    """
    try:
        architecture = check_architecture(configuration)
        seen = architecture.get("sees")
        if seen is not None and seen not in _SEEN:
            raise ModelPackageError("plans.json", f"sees {seen!r}", f"one of {', '.join(_SEEN)}, or no such key")
        channels = channels if seen is None else 1
        network = find_backbone(architecture).build(configuration, channels, classes, deep_supervision)
        if seen is not None:
            network.register_forward_pre_hook(_SEEN[seen])
    except _NOT_BUILT as problem:
        raise ModelPackageError("plans.json", f"not an architecture ({type(problem).__name__}: {problem})") from None
    return network
