"""Networks from a package's plans and weights. Plans are data: they choose among `algorithm.network.backbones`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.network.backbones import backbone_of, checked_architecture
from algorithm.network.custom import CustomNetwork, declaration_of
from algorithm.network.devices import GIB, Need, release, room_bytes
from algorithm.network.package import HOOK, ModelPackage, is_custom
from algorithm.network.preprocessing import check_resampling
from contract.errors import ModelPackageError

# Five folds of ResEnc-L are 1 GiB in float16, the type of each package's weights.
LARGEST_CACHE_BYTES: Final = 3 * GIB
# Errors of libraries for arguments that make no network.
_NOT_BUILT: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
# Forward pre-hooks that reduce the normalised CT and PET to one channel, by the value of an architecture's key `sees`.
_SEEN: Final[Mapping[str, Callable[[nn.Module, Any], torch.Tensor]]] = {
    "CT": lambda _, inputs: inputs[0][:, :1],
    "PET": lambda _, inputs: inputs[0][:, 1:],
    "mean": lambda _, inputs: inputs[0].mean(1, keepdim=True),
}


class Networks:
    """The package's networks, those that were made and those without memory.

    A card keeps the networks that fit beside what a pass needs there (`need`), which is measured; the others are freed
    and made again. A CPU keeps one of ours, whose weights are in RAM anyway, and an entrant's own up to
    `LARGEST_CACHE_BYTES` of files. The tensors of networks that are not kept are on torch's `meta` device, which takes
    no memory. The weights of each fold are read and checked once and then cached in RAM, up to `LARGEST_CACHE_BYTES` in
    total. Those beyond are read again each time.
    """

    def __init__(self, package: ModelPackage) -> None:
        self.package, self.need = package, Need()
        self.cached_bytes, self._full = 0, False
        self._cached: dict[int, dict[str, torch.Tensor]] = {}
        self._waiting: dict[str, list[nn.Module]] = {}  # configuration: its networks without memory
        self._kept: dict[tuple[int, torch.device], nn.Module] = {}  # the last used is the last
        self._sizes: dict[str, int] = {}  # configuration: bytes of a network on the card

    def check(self) -> None:
        """Build every member or raise `ModelPackageError`: the imports would cost time in the middle of a case."""
        named = self.package.fold_configurations
        for name in dict.fromkeys(named):
            fold = named.index(name)
            if is_custom(configuration := self.package.configuration_of(fold)):
                reference = configuration["architecture"][HOOK]
                network = self.package.code.find(reference, "network")
                declaration_of(network, reference, self.package.manifest.channels)
            else:
                self._waiting[name] = [self._without_memory(fold)]
        if self.package.resamples_as_nnunet:
            check_resampling(self.package)

    def of(self, fold: int, device: torch.device) -> nn.Module:
        """The network of `fold` on `device`, in evaluation mode. Raises `ModelPackageError` for unsuitable weights."""
        network = self._kept.pop((fold, device), None)
        if network is None:
            self._make_room(fold, device)
            network = self._made(fold, device)
        self._kept[fold, device] = network
        return network

    def _made(self, fold: int, device: torch.device) -> nn.Module:
        on_card = device.type == "cuda"
        before = torch.cuda.memory_allocated(device) if on_card else 0
        network: nn.Module
        if self._is_custom(fold):
            network = CustomNetwork(self.package, fold, device)
        else:
            network = self._without_memory(fold).to_empty(device=device).eval()
            if fold in self._cached:
                _copy_into(dict(own_tensors(network)), self._cached[fold])
            else:
                self._cache(fold, load_weights(network, self.package.fold_files[fold]))
        if on_card:
            self._sizes[self.package.fold_configurations[fold]] = torch.cuda.memory_allocated(device) - before
        return network

    def _is_custom(self, fold: int) -> bool:
        return is_custom(self.package.configuration_of(fold))

    def _without_memory(self, fold: int) -> nn.Module:
        """Take a network of a fold's configuration from those without memory, or build it there."""
        if waiting := self._waiting.get(self.package.fold_configurations[fold]):
            return waiting.pop()
        with torch.device("meta"):
            return build_network(self.package, fold)

    def _make_room(self, fold: int, device: torch.device) -> None:
        """Free networks until that of `fold` fits, the last used first: passes take turns, so it is the last needed."""
        for key in reversed([one for one in self._kept if one[1] == device]):
            if self._fits(fold, device):
                return
            if device.type != "cuda" and self._is_custom(key[0]) != self._is_custom(fold):
                continue
            network = self._kept.pop(key)
            if not isinstance(network, CustomNetwork):
                name = self.package.fold_configurations[key[0]]
                self._waiting.setdefault(name, []).append(network.to_empty(device="meta"))
            del network
            release(device)

    def _fits(self, fold: int, device: torch.device) -> bool:
        """True if a network fits beside those that are kept; one of unknown size is made alone."""
        if device.type == "cuda":
            size = self._sizes.get(self.package.fold_configurations[fold])
            return size is not None and size + self.need.bytes <= room_bytes(device)
        own = [one for one, at in self._kept if at == device and self._is_custom(one)]
        files = (path for one in (fold, *own) for path in self.package.fold_files[one].rglob("*"))
        return self._is_custom(fold) and sum(path.stat().st_size for path in files) <= LARGEST_CACHE_BYTES

    def _cache(self, fold: int, weights: Mapping[str, torch.Tensor]) -> None:
        if self._full:
            return
        compact = {name: _compact(tensor) for name, tensor in weights.items()}
        size = sum(tensor.nbytes for tensor in compact.values())
        self._full = self.cached_bytes + size > LARGEST_CACHE_BYTES
        if not self._full:
            self._cached[fold] = compact
            self.cached_bytes += size

    def forget(self) -> None:
        """Drop the networks on the device, which failed: the next one of a configuration is built anew."""
        self._kept.clear()


