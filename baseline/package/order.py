"""Order of a training's axes, channels and labels, and networks rearranged to the algorithm's own.

Permuting the input channels of the first convolution and the outputs of the segmentation heads gives a network that
takes the edition's channels in their order (CT, PET) and returns background, GTVp and GTVn. The configuration of a
network with only some of the channels names them.

nnU-Net may also permute the axes: `transpose_forward` puts the axis of the largest spacing first. A convolutional
network gives the same result for (z, y, x) if kernels, strides and patch are permuted too, so plans and weights are
turned once instead of every image.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from algorithm.network.backbones import backbone_of
from algorithm.network.package import INTENSITIES
from baseline.package.nnunet_results import channel_names
from contract import labels
from contract.errors import ModelPackageError
from contract.labels import LESIONS
from contract.options import mapping_text
from contract.packages import CHANNELS

IDENTITY: Final = (0, 1, 2)
_SPATIAL: Final = ("spacing", "patch_size", "median_image_size_in_voxels")
_ALIASES: Final = {"pt": "pet"}


@dataclass(frozen=True)
class TrainedOrder:
    """Numbers of a training's channels, and of its background, GTVp, GTVn and organs, with the organs' names.

    `names` are the edition's channels, `sees` the numbers of the training's channels among them, in ascending order.
    """

    channels: tuple[int, ...] = tuple(range(len(CHANNELS)))
    labels: tuple[int, ...] = tuple(range(len(LESIONS) + 1))
    organs: tuple[str, ...] = ()
    names: tuple[str, ...] = CHANNELS
    sees: tuple[int, ...] = tuple(range(len(CHANNELS)))

    @property
    def permutes_channels(self) -> bool:
        """True if the training has its channels in another order than the edition."""
        return self.channels != tuple(sorted(self.channels))

    @property
    def sees_all(self) -> bool:
        """True if the training has all of the edition's channels."""
        return len(self.sees) == len(self.names)

    def as_json(self) -> dict[str, Any]:
        """The numbers that differ from the algorithm's, by name, for the manifest."""
        record: dict[str, Any] = {}
        if self.permutes_channels or not self.sees_all:
            seen = [self.names[number] for number in self.sees]
            record["channels"] = dict(zip(seen, self.channels, strict=True))
        numbers = self.labels[: len(LESIONS) + 1]
        if numbers != TrainedOrder.labels:
            record["labels"] = dict(zip(LESIONS, numbers[1:], strict=True))
        return record | ({"organs": list(self.organs)} if self.organs else {})


OWN_ORDER: Final = TrainedOrder()


def trained_order(
    dataset: Mapping[str, Any],
    channels: Mapping[str, int] | None,
    lesions: tuple[int, ...] | None,
    wanted: tuple[str, ...] = CHANNELS,
) -> TrainedOrder:
    """Numbers of channels and labels in a training.

    Args:
        dataset: nnU-Net's `dataset.json`.
        channels: numbers of the training's channels by name; None if `dataset.json` has these names in order.
        lesions: numbers of GTVp and GTVn; None for 1 and 2.
        wanted: names of the edition's channels, of which the training has all or some.
    """
    names = _channel_names(channel_names(dataset), wanted)
    seen = _seen(names, wanted, channels)
    chosen = None if channels is None else tuple(channels[name] for name in seen)
    of_channels = _numbers(names, seen, "channel", chosen)
    named = _label_names(dataset.get("labels"))
    of_labels = _numbers(_lesion_names(named), LESIONS, "label", lesions)
    organs = sorted(named.keys() - set(of_labels))
    sees = tuple(wanted.index(name) for name in seen)
    organ_names = tuple(named[one] for one in organs)
    return TrainedOrder(of_channels, (labels.BACKGROUND, *of_labels, *organs), organ_names, wanted, sees)


