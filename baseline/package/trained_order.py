"""Order of a training's channels and labels, and networks rearranged to the edition's order.

Permuting the input channels of the first convolution and the outputs of the segmentation heads gives a network that
takes the edition's channels in their order (CT, PET) and returns background, GTVp and GTVn. The configuration of a
network with only some of the channels names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from algorithm.network.backbones import backbone_of
from algorithm.network.package import INTENSITIES
from baseline.package.options import mapping_text
from contract import labels
from contract.errors import ModelPackageError
from contract.labels import LESIONS
from contract.packages import CHANNELS


@dataclass(frozen=True)
class TrainedOrder:
    """Numbers of a training's channels, and of its background, GTVp and GTVn.

    `names` are the edition's channels, `sees` the numbers of the training's channels among them, in ascending order.
    """

    channels: tuple[int, ...] = tuple(range(len(CHANNELS)))
    labels: tuple[int, ...] = tuple(range(len(LESIONS) + 1))
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
        if self.labels != TrainedOrder.labels:
            record["labels"] = dict(zip(LESIONS, self.labels[1:], strict=True))
        return record


OWN_ORDER: Final = TrainedOrder()


def read_trained_order(
    dataset: Mapping[str, Any],
    channels: Mapping[str, int] | None,
    lesions: tuple[int, ...] | None,
    wanted: tuple[str, ...] = CHANNELS,
) -> TrainedOrder:
    """Numbers of channels and labels in a training.

    Args:
        dataset: nnU-Net's `dataset.json`.
        channels: numbers of the training's channels by name; None if `dataset.json` has these names.
        lesions: numbers of GTVp and GTVn; None if `dataset.json` has these names.
        wanted: names of the edition's channels, of which the training has all or some.
    """
    numbers = _numbers("channel", _channel_names(channel_names(dataset), wanted), wanted, channels)
    sees = tuple(place for place, name in enumerate(wanted) if name in numbers)
    order = tuple(numbers[wanted[place]] for place in sees)
    return TrainedOrder(order, (labels.BACKGROUND, *lesion_numbers(dataset, lesions)), wanted, sees)


def channel_names(dataset: Mapping[str, Any]) -> Any:
    """`channel_names` of a `dataset.json`, which old data sets call `modality`."""
    return dataset.get("channel_names", dataset.get("modality"))


def lesion_numbers(dataset: Mapping[str, Any], chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """The numbers of GTVp and GTVn by the option, else by the names in `dataset.json`."""
    given = None if chosen is None else dict(zip(LESIONS, chosen, strict=True))
    numbers = _numbers("label", _label_names(dataset.get("labels")), LESIONS, given)
    return tuple(numbers[name] for name in LESIONS)


def reorder_plans(plans: Mapping[str, Any], order: TrainedOrder) -> dict[str, Any]:
    """Plans whose normalisation and intensities are in the order of the edition's channels, with those that it sees."""
    if not order.sees_all:
        configurations = {name: {**one, "channels": list(order.sees)} for name, one in plans["configurations"].items()}
        plans = {**plans, "configurations": configurations}
    if not order.permutes_channels:
        return dict(plans)
    configurations = {name: _ordered_configuration(one, order) for name, one in plans["configurations"].items()}
    intensities = {str(to): plans[INTENSITIES][str(number)] for to, number in enumerate(order.channels)}
    return {**plans, "configurations": configurations, INTENSITIES: intensities}


def reorder_weights(
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


def _channel_names(found: Any, wanted: Sequence[str]) -> dict[int, str]:
    """Return the name of each channel by its number n, the one of its files `CASE_000n`.

    nnU-Net counts the entries and ignores their keys, so that keys such as "CT" or "0001" are accepted. Keys that are
    all numbers give the order of the channels; other keys have the order of the file.
    """
    names = {str(key): str(name) for key, name in found.items()} if isinstance(found, dict) else {}
    if not 0 < len(names) <= len(wanted):
        expected = f"channels 0, 1, ... with all or some of {', '.join(wanted)}"
        raise ModelPackageError("dataset.json", f"channel_names {found!r}", expected)
    keys = list(names)
    if all(key.isascii() and key.isdecimal() for key in keys):
        keys.sort(key=int)
    return {number: names[key] for number, key in enumerate(keys)}


def _label_names(found: Any) -> dict[int, str]:
    """Name of GTVp and GTVn by their number, which may be of other wording."""
    wanted = {name: value for value, name in labels.NAMES.items()}
    given = {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
    if any(isinstance(value, list | tuple) for value in given.values()):
        raise ModelPackageError("dataset.json", f"labels {found!r} with regions", f"plain labels {wanted!r}")
    # nnU-Net does not predict the label to ignore
    named = {value: name for name, value in given.items() if name.casefold() != "ignore"}
    background = named.pop(labels.BACKGROUND, "").casefold()
    if background != labels.NAMES[labels.BACKGROUND] or named.keys() != set(labels.FOREGROUND):
        raise ModelPackageError("dataset.json", f"labels {found!r}", f"{wanted!r}")
    return named


def _numbers(
    kind: str, names: Mapping[int, str], wanted: Sequence[str], chosen: Mapping[str, int] | None
) -> dict[str, int]:
    """The number of each of `wanted` that the training has: by the option, else by the names in `dataset.json`.

    A name that occurs twice says nothing.
    """
    folded = {number: name.casefold() for number, name in names.items()}
    by_name = {name: number for number, name in folded.items() if list(folded.values()).count(name) == 1}
    known = {name: by_name[name.casefold()] for name in wanted if name.casefold() in by_name}
    listed = ", ".join(f"{number} {name!r}" for number, name in sorted(names.items()))
    if chosen is None:
        if len(known) < len(names):
            form = ",".join(f"NAME={number}" for number in sorted(names))
            expected = f"names among {', '.join(wanted)}, or --{kind}s {form} with such names"
            raise ModelPackageError("dataset.json", f"{kind}s {listed}", expected)
        return known
    found = f"found {mapping_text(chosen)}"
    if sorted(chosen.values()) != sorted(names) or not chosen.keys() <= set(wanted):
        expected = f"one of {', '.join(wanted)} for each of {listed} of dataset.json"
        raise ModelPackageError(f"--{kind}s", found, expected)
    for name, number in known.items():
        if chosen.get(name) != number:
            raise ModelPackageError(f"--{kind}s", found, f"{name}={number}, as in dataset.json")
    return dict(chosen)
