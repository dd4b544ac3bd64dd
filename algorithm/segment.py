"""The network's view of a patient, and its passes over it; the only importer of nnU-Net in this package.

A pass is one fold with one choice of mirrored axes. Passes are made most valuable first while they fit the time
that is left; logits are averaged over the passes made.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window
from nnunetv2.preprocessing.normalization.default_normalization_schemes import (
    CTNormalization,
    ImageNormalization,
    NoNormalization,
    RescaleTo01Normalization,
    ZScoreNormalization,
)
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from algorithm import grids
from algorithm.budget import Budget
from algorithm.localise import Region
from algorithm.model_package import ModelPackage
from algorithm.read import AIR_HU, Case
from algorithm.segmentation import Segmentation
from contract.errors import HecktorError, ModelPackageError
from contract.geometry import Geometry

LOGGER = logging.getLogger("hecktor")
TILE_STEP: Final = 0.5

_Float = npt.NDArray[np.float32]

# Only these may be named by a package's plans: a plans file is data and must not choose what is imported.
_NETWORKS: Final[dict[str, type[nn.Module]]] = {
    "PlainConvUNet": PlainConvUNet,
    "ResidualEncoderUNet": ResidualEncoderUNet,
}
_MODULES: Final[dict[str, type[nn.Module]]] = {
    "torch.nn.modules.conv.Conv3d": nn.Conv3d,
    "torch.nn.modules.instancenorm.InstanceNorm3d": nn.InstanceNorm3d,
    "torch.nn.LeakyReLU": nn.LeakyReLU,
    "torch.nn.ReLU": nn.ReLU,
}
_NORMALISATIONS: Final[dict[str, type[ImageNormalization]]] = {
    scheme.__name__: scheme
    for scheme in (CTNormalization, ZScoreNormalization, NoNormalization, RescaleTo01Normalization)
}


@dataclass(frozen=True)
class Pass:
    """One fold's network over the whole grid, mirrored along `axes` of (z, y, x)."""

    fold: int
    axes: tuple[int, ...]


def network_grid(region: Region, spacing_mm: tuple[float, float, float]) -> Geometry:
    """The network's grid over a region: axis-aligned in LPS, spacing (x, y, z) in mm."""
    return grids.grid_over(region.lower_mm, region.upper_mm, spacing_mm)


def network_channels(case: Case, grid: Geometry) -> tuple[_Float, _Float]:
    """CT in HU and PET in SUV on the network's grid, each (z, y, x) float32; air and zero beyond the scans."""
    ct = grids.resample(case.ct, grid, AIR_HU)
    if case.pet is None:
        return ct, np.zeros(grid.array_shape, dtype=np.float32)
    return ct, grids.resample(case.pet, grid, 0.0)


def segment(case: Case, region: Region, package: ModelPackage, budget: Budget, device: torch.device) -> Segmentation:
    """Run the package's network over `region`, as many passes as the budget allows and at least one."""
    grid = network_grid(region, package.spacing_mm)
    ct, pet = network_channels(case, grid)
    data = normalise((ct, pet), package)
    passes = plan_passes(len(package.fold_files), mirror_axes(package))
    logits, done = run_passes(data, passes, package, budget, device)
    return Segmentation(logits, ct, pet if pet.any() else None, grid, done, len(passes))


def normalise(channels: tuple[_Float, ...], package: ModelPackage) -> _Float:
    """Stack the channels, each normalised by the scheme that the plans name; shape (channel, z, y, x)."""
    schemes = package.configuration["normalization_schemes"]
    properties = package.plans["foreground_intensity_properties_per_channel"]
    if len(schemes) != len(channels):
        raise ModelPackageError(f"plans.json: {len(schemes)} channels, expected {len(channels)} (CT and PET)")
    stacked = []
    for number, (channel, scheme) in enumerate(zip(channels, schemes, strict=True)):
        if scheme not in _NORMALISATIONS:
            raise ModelPackageError(f"plans.json: normalisation {scheme!r}, expected {', '.join(_NORMALISATIONS)}")
        normaliser = _NORMALISATIONS[scheme](use_mask_for_norm=False, intensityproperties=properties[str(number)])
        stacked.append(normaliser.run(channel.copy(), None))
    return np.stack(stacked).astype(np.float32, copy=False)