def ordered_plans(plans: Mapping[str, Any], order: TrainedOrder) -> dict[str, Any]:
    """Plans whose normalisation and intensities are in the order of the edition's channels, with those that it sees."""
    if not order.sees_all:
        configurations = {name: {**one, "channels": list(order.sees)} for name, one in plans["configurations"].items()}
        plans = {**plans, "configurations": configurations}
    if order.organs:
        configurations = {name: _with_organs(one, order) for name, one in plans["configurations"].items()}
        plans = {**plans, "configurations": configurations}
    if not order.permutes_channels:
        return dict(plans)
    configurations = {name: _ordered_configuration(one, order) for name, one in plans["configurations"].items()}
    intensities = {str(to): plans[INTENSITIES][str(number)] for to, number in enumerate(order.channels)}
    return {**plans, "configurations": configurations, INTENSITIES: intensities}


def ordered_weights(
    weights: Mapping[str, torch.Tensor], network: nn.Module, order: TrainedOrder
) -> dict[str, torch.Tensor]:
    """Weights by name, input channels and outputs permuted; `network` is the one to which they belong."""
    # In order of registration: the first sees the image. Second names of shared tensors are left out.
    convolutions = [name for name, module in network.named_modules() if isinstance(module, nn.Conv3d)]
    permuted = dict(weights)
    if order.permutes_channels:
        first = f"{convolutions[0]}.weight"
        permuted[first] = weights[first][:, list(order.channels)]
    output_layers = backbone_of({"network_class_name": type(network).__name__}).output_layers
    for head in (name for name in convolutions if output_layers in name):
        for name in (f"{head}.weight", f"{head}.bias"):
            permuted[name] = weights[name][list(order.labels)]
    return permuted


def _ordered_configuration(configuration: Mapping[str, Any], order: TrainedOrder) -> dict[str, Any]:
    lists = ("normalization_schemes", "use_mask_for_norm")
    permuted = {
        key: [configuration[key][number] for number in order.channels] for key in lists if configuration.get(key)
    }
    return {**configuration, **permuted}


def _with_organs(configuration: Mapping[str, Any], order: TrainedOrder) -> dict[str, Any]:
    return {**configuration, "architecture": {**configuration["architecture"], "organs": list(order.organs)}}


def _channel_names(found: Any, wanted: Sequence[str]) -> dict[int, str]:
    """Name of each channel by its number."""
    names = {str(key): str(name) for key, name in found.items()} if isinstance(found, dict) else {}
    if not names or names.keys() != set(map(str, range(len(names)))) or len(names) > len(wanted):
        expected = f"channels 0, 1, ... with all or some of {', '.join(wanted)}"
        raise ModelPackageError("dataset.json", f"channel_names {found!r}", expected)
    return {int(number): name for number, name in names.items()}


def _seen(names: Mapping[int, str], wanted: Sequence[str], chosen: Mapping[str, int] | None) -> list[str]:
    """The edition's channels that a training has, in the order of the edition."""
    if chosen is not None:
        if len(chosen) != len(names) or not chosen.keys() <= set(wanted):
            expected = f"one of {', '.join(wanted)} for each of {_numbered(names)} of dataset.json"
            raise ModelPackageError("--channels", f"found {mapping_text(chosen)}", expected)
        return [name for name in wanted if name in chosen]
    if len(names) == len(wanted):
        return list(wanted)
    known = _known(names, wanted)
    if len(known) < len(names):
        by_number = {number: name for name, number in known.items()}
        numbers = ",".join(f"{by_number.get(number, 'NAME')}={number}" for number in sorted(names))
        expected = f"names among {', '.join(wanted)}, or --channels {shlex.quote(numbers)} with such names"
        raise ModelPackageError("dataset.json", f"channels {_numbered(names)}", expected)
    return list(known)


def _known(names: Mapping[int, str], wanted: Sequence[str]) -> dict[str, int]:
    """Numbers of those of `wanted` that occur among the names once: a name that occurs twice says nothing."""
    spelled = {number: _ALIASES.get(name.casefold(), name.casefold()) for number, name in names.items()}
    by_name = {name: number for number, name in spelled.items() if list(spelled.values()).count(name) == 1}
    return {name: by_name[name.casefold()] for name in wanted if name.casefold() in by_name}


