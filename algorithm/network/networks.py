"""The networks of a package on their device, custom networks included.

A custom network is constructed from a folder of files and a device, and called with a batch of patches. Its class is
found in the code of `--code` or of the image (`contract.code`), never in a package; its attributes are in the plans of
the package.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.network.backbones import build_untrained_network
from algorithm.network.devices import first_line, is_device_failure
from algorithm.network.nnunet import compute_gaussian, find_resampling
from algorithm.network.package import HOOK, ModelPackage, is_custom
from contract.code import describe_failure
from contract.errors import ModelPackageError
from contract.labels import LESIONS

LOGGER = logging.getLogger("hecktor")
# Lower probabilities are raised to this value, so that their logarithm is finite.
_MIN_PROBABILITY: Final = 1e-7
# Errors that nnU-Net raises for invalid options of its resampling.
_NOT_COMPUTED: Final = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)


class HookFailedError(Exception):
    """A custom network or normalisation fails on a case; the message is one line."""


class ReorderedNetwork(nn.Module):
    """A network whose training had the channels or the labels in another order than the package."""

    def __init__(self, network: nn.Module, channels: Sequence[int], labels: Sequence[int]) -> None:
        """Wrap a network.

        Args:
            network: The network.
            channels: For each channel of the network, the number of the channel of the image.
            labels: For background, GTVp and GTVn, the number of the output of the network.
        """
        super().__init__()
        self.network = network
        self._channels = list(channels)
        self._labels = list(labels)

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Return logits of background, GTVp and GTVn from a patch (batch, channel, z, y, x) of the image."""
        logits: torch.Tensor = self.network(patch[:, self._channels])
        return logits[:, self._labels]


class Networks:
    """The networks of a package, each loaded when a pass first needs it.

    All networks stay on their device until the device fails, usually because its memory is full. From then on one
    network is kept at a time and the others are read again.
    """

    def __init__(self, package: ModelPackage, *, keeps_all: bool = True) -> None:
        self.package = package
        self._keeps_all = keeps_all
        self._loaded: dict[tuple[int, torch.device], nn.Module] = {}

    def check(self) -> None:
        """Build the network of each configuration without memory, and check the functions of resampling.

        The imports for this would otherwise cost time in the middle of a case.

        Raises:
            ModelPackageError: A network cannot be built, its code is missing, or an option of resampling is wrong.
        """
        configurations = self.package.manifest.configurations
        for name in dict.fromkeys(configurations):
            fold = configurations.index(name)
            configuration = self.package.configuration_of(fold)
            if is_custom(configuration):
                self.package.code.find(configuration["architecture"][HOOK], "network")
            else:
                _build_without_memory(self.package, fold)
        if self.package.manifest.resampling == "nnunet":
            _check_resampling(self.package)

    def get(self, fold: int, device: torch.device) -> nn.Module:
        """Return the network of a fold on a device, in evaluation mode.

        Raises:
            HookFailedError: A custom network cannot be constructed.
            ModelPackageError: The weights do not fit the network.
            RuntimeError: The device failed.
        """
        key = (fold, device)
        if key not in self._loaded:
            if self._loaded and not self._keeps_all:
                self._loaded.clear()
                _release_cache(device)
            self._loaded[key] = self._load(fold, device)
        return self._loaded[key]

    of = get  # the name in version 0.2, for scripts that use it

    def free(self, device: torch.device) -> None:
        """Drop all networks after a device failed, free its memory, and from now on keep only one network at a time."""
        self._keeps_all = False
        self._loaded.clear()
        compute_gaussian.cache_clear()  # nnU-Net keeps the Gaussian weights of tiles on the GPU
        _release_cache(device)

    def _load(self, fold: int, device: torch.device) -> nn.Module:
        network: nn.Module
        if is_custom(self.package.configuration_of(fold)):
            network = CustomNetwork(self.package, fold, device)
        else:
            network = _build_without_memory(self.package, fold).eval()
            _allocate(network, device)
            load_weights(network, self.package.fold_files[fold])
            if device.type == "cuda" and self.package.uses_half_precision(fold):
                network = HalfConvolutions(network, torch.float16)
        channels, labels = self.package.channel_order_of(fold), self.package.label_order_of(fold)
        if (channels, labels) == (tuple(range(len(channels))), tuple(range(len(labels)))):
            return network
        return ReorderedNetwork(network, channels, labels).eval()


