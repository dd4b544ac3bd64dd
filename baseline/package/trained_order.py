"""Numbers of channels and labels in a training, which the package records for the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithm.network.package import CHANNELS as CHANNELS_KEY
from algorithm.network.package import LABELS as LABELS_KEY
from baseline.package.options import mapping_text
from contract import labels
from contract.errors import ModelPackageError
from contract.labels import LESIONS
from contract.packages import CHANNELS


@dataclass(frozen=True)
class TrainedOrder:
    """Numbers of channels and lesions in a training.

    Attributes:
        channels: The training's number of each of the edition's channels that it has, by name.
        lesions: The training's numbers of GTVp and GTVn.
        names: The edition's channels.
    """

    channels: Mapping[str, int]
    lesions: tuple[int, ...]
    names: tuple[str, ...] = CHANNELS

    def as_configuration(self) -> dict[str, list[int]]:
        """Return the order as entries of a configuration of nnU-Net's plans; none for the edition's order."""
        entries = {}
        sources = [self.names.index(name) for name in sorted(self.channels, key=self.channels.__getitem__)]
        if sources != list(range(len(self.names))):
            entries[CHANNELS_KEY] = sources
        if self.lesions != labels.FOREGROUND:
            numbers = (labels.BACKGROUND, *self.lesions)
            entries[LABELS_KEY] = [numbers.index(output) for output in range(len(numbers))]
        return entries

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return the numbers by name for the manifest; none for the edition's order."""
        record = {}
        if CHANNELS_KEY in self.as_configuration():
            record["channels"] = dict(self.channels)
        if self.lesions != labels.FOREGROUND:
            record["labels"] = dict(zip(LESIONS, self.lesions, strict=True))
        return record


def read_trained_order(
    dataset: Mapping[str, Any],
    channels: Mapping[str, int] | None,
    lesions: tuple[int, ...] | None,
    names: tuple[str, ...] = CHANNELS,
) -> TrainedOrder:
    """Read the numbers of channels and labels in a training.

    Args:
        dataset: nnU-Net's `dataset.json`.
        channels: Numbers of the training's channels by name; None if `dataset.json` has these names.
        lesions: Numbers of GTVp and GTVn; None if `dataset.json` has these names.
        names: The edition's channels; the training has all or some of them.

    Raises:
        ModelPackageError: `dataset.json` names other channels or labels, or contradicts the options.
    """
    numbers = _numbers("channel", _channel_names(channel_names(dataset), names), names, channels)
    ordered = {name: numbers[name] for name in names if name in numbers}
    return TrainedOrder(ordered, lesion_numbers(dataset, lesions), names)


def channel_names(dataset: Mapping[str, Any]) -> Any:
    """`channel_names` of a `dataset.json`, which old data sets call `modality`."""
    return dataset.get("channel_names", dataset.get("modality"))


def lesion_numbers(dataset: Mapping[str, Any], chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """The numbers of GTVp and GTVn by the option, else by the names in `dataset.json`."""
    given = None if chosen is None else dict(zip(LESIONS, chosen, strict=True))
    numbers = _numbers("label", _label_names(dataset.get("labels")), LESIONS, given)
    return tuple(numbers[name] for name in LESIONS)


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