def _numbered(names: Mapping[int, str]) -> str:
    return ", ".join(f"{number} {name!r}" for number, name in sorted(names.items()))


def _label_names(found: Any) -> dict[int, str]:
    """Name of each label but the background: the tumours, and perhaps organs."""
    wanted = {name: value for value, name in labels.NAMES.items()}
    given = {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
    if any(isinstance(value, list | tuple) for value in given.values()):
        raise ModelPackageError("dataset.json", f"labels {found!r} with regions", f"plain labels {wanted!r}")
    # nnU-Net does not predict the label to ignore
    named = {value: name for name, value in given.items() if name.casefold() != "ignore"}
    background = named.pop(labels.BACKGROUND, "").casefold()
    numbers = set(range(1, max(len(named), len(LESIONS)) + 1))
    if background != labels.NAMES[labels.BACKGROUND] or named.keys() != numbers:
        raise ModelPackageError("dataset.json", f"labels {found!r}", f"{wanted!r}")
    return named


def _lesion_names(named: Mapping[int, str]) -> dict[int, str]:
    """The two labels that are tumours: by their names among organs, else the first two."""
    tumours = {number: name for number, name in named.items() if name.casefold() in map(str.casefold, LESIONS)}
    if len(named) == len(LESIONS):
        return dict(named)
    if len(tumours) != len(LESIONS):
        raise ModelPackageError("dataset.json", f"labels {dict(named)!r}", f"{' and '.join(LESIONS)} among organs")
    return tumours


def _numbers(
    names: Mapping[int, str], wanted: Sequence[str], kind: str, chosen: tuple[int, ...] | None
) -> tuple[int, ...]:
    """The number of each of `wanted`; `names` has a name for each number, which may be one of other wording."""
    known = _known(names, wanted)
    if chosen is None and len(known) == len(wanted) and kind == "label" and max(known.values()) > len(wanted):
        return tuple(known.values())  # among organs the names decide
    in_order = dict(zip(wanted, sorted(names), strict=True))
    if chosen is not None:
        given = dict(zip(wanted, chosen, strict=True))
        if not set(chosen) <= names.keys():
            expected = f"{_numbered(names)} of dataset.json"
            raise ModelPackageError(f"--{kind}s", f"found {mapping_text(given)}", expected)
        for name, number in known.items():
            if given[name] != number:
                raise ModelPackageError(
                    f"--{kind}s", f"found {mapping_text(given)}", f"{name}={number}, as in dataset.json"
                )
        return chosen
    if known == in_order:
        return tuple(in_order.values())
    expected = ", ".join(f"{number} {name!r}" for name, number in in_order.items())
    raise ModelPackageError(
        "dataset.json", f"{kind}s {_numbered(names)}", f"{expected}, or {_suggestion(known, in_order, kind)}"
    )


def _suggestion(known: Mapping[str, int], in_order: Mapping[str, int], kind: str) -> str:
    """The option that describes the training; a name that is not known has the number that is left."""
    unknown = [name for name in in_order if name not in known]
    if len(unknown) > 1:
        form = ",".join(f"{name}=NUMBER" for name in in_order)
        return f"--{kind}s {shlex.quote(form)} with the numbers of the training"
    left = [number for number in in_order.values() if number not in known.values()]
    inferred = {**known, **dict(zip(unknown, left, strict=True))}
    condition = f" if {unknown[0]} is {kind} {left[0]}" if unknown else ""
    return f"--{kind}s {shlex.quote(mapping_text({name: inferred[name] for name in in_order}))}{condition}"


def axes_of(plans: Mapping[str, Any]) -> tuple[int, ...]:
    """`transpose_forward`: for each axis of the network's grid its axis of (z, y, x)."""
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