class CustomNetwork(nn.Module):
    """A custom network on a device: its outputs are checked and become logits of background, GTVp and GTVn."""

    def __init__(self, package: ModelPackage, fold: int, device: torch.device) -> None:
        """Construct the network from its files.

        Raises:
            HookFailedError: The code fails.
            RuntimeError: The device failed.
        """
        super().__init__()
        architecture: Mapping[str, Any] = package.configuration_of(fold)["architecture"]
        self.reference: str = architecture[HOOK]
        self._names: tuple[str, ...] = tuple(architecture["labels"])
        self._of_probabilities = architecture["returns"] == "probabilities"
        self._half = bool(architecture["half_precision"])
        self.network = self._build(package.code.find(self.reference, "network"), package.fold_files[fold], device)
        self.eval()

    def _build(self, network: Any, folder: Path, device: torch.device) -> Any:
        try:
            return network(folder, str(device))
        except (Exception, SystemExit) as problem:
            if is_device_failure(problem):
                raise
            raise HookFailedError(
                f"network {self.reference}: cannot be constructed: {describe_failure(problem)}"
            ) from problem

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, label, z, y, x) of a patch (batch, channel, z, y, x). Raises `HookFailedError`."""
        own_patch = patch.clone()  # the patch is a view of the shared image, and user code may change it in place
        try:
            if self._half:
                outputs = self.network(own_patch)
            else:
                with torch.autocast(patch.device.type, enabled=False):
                    outputs = self.network(own_patch)
        except (Exception, SystemExit) as problem:
            if is_device_failure(problem):
                raise
            raise HookFailedError(f"network {self.reference}: {describe_failure(problem)}") from problem
        return self._logits(outputs, (len(patch), len(self._names), *patch.shape[2:]))

    def _logits(self, outputs: Any, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != shape or not outputs.is_floating_point():
            actual = type(outputs).__name__
            if isinstance(outputs, torch.Tensor):
                actual = f"{str(outputs.dtype).removeprefix('torch.')} of shape {tuple(outputs.shape)}"
            kind = "probabilities" if self._of_probabilities else "logits"
            expected = f"a torch.Tensor of {kind} of shape {shape}"
            raise HookFailedError(f"network {self.reference}: returns {actual}, expected {expected}")
        values = outputs.float()
        if self._of_probabilities:
            if bool(((values < -_MIN_PROBABILITY) | (values > 1 + 1e-3)).any()):
                raise HookFailedError(f"network {self.reference}: returns values that are not probabilities")
            values = values.clamp_min(_MIN_PROBABILITY).log()
        tumours = [values[:, self._names.index(name)] for name in LESIONS]
        background_numbers = [number for number, name in enumerate(self._names) if name not in LESIONS]
        background = values[:, background_numbers].logsumexp(1)
        return torch.stack([background, *tumours], dim=1)


class HalfConvolutions(nn.Module):
    """A network with a copy of its convolutions' weights in half precision, which is used under autocast.

    Autocast itself would convert the weights again for each tile. Without autocast, as for a tile that overflowed in
    half precision, the network computes with its float32 weights.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        """Convert the weights of the convolutions to `dtype`; all other tensors are shared."""
        super().__init__()
        self.network, self.dtype = network, dtype
        tensors = {id(tensor): tensor for _, tensor in iterate_tensors(network)}
        for module in network.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                for parameter in module.parameters(recurse=False):
                    tensors[id(parameter)] = nn.Parameter(parameter.to(dtype), requires_grad=False)
        self.half_network = copy.deepcopy(network, tensors)

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, label, z, y, x) of a patch (batch, channel, z, y, x)."""
        kind = patch.device.type
        is_half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == self.dtype
        logits: torch.Tensor = (self.half_network if is_half else self.network)(patch)
        return logits


@torch.no_grad()
def _allocate(network: nn.Module, device: torch.device) -> None:
    """Allocate the tensors of a network on a device, without values.

    `nn.Module.to_empty` does the same, but makes torch import sympy, which takes half a second.
    """
    for module in network.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            setattr(module, name, nn.Parameter(memory, requires_grad=False) if is_parameter else memory)


def _build_without_memory(package: ModelPackage, fold: int) -> nn.Module:
    """Build a network whose tensors take no memory; drawing random weights would take seconds."""
    with torch.device("meta"):
        return build_network(package, fold)


def _release_cache(device: torch.device) -> None:
    """Free torch's cached memory on a GPU; only log a failure, because the GPU may be lost."""
    if device.type != "cuda":
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as problem:
        LOGGER.warning("%s: %s", device, first_line(problem))


