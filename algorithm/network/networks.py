"""Networks from a package's plans and weights. Plans are data: they choose among the classes listed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from algorithm.network.devices import GIB, release
from algorithm.network.enhance import Enhanced, enhancements
from algorithm.network.organs import organ_count, organs_as_background
from algorithm.network.package import ModelPackage
from contract.errors import ModelPackageError

_MODULES: Final[dict[str, type[nn.Module]]] = {
    "torch.nn.modules.conv.Conv3d": nn.Conv3d,
    "torch.nn.modules.instancenorm.InstanceNorm3d": nn.InstanceNorm3d,
    "torch.nn.LeakyReLU": nn.LeakyReLU,
    "torch.nn.ReLU": nn.ReLU,
}
# Five folds of ResEnc-L are 1 GiB in float16, the type of each package's weights.
LARGEST_KEPT_BYTES: Final = 3 * GIB
# More than any card has, so that nothing is refused that could run.
LARGEST_TILE_BYTES: Final = 512 * GIB
_SEGRESNET: Final = ("act", "blocks_down", "blocks_up", "dropout_prob", "init_filters", "norm", "upsample_mode")


class Networks:
    """The package's networks, one on one device at a time; another fold exchanges the weights.

    The weights of each fold are read and checked once and then kept in RAM, up to `LARGEST_KEPT_BYTES` in total; those
    beyond are read again each time.
    """

    def __init__(self, package: ModelPackage) -> None:
        self.package = package
        self.kept_bytes, self._full = 0, False
        self._kept: dict[int, dict[str, torch.Tensor]] = {}
        self._network: nn.Module | None = None
        self._holds: tuple[str, torch.device] | None = None
        self._fold: int | None = None

    def check(self) -> None:
        """Build every member or raise `ModelPackageError`: the imports would cost time in the middle of a case."""
        named = self.package.fold_configurations
        for name in dict.fromkeys(named):
            with torch.device("meta"):  # tensors without memory
                build_network(self.package, named.index(name))

    def of(self, fold: int, device: torch.device) -> nn.Module:
        """The network of `fold` on `device`, in evaluation mode. Raises `ModelPackageError` for unsuitable weights."""
        wanted = self.package.fold_configurations[fold], device
        if self._network is None or wanted != self._holds:
            if self._network is not None:
                self.forget()
                release(device)
            self._network = build_network(self.package, fold).to(device).eval()
            self._holds = wanted
        if fold != self._fold:
            self._fold = None
            if fold in self._kept:
                _copy_into(dict(own_tensors(self._network)), self._kept[fold])
            else:
                self._keep(fold, load_weights(self._network, self.package.fold_files[fold]))
            self._fold = fold
        return self._network

    def _keep(self, fold: int, weights: Mapping[str, torch.Tensor]) -> None:
        if self._full:
            return
        compact = {name: _compact(tensor) for name, tensor in weights.items()}
        size = sum(tensor.nbytes for tensor in compact.values())
        self._full = self.kept_bytes + size > LARGEST_KEPT_BYTES
        if not self._full:
            self._kept[fold] = compact
            self.kept_bytes += size

    def forget(self) -> None:
        """Drop the network: its device failed, or its memory is needed."""
        self._network, self._holds, self._fold = None, None, None


def load_weights(network: nn.Module, path: Path) -> dict[str, torch.Tensor]:
    """Fill `network` from a safetensors file that holds each of its tensors once; returns the tensors of the file.

    Raises:
        ModelPackageError: a tensor is missing, too many, of another shape, or not finite.
    """
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
    channels, classes = len(package.manifest.channels), len(package.manifest.labels)
    configuration = package.configuration_of(fold)
    organs = organ_count(configuration)
    network = untrained_network(configuration, channels, classes + organs)
    if organs:
        organs_as_background(network)
    return network


def untrained_network(
    configuration: Mapping[str, Any], channels: int, classes: int, deep_supervision: bool = False
) -> nn.Module:
    """The network of an nnU-Net configuration, with PyTorch's random weights.

    Args:
        configuration: `architecture` as nnU-Net writes it, or with MONAI's SegResNet; its optional `enhance` names
            functions of the CT that become further channels (`algorithm.network.enhance`).
        channels: number of image channels.
        classes: number of labels.
        deep_supervision: output at every resolution, as nnU-Net's loss expects; SegResNet has only one.

    Raises:
        ModelPackageError: the plans name an unknown network or module, or it cannot be built.
    """
    try:
        architecture = configuration["architecture"]
        name = str(architecture["network_class_name"]).rsplit(".", 1)[-1]
        if name not in _BUILDERS:
            raise ModelPackageError("plans.json", f"network {name!r}", f"one of {', '.join(_BUILDERS)}")
        more = enhancements(architecture.get("enhance", []))
        network = _BUILDERS[name](configuration, channels + len(more), classes, deep_supervision)
        _check_memory(configuration["patch_size"], network)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, RuntimeError) as problem:
        raise ModelPackageError("plans.json", f"not an architecture ({type(problem).__name__}: {problem})") from None
    return Enhanced(network, more) if more else network


def own_tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer once: nnU-Net's decoder also lists the encoder's under a second name."""
    yield from network.named_parameters()
    yield from network.named_buffers()


