"""Networks from a package's plans and weights. A plans file is data: it chooses only among what is named here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.model_package import ModelPackage
from contract.errors import ModelPackageError

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


class Networks:
    """The package's network, one on one device at a time; weights are exchanged when another fold is asked for."""

    def __init__(self, package: ModelPackage) -> None:
        self.package = package
        self._network: nn.Module | None = None
        self._device: torch.device | None = None
        self._fold: int | None = None

    def of(self, fold: int, device: torch.device) -> nn.Module:
        """The network of `fold` on `device`, in evaluation mode.

        Raises:
            ModelPackageError: the weights cannot be read or do not fit the plans.
        """
        if self._network is None or device != self._device:
            self.forget()
            self._network = build_network(self.package).to(device).eval()
            self._device = device
        if fold != self._fold:
            self._fold = None
            load_weights(self._network, self.package.fold_files[fold])
            self._fold = fold
        return self._network

    def forget(self) -> None:
        """Let go of the network: its device failed, or its memory is wanted."""
        self._network, self._device, self._fold = None, None, None


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill `network` from a safetensors file that holds each of its tensors once.

    Raises:
        ModelPackageError: a tensor is missing, too many, of another shape, or not finite.
    """
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(f"{path.name}: not a safetensors file ({problem})") from None
    except OSError as problem:
        raise ModelPackageError(f"{path.name}: cannot be read ({problem.strerror or problem})") from None
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
    except (KeyError, TypeError, ValueError, AssertionError, RuntimeError) as problem:
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