@torch.no_grad()
def load_weights(network: nn.Module, path: Path) -> None:
    """Fill a network from a safetensors file that contains each of its tensors once.

    Raises:
        ModelPackageError: The file cannot be read, or contains other tensors, NaN or infinity.
    """
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(path.name, f"not a safetensors file ({problem})") from None
    except OSError as problem:
        raise ModelPackageError(path.name, f"cannot be read ({problem.strerror or problem})") from None
    tensors = dict(iterate_tensors(network))
    if weights.keys() != tensors.keys():
        odd = sorted(weights.keys() ^ tensors.keys())[0]
        raise ModelPackageError(path.name, f"tensor {odd} is in only one of weights and network")
    for name, tensor in tensors.items():
        if tensor.shape != weights[name].shape:
            shape = tuple(weights[name].shape)
            raise ModelPackageError(path.name, f"{name} of shape {shape}", str(tuple(tensor.shape)))
        if not bool(torch.isfinite(weights[name]).all()):
            raise ModelPackageError(path.name, f"{name} contains NaN or infinity", "finite weights")
    for name, tensor in tensors.items():
        tensor.copy_(weights[name])


def build_network(package: ModelPackage, fold: int = 0) -> nn.Module:
    """Build the network of one fold with random weights and without deep supervision."""
    return build_untrained_network(
        package.configuration_of(fold), len(package.channel_sources), len(package.manifest.labels)
    )


def iterate_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over every parameter and buffer once: nnU-Net's decoder also lists the encoder's tensors."""
    yield from network.named_parameters()
    yield from network.named_buffers()


@torch.inference_mode()
def check_empty_patch(network: nn.Module, package: ModelPackage, fold: int) -> None:
    """Check that a custom network returns finite logits for an empty patch; raise `HookFailedError` if not."""
    logits = network(torch.zeros((1, len(package.channel_sources), *package.patch_of(fold))))
    if not bool(torch.isfinite(logits).all()):
        reference = package.configuration_of(fold)["architecture"][HOOK]
        raise HookFailedError(f"network {reference}: returns NaN or infinity for an empty patch")


def _check_resampling(package: ModelPackage) -> None:
    """Call both resampling functions once; raise `ModelPackageError` if nnU-Net does not accept their options."""
    for kind in ("data", "probabilities"):
        try:
            find_resampling(package.configuration, kind)(
                np.zeros((1, 2, 2, 2), np.float32), (3, 3, 3), (2.0,) * 3, (1.0,) * 3
            )
        except _NOT_COMPUTED as problem:
            key = f"resampling_fn_{kind}_kwargs"
            actual = f"{key} {package.configuration.get(key)!r} ({type(problem).__name__}: {problem})"
            raise ModelPackageError("plans.json", actual, "options of nnU-Net's function") from None