def _u_net(network: type[nn.Module]) -> Callable[[Mapping[str, Any], int, int, bool], nn.Module]:
    def build(configuration: Mapping[str, Any], channels: int, classes: int, deep_supervision: bool) -> nn.Module:
        architecture = configuration["architecture"]
        arguments = dict(architecture["arch_kwargs"])
        for key in architecture["_kw_requires_import"]:
            if (name := arguments[key]) is not None and name not in _MODULES:
                raise ModelPackageError("plans.json", f"module {name!r}", f"one of {', '.join(_MODULES)}")
            arguments[key] = None if name is None else _MODULES[name]
        _check_patch(configuration["patch_size"], arguments)
        return network(input_channels=channels, num_classes=classes, deep_supervision=deep_supervision, **arguments)

    return build


def _check_patch(patch: Sequence[int], arguments: Mapping[str, Any]) -> None:
    """Check that a U-Net returns the patch's own shape: strides divide it, and a norm has more than one voxel."""
    strides, stages = arguments["strides"], int(arguments["n_stages"])
    per_stage = [strides] * stages if isinstance(strides, int) else strides
    per_axis = zip(*([stage] * 3 if isinstance(stage, int) else stage for stage in per_stage), strict=True)
    multiples = [math.prod(axis) for axis in per_axis]
    if any(int(n) % multiple for n, multiple in zip(patch, multiples, strict=True)):
        raise ModelPackageError("plans.json", f"patch_size {list(patch)}", f"multiples of {multiples} for this U-Net")
    if arguments.get("norm_op") is not None and list(patch) == multiples:
        fault = f"patch_size {list(patch)} with one voxel at the lowest resolution"
        raise ModelPackageError("plans.json", fault, "two or more, which instance normalisation needs")


def _check_memory(patch: Sequence[int], network: nn.Module) -> None:
    """Check that a card could hold input and output of the first convolution for one patch, in float16."""
    first = next(module for module in network.modules() if isinstance(module, nn.Conv3d))
    size = math.prod(int(n) for n in patch) * (first.in_channels + first.out_channels) * 2
    if size > LARGEST_TILE_BYTES:
        found = f"patch_size {list(patch)}, whose first layer needs {size / GIB:,.0f} GiB"
        raise ModelPackageError("plans.json", found, f"at most {LARGEST_TILE_BYTES // GIB} GiB: no card holds more")


def _segresnet(configuration: Mapping[str, Any], channels: int, classes: int, _deep_supervision: bool) -> nn.Module:
    """MONAI's SegResNet, with arguments that keep the image's shape."""
    arguments = dict(configuration["architecture"]["arch_kwargs"])
    odd = sorted(arguments.keys() - _SEGRESNET)
    if odd:
        raise ModelPackageError("plans.json", f"argument {odd[0]!r} of SegResNet", f"{', '.join(_SEGRESNET)}")
    from monai.networks.nets.segresnet import SegResNet  # takes seconds, and U-Nets do not need it

    network: Any = SegResNet(spatial_dims=3, in_channels=channels, out_channels=classes, **arguments)
    down, up = len(network.down_layers), len(network.up_layers)
    if down != up + 1:
        fault = f"{down} entries of blocks_down and {up} of blocks_up"
        raise ModelPackageError("plans.json", fault, "one more down than up")
    multiple, patch = 2**up, list(configuration["patch_size"])
    if any(int(n) % multiple for n in patch):
        raise ModelPackageError("plans.json", f"patch_size {patch}", f"multiples of {multiple} for this SegResNet")
    return cast(nn.Module, network)


_BUILDERS: Final = {
    "PlainConvUNet": _u_net(PlainConvUNet),
    "ResidualEncoderUNet": _u_net(ResidualEncoderUNet),
    "SegResNet": _segresnet,
}
