"""Turn a network whose axes nnU-Net reordered back to (z, y, x).

nnU-Net may permute the axes of its network's input: `transpose_forward` puts the axis of the largest spacing first. A
convolutional network gives the same result for the original axes if kernels, strides and patch are permuted too, so
plans and weights are turned once instead of every image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from algorithm.network.backbones import backbone_of
from contract.errors import ModelPackageError

IDENTITY: Final = (0, 1, 2)
_SPATIAL: Final = ("spacing", "patch_size", "median_image_size_in_voxels")


def axes_of(plans: Mapping[str, Any]) -> tuple[int, ...]:
    """`transpose_forward`: for each axis of the network's grid its axis of (z, y, x).

    Raises:
        ModelPackageError: not a permutation of 0, 1, 2.
    """
    axes = plans.get("transpose_forward", IDENTITY)
    if not isinstance(axes, Sequence) or sorted(map(str, axes)) != ["0", "1", "2"]:
        raise ModelPackageError("plans.json", f"transpose_forward {axes!r}", "0, 1 and 2 in some order")
    return tuple(int(axis) for axis in axes)


def turned_configuration(configuration: Mapping[str, Any], axes: tuple[int, ...]) -> dict[str, Any]:
    """The configuration with spacing, patch, kernels and strides in (z, y, x)."""
    architecture, arguments = configuration["architecture"], configuration["architecture"]["arch_kwargs"]
    spatial = {key: _turned(configuration[key], axes) for key in _SPATIAL if key in configuration}
    kernels = backbone_of(architecture).kernels
    stages = {key: _turned_stages(arguments[key], axes) for key in kernels if key in arguments}
    return {**configuration, **spatial, "architecture": {**architecture, "arch_kwargs": {**arguments, **stages}}}


def turned_tensor(tensor: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """A kernel (out, in, axes of the network's grid) as (out, in, z, y, x); other tensors unchanged."""
    if tensor.ndim != 5:
        return tensor
    return tensor.permute(0, 1, *(2 + axes.index(axis) for axis in IDENTITY))


def turned_axes(of_network: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of the network's grid as axes of (z, y, x), ascending."""
    return tuple(sorted(axes[axis] for axis in of_network))


def _turned(values: Sequence[Any], axes: tuple[int, ...]) -> list[Any]:
    return [values[axes.index(axis)] for axis in IDENTITY]


def _turned_stages(stages: Any, axes: tuple[int, ...]) -> Any:
    """Turn each stage of a list; a single number applies to all axes and stays."""
    if not isinstance(stages, Sequence):
        return stages
    return [_turned(stage, axes) if isinstance(stage, Sequence) else stage for stage in stages]