def load_weights(network: nn.Module, path: Path) -> dict[str, torch.Tensor]:
    """Fill `network` from a safetensors file that holds each of its tensors once; returns the tensors of the file."""
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(path.name, f"not a safetensors file ({problem})") from None
    except OSError as problem:
        raise ModelPackageError(path.name, f"cannot be read ({problem.strerror or problem})") from None
    own = dict(own_tensors(network))
    if weights.keys() != own.keys():
        odd = sorted(weights.keys() ^ own.keys())[0]
        raise ModelPackageError(path.name, f"tensor {odd} is in only one of weights and network")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shape = tuple(weights[name].shape)
            raise ModelPackageError(path.name, f"{name} of shape {shape}", str(tuple(tensor.shape)))
        if not bool(torch.isfinite(weights[name]).all()):
            raise ModelPackageError(path.name, f"{name} holds NaN or infinity", "finite weights")
    _copy_into(own, weights)
    return weights


@torch.no_grad()
def _copy_into(own: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in own.items():
        tensor.copy_(weights[name])


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in float16 if that is exact, otherwise in the tensor's own type; the file may be mapped into memory."""
    half = tensor.to(torch.float16, copy=True)
    return half if torch.equal(half.to(tensor.dtype), tensor) else tensor.clone()


def build_network(package: ModelPackage, fold: int = 0) -> nn.Module:
    """The network of one fold without its weights and without deep supervision."""
    return untrained_network(package.configuration_of(fold), len(package.channel_sources), len(package.manifest.labels))


def untrained_network(
    configuration: Mapping[str, Any], channels: int, classes: int, deep_supervision: bool = False
) -> nn.Module:
    """The network of an nnU-Net configuration, with PyTorch's random weights; `classes` counts the background.

    With `deep_supervision` it has an output at every resolution, as nnU-Net's loss expects, if its backbone can.
    Raises `ModelPackageError` for an unknown network or module, and for one that cannot be built.
    """
    try:
        architecture = checked_architecture(configuration)
        seen = architecture.get("sees")
        if seen is not None and seen not in _SEEN:
            raise ModelPackageError("plans.json", f"sees {seen!r}", f"one of {', '.join(_SEEN)}, or no such key")
        channels = channels if seen is None else 1
        network = backbone_of(architecture).build(configuration, channels, classes, deep_supervision)
        if seen is not None:
            network.register_forward_pre_hook(_SEEN[seen])
    except _NOT_BUILT as problem:
        raise ModelPackageError("plans.json", f"not an architecture ({type(problem).__name__}: {problem})") from None
    return network


def own_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once: nnU-Net's decoder also lists the encoder's under a second name."""
    yield from network.named_parameters()
    yield from network.named_buffers()
