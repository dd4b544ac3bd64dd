"""The networks of a package with their weights in memory: those that fit stay on the card."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from nnunetv2.inference.sliding_window_prediction import compute_gaussian
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.network.backbones import build_untrained_network
from algorithm.network.custom import CustomNetwork
from algorithm.network.devices import first_line
from algorithm.network.package import HOOK, ModelPackage, is_custom
from algorithm.network.preprocessing import check_resampling
from contract.errors import ModelPackageError

LOGGER = logging.getLogger("hecktor")
# Five folds of ResEnc-L are 1 GiB in float16, the type of each package's weights.
LARGEST_CACHE_BYTES: Final = 3 * 2**30


class Networks:
    """The package's networks, those that were made and those without memory.

    A card keeps the networks that fit beside what a pass needs there, which is `measured`; the others are freed and
    made again. A CPU keeps one of ours, whose weights are in RAM anyway, and an entrant's own up to
    `LARGEST_CACHE_BYTES` of files. The tensors of networks that are not kept are on torch's `meta` device, which takes
    no memory. The weights of each fold are read and checked once and then cached in RAM, up to `LARGEST_CACHE_BYTES` in
    total. Those beyond are read again each time.
    """

    def __init__(self, package: ModelPackage) -> None:
        self.package = package
        self.cached_bytes, self._full = 0, False
        self._need_bytes = 0  # of a pass beside the networks: the most measured
        self._cached: dict[int, dict[str, torch.Tensor]] = {}
        self._waiting: dict[str, list[nn.Module]] = {}  # configuration: its networks without memory
        self._kept: dict[tuple[int, torch.device], nn.Module] = {}  # the last used is the last
        self._sizes: dict[str, int] = {}  # configuration: bytes of a network on the card

    def check(self) -> None:
        """Build every member or raise `ModelPackageError`: the imports would cost time in the middle of a case."""
        named = self.package.manifest.configurations
        for name in dict.fromkeys(named):
            fold = named.index(name)
            if is_custom(configuration := self.package.configuration_of(fold)):
                self.package.code.find(configuration["architecture"][HOOK], "network")
            else:
                self._waiting[name] = [self._without_memory(fold)]
        if self.package.manifest.resampling == "nnunet":
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
            self._sizes[self.package.manifest.configurations[fold]] = torch.cuda.memory_allocated(device) - before
        return network

    def _is_custom(self, fold: int) -> bool:
        return is_custom(self.package.configuration_of(fold))

    def _without_memory(self, fold: int) -> nn.Module:
        """Take a network of a fold's configuration from those without memory, or build it there."""
        if waiting := self._waiting.get(self.package.manifest.configurations[fold]):
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
                name = self.package.manifest.configurations[key[0]]
                self._waiting.setdefault(name, []).append(network.to_empty(device="meta"))
            del network
            _release(device)

    def _fits(self, fold: int, device: torch.device) -> bool:
        """True if a network fits beside those that are kept; one of unknown size is made alone."""
        if device.type == "cuda":
            size = self._sizes.get(self.package.manifest.configurations[fold])
            return size is not None and size + self._need_bytes <= _room_bytes(device)
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

    @contextmanager
    def measured(self, device: torch.device) -> Iterator[None]:
        """Measure the memory that a pass in this block needs on a card beside the networks, if it ends well."""
        if device.type != "cuda":
            yield
            return
        held, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
        yield
        if (now := torch.cuda.max_memory_allocated(device)) > peak:
            self._need_bytes = max(self._need_bytes, now - held)

    def forget(self, device: torch.device) -> None:
        """Drop the networks after `device` failed, and free its memory: the next of a configuration is built anew."""
        self._kept.clear()
        compute_gaussian.cache_clear()  # nnU-Net keeps the weights of tiles on the card
        _release(device)


def _room_bytes(device: torch.device) -> int:
    """Memory that this process can still take on a card: what is free or cached, and within its share."""
    free, total = torch.cuda.mem_get_info(device)
    used, cached = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    share = torch.cuda.get_per_process_memory_fraction(device)
    return min(free + cached, int(share * total)) - used


def _release(device: torch.device) -> None:
    """Free the cached memory of a card; a lost one cannot, which gives a warning."""
    if device.type != "cuda":
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as problem:
        LOGGER.warning("%s: %s", device, first_line(problem))


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
    return build_untrained_network(
        package.configuration_of(fold), len(package.channel_sources), len(package.manifest.labels)
    )


def own_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once: nnU-Net's decoder also lists the encoder's under a second name."""
    yield from network.named_parameters()
    yield from network.named_buffers()