def mirror_axes(package: ModelPackage) -> tuple[int, ...]:
    """Axes of (z, y, x) along which the network may be mirrored."""
    return tuple(int(axis) for axis in package.manifest.get("mirror_axes", ()))


def plan_passes(folds: int, axes: tuple[int, ...]) -> tuple[Pass, ...]:
    """All passes, most valuable first: the folds as they are, then one mirror after the other, each over all folds."""
    mirrors = [
        combination for count in range(len(axes) + 1) for combination in itertools.combinations(sorted(axes), count)
    ]
    return tuple(Pass(fold, mirror) for mirror in mirrors for fold in range(folds))


def run_passes(
    data: _Float, passes: tuple[Pass, ...], package: ModelPackage, budget: Budget, device: torch.device
) -> tuple[_Float, int]:
    """Average the logits of as many passes as fit; the first is always made.

    Returns:
        float32 logits (label, z, y, x) and the number of passes made.
    """
    if not passes:
        raise ValueError("no pass to make, expected at least one")
    tensor = torch.from_numpy(data).to(device)
    total = torch.zeros((len(package.manifest["labels"]), *data.shape[1:]), device=device)
    patch = tuple(int(n) for n in package.configuration["patch_size"])
    networks = _Networks(package, device)
    done, longest_s = 0, 0.0
    for step in passes:
        if done and not budget.fits(1.2 * longest_s):
            LOGGER.info("stopped after %d of %d passes: %.1f s left", done, len(passes), budget.left_s())
            break
        begun = time.monotonic()
        total += _run_pass(tensor, step.axes, networks.of(step.fold), patch)
        done += 1
        longest_s = max(longest_s, time.monotonic() - begun)
    return (total / done).cpu().numpy(), done


class _Networks:
    """One network on the device at a time; its weights are exchanged when another fold is asked for."""

    def __init__(self, package: ModelPackage, device: torch.device) -> None:
        self._package, self._device = package, device
        self._network = build_network(package).to(device).eval()
        self._fold: int | None = None

    def of(self, fold: int) -> nn.Module:
        if fold != self._fold:
            load_weights(self._network, self._package.fold_files[fold])
            self._fold = fold
        return self._network


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill `network` from a safetensors file that holds each of its tensors once.

    Raises:
        ModelPackageError: a tensor is missing, too many, of another shape, or not finite.
    """
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(f"{path.name}: not a safetensors file ({problem})") from None
    own = dict(own_tensors(network))
    if weights.keys() != own.keys():
        odd = sorted(weights.keys() ^ own.keys())[0]
        raise ModelPackageError(f"{path.name}: tensor {odd} is in only one of weights and network")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
                raise ModelPackageError(f"{path.name}: {name} of shape {found}, expected {wanted}")
            if not bool(torch.isfinite(weights[name]).all()):
                raise ModelPackageError(f"{path.name}: {name} holds NaN or infinity, expected finite weights")
            tensor.copy_(weights[name])


def build_network(package: ModelPackage) -> nn.Module:
    """The package's network before its weights are read, without deep supervision."""
    return untrained_network(package.configuration, len(package.manifest["channels"]), len(package.manifest["labels"]))


