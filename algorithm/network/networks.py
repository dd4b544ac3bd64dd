"""The networks of a package on their device."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.network.backbones import build_untrained_network
from algorithm.network.custom import CustomNetwork
from algorithm.network.devices import first_line
from algorithm.network.nnunet import compute_gaussian
from algorithm.network.package import HOOK, ModelPackage, is_custom
from algorithm.network.preprocessing import check_resampling
from contract.errors import ModelPackageError

LOGGER = logging.getLogger("hecktor")


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

    All networks stay on their device until the device fails, usually for lack of memory. From then on one network is
    kept at a time and the others are read again.
    """

    def __init__(self, package: ModelPackage, *, keeps_all: bool = True) -> None:
        self.package = package
        self._keeps_all = keeps_all
        self._loaded: dict[tuple[int, torch.device], nn.Module] = {}

    def check(self) -> None:
        """Build the network of each configuration without memory, and check the functions of resampling.

        The imports that this needs would cost time in the middle of a case.

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
            check_resampling(self.package)

    def get(self, fold: int, device: torch.device) -> nn.Module:
        """Return the network of a fold on a device, in evaluation mode.

        Raises:
            ModelPackageError: The weights do not fit the network.
        """
        key = (fold, device)
        if key not in self._loaded:
            if self._loaded and not self._keeps_all:
                self._loaded.clear()
                _release_cache(device)
            self._loaded[key] = self._load(fold, device)
        return self._loaded[key]

    of = get  # the name of 0.2, for scripts that use it

    def free(self, device: torch.device) -> None:
        """Drop all networks after a device failed, free its memory, and keep one network at a time from now on."""
        self._keeps_all = False
        self._loaded.clear()
        compute_gaussian.cache_clear()  # nnU-Net keeps the weights of tiles on the card
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


class HalfConvolutions(nn.Module):
    """A network whose convolutions have weights in half precision while autocast is on for the same type.

    Autocast converts the same weights for each tile. Without autocast, as for a tile that overflowed, the network
    computes with its float32 weights.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        """Convert the weights of the convolutions to `dtype`; all other tensors are shared."""
        super().__init__()
        self.network, self.dtype = network, dtype
        tensors = {id(tensor): tensor for _, tensor in own_tensors(network)}
        for module in network.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                for parameter in module.parameters(recurse=False):
                    tensors[id(parameter)] = nn.Parameter(parameter.to(dtype), requires_grad=False)
        self.half_network = copy.deepcopy(network, tensors)

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Return the logits of a patch."""
        kind = patch.device.type
        is_half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == self.dtype
        logits: torch.Tensor = (self.half_network if is_half else self.network)(patch)
        return logits


@torch.no_grad()
def _allocate(network: nn.Module, device: torch.device) -> None:
    """Give the tensors of a network memory on a device, without values.

    `nn.Module.to_empty` does the same, but torch imports sympy for it, which takes half a second.
    """
    for module in network.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            setattr(module, name, nn.Parameter(memory, requires_grad=False) if is_parameter else memory)


def _build_without_memory(package: ModelPackage, fold: int) -> nn.Module:
    """Return a network whose tensors take no memory; random weights would cost seconds."""
    with torch.device("meta"):
        return build_network(package, fold)


def _release_cache(device: torch.device) -> None:
    """Free the cached memory of a card; warn if a lost card cannot."""
    if device.type != "cuda":
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as problem:
        LOGGER.warning("%s: %s", device, first_line(problem))


@torch.no_grad()
def load_weights(network: nn.Module, path: Path) -> None:
    """Fill a network from a safetensors file that holds each of its tensors once.

    Raises:
        ModelPackageError: The file cannot be read, holds other tensors, or NaN or infinity.
    """
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(path.name, f"not a safetensors file ({problem})") from None
    except OSError as problem:
        raise ModelPackageError(path.name, f"cannot be read ({problem.strerror or problem})") from None
    tensors = dict(own_tensors(network))
    if weights.keys() != tensors.keys():
        odd = sorted(weights.keys() ^ tensors.keys())[0]
        raise ModelPackageError(path.name, f"tensor {odd} is in only one of weights and network")
    for name, tensor in tensors.items():
        if tensor.shape != weights[name].shape:
            shape = tuple(weights[name].shape)
            raise ModelPackageError(path.name, f"{name} of shape {shape}", str(tuple(tensor.shape)))
        if not bool(torch.isfinite(weights[name]).all()):
            raise ModelPackageError(path.name, f"{name} holds NaN or infinity", "finite weights")
    for name, tensor in tensors.items():
        tensor.copy_(weights[name])


def build_network(package: ModelPackage, fold: int = 0) -> nn.Module:
    """Build the network of one fold with random weights and without deep supervision."""
    return build_untrained_network(
        package.configuration_of(fold), len(package.channel_sources), len(package.manifest.labels)
    )


def own_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over every parameter and buffer once: nnU-Net's decoder also lists the encoder's tensors."""
    yield from network.named_parameters()
    yield from network.named_buffers()