def untrained_network(configuration: Mapping[str, Any], channels: int, classes: int) -> nn.Module:
    """The network that an nnU-Net configuration describes, without deep supervision.

    Raises:
        ModelPackageError: the plans name a network or module that is not among the known ones.
    """
    architecture = configuration["architecture"]
    try:
        name = str(architecture["network_class_name"]).rsplit(".", 1)[-1]
        if name not in _NETWORKS:
            raise ModelPackageError(f"plans.json: network {name!r}, expected one of {', '.join(_NETWORKS)}")
        arguments: dict[str, Any] = dict(architecture["arch_kwargs"])
        for key in architecture["_kw_requires_import"]:
            arguments[key] = _module(arguments[key])
        return _NETWORKS[name](input_channels=channels, num_classes=classes, deep_supervision=False, **arguments)
    except (KeyError, TypeError) as problem:
        raise ModelPackageError(f"plans.json: not an architecture ({type(problem).__name__}: {problem})") from None


def own_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once: nnU-Net's decoder also lists the encoder's under a second name."""
    yield from network.named_parameters()
    yield from network.named_buffers()


def _module(name: str | None) -> type[nn.Module] | None:
    if name is None:
        return None
    if name not in _MODULES:
        raise ModelPackageError(f"plans.json: module {name!r}, expected one of {', '.join(_MODULES)}")
    return _MODULES[name]


@torch.inference_mode()
def _run_pass(data: torch.Tensor, axes: tuple[int, ...], network: nn.Module, patch: tuple[int, ...]) -> torch.Tensor:
    """Logits (label, z, y, x) of one pass: overlapping tiles, weighted by a Gaussian as nnU-Net does."""
    shape = data.shape[1:]
    padded = _padded(data, patch)
    weight = compute_gaussian(
        patch, sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=data.device
    )
    tiles = list(_tiles(tuple(padded.shape[1:]), patch))
    total = torch.zeros(())
    norm = torch.zeros(padded.shape[1:], device=data.device)
    spatial = [axis + 2 for axis in axes]
    for number, tile in enumerate(tiles):
        part = padded[(slice(None), *tile)][None]
        logits = _forward(network, part.flip(spatial) if spatial else part)
        logits = (logits.flip(spatial) if spatial else logits)[0] * weight
        if number == 0:
            total = torch.zeros((logits.shape[0], *padded.shape[1:]), device=data.device)
        total[(slice(None), *tile)] += logits
        norm[tile] += weight
    total /= norm
    before = [(have - want) // 2 for have, want in zip(padded.shape[1:], shape, strict=True)]
    inner = tuple(slice(start, start + want) for start, want in zip(before, shape, strict=True))
    return total[(slice(None), *inner)].contiguous()


def _forward(network: nn.Module, part: torch.Tensor) -> torch.Tensor:
    kind = part.device.type
    half = torch.float16 if kind == "cuda" else torch.bfloat16
    enabled = kind == "cuda" or cpu_has_bfloat16()
    with torch.autocast(kind, half, enabled=enabled):
        logits: torch.Tensor = network(part)
    return logits.float()


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware, where it is faster than float32 at equal masks."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _padded(data: torch.Tensor, patch: tuple[int, ...]) -> torch.Tensor:
    """Zero-pad each axis to the patch, half on either side as nnU-Net does."""
    pads: list[int] = []
    for have, want in zip(reversed(data.shape[1:]), reversed(patch), strict=True):
        missing = max(want - have, 0)
        pads += [missing // 2, missing - missing // 2]
    return functional.pad(data, pads) if any(pads) else data


def _tiles(shape: tuple[int, ...], patch: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    steps = compute_steps_for_sliding_window(shape, patch, TILE_STEP)
    for start in itertools.product(*steps):
        yield tuple(slice(s, s + n) for s, n in zip(start, patch, strict=True))


def device_named(name: str) -> torch.device:
    """`cpu`, `cuda`, or `auto`: CUDA where a card answers.

    Raises:
        HecktorError: `cuda` was asked for and no card answers.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HecktorError("device cuda: no CUDA device answers, expected one (or --device auto or cpu)")
    return torch.device("cuda" if available and name != "cpu" else "cpu")
