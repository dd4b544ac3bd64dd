"""Numbers of channels and labels in a training, from options or `dataset.json`.

The package records them for the algorithm, which uses the weights as they were trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract import labels
from contract.errors import ModelPackageError
from contract.labels import LESIONS
from contract.packages import CHANNEL_NUMBERS, CHANNELS, LABEL_NUMBERS


def parse_named_numbers(text: str) -> dict[str, int]:
    """Parse different numbers by name, such as CT=1,PET=0; raise `argparse.ArgumentTypeError` for any other text."""
    pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
    numbers = {name: int(value) for name, value in pairs if name and value.isdecimal()}
    if len(set(numbers.values())) < len(pairs):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected different numbers by name, such as CT=1,PET=0")
    return numbers


def parse_lesion_numbers(text: str) -> tuple[int, ...]:
    """Parse the numbers of GTVp and GTVn, from 1; raise `argparse.ArgumentTypeError` for any other text."""
    try:
        numbers = parse_named_numbers(text)
    except argparse.ArgumentTypeError:
        numbers = {}
    if numbers.keys() != set(LESIONS) or min(numbers.values()) < 1:
        usual = _format_numbers({name: number for number, name in enumerate(LESIONS, start=1)})
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {usual} or other numbers from 1")
    return tuple(numbers[name] for name in LESIONS)


def _format_numbers(numbers: Mapping[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in numbers.items())


@dataclass(frozen=True)
class Numbering:
    """Numbers of channels and lesions in a training.

    Attributes:
        channels: Number in the training of each channel that the training sees, by the edition's name.
        lesions: The training's numbers of GTVp and GTVn.
        names: The edition's channels.
    """

    channels: Mapping[str, int]
    lesions: tuple[int, ...]
    names: tuple[str, ...] = CHANNELS

    def to_configuration(self) -> dict[str, list[int]]:
        """Return the entries for a configuration of nnU-Net's plans; they are empty for the edition's order."""
        entries = {}
        sources = [self.names.index(name) for name in sorted(self.channels, key=self.channels.__getitem__)]
        if sources != list(range(len(self.names))):
            entries[CHANNEL_NUMBERS] = sources
        if self.lesions != labels.FOREGROUND:
            numbers = (labels.BACKGROUND, *self.lesions)
            entries[LABEL_NUMBERS] = [numbers.index(output) for output in range(len(numbers))]
        return entries

    def to_manifest(self) -> dict[str, dict[str, int]]:
        """Return the numbers by name for the manifest; they are empty for the edition's order."""
        entries = {}
        configuration = self.to_configuration()
        if CHANNEL_NUMBERS in configuration:
            entries["channels"] = dict(self.channels)
        if LABEL_NUMBERS in configuration:
            entries["labels"] = dict(zip(LESIONS, self.lesions, strict=True))
        return entries


def read_numbering(
    dataset: Mapping[str, Any],
    channels: Mapping[str, int] | None,
    lesions: tuple[int, ...] | None,
    names: tuple[str, ...] = CHANNELS,
) -> Numbering:
    """Read the numbers of channels and labels in a training.

    Args:
        dataset: nnU-Net's `dataset.json`.
        channels: Numbers of the training's channels by name; None if `dataset.json` has these names.
        lesions: Numbers of GTVp and GTVn; None if `dataset.json` has these names.
        names: The edition's channels. The training has all or some of them.

    Raises:
        ModelPackageError: `dataset.json` has other channels or labels, or contradicts the options.
    """
    numbers = _find_numbers("channel", _read_channels(dataset, names), names, channels)
    ordered = {name: numbers[name] for name in names if name in numbers}
    return Numbering(ordered, read_lesion_numbers(dataset, lesions), names)


def read_lesion_numbers(dataset: Mapping[str, Any], lesions: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the numbers of GTVp and GTVn by the option, otherwise by the names in `dataset.json`.

    Raises:
        ModelPackageError: As `read_numbering`.
    """
    option = None if lesions is None else dict(zip(LESIONS, lesions, strict=True))
    numbers = _find_numbers("label", _read_labels(dataset), LESIONS, option)
    return tuple(numbers[name] for name in LESIONS)


def find_channel_names(dataset: Mapping[str, Any]) -> Any:
    """Return `channel_names` of a `dataset.json`, which old data sets call `modality`."""
    return dataset.get("channel_names", dataset.get("modality"))


def _read_channels(dataset: Mapping[str, Any], names: Sequence[str]) -> dict[int, str]:
    """Read the name of each channel by its number n, the number in its files `CASE_000n`.

    nnU-Net counts the entries and ignores their keys, so keys such as "CT" or "0001" are accepted. Keys that are all
    numbers give the order of the channels; other keys have the order of the file.
    """
    content = find_channel_names(dataset)
    name_of = {str(key): str(name) for key, name in content.items()} if isinstance(content, dict) else {}
    if not 0 < len(name_of) <= len(names):
        expected = f"channels 0, 1, ... with all or some of {', '.join(names)}"
        raise ModelPackageError("dataset.json", f"channel_names {content!r}", expected)
    keys = list(name_of)
    if all(key.isascii() and key.isdecimal() for key in keys):
        keys.sort(key=int)
    return {number: name_of[key] for number, key in enumerate(keys)}


def _read_labels(dataset: Mapping[str, Any]) -> dict[int, str]:
    """Read the names of the two lesion labels by their numbers; the names may differ from the edition's names."""
    content = dataset.get("labels")
    usual = {name: value for value, name in labels.NAMES.items()}
    number_of = {str(name): number for name, number in content.items()} if isinstance(content, dict) else {}
    if any(isinstance(number, list | tuple) for number in number_of.values()):
        raise ModelPackageError("dataset.json", f"labels {content!r} with regions", f"plain labels {usual!r}")
    # nnU-Net does not predict the label `ignore`.
    name_of = {number: name for name, number in number_of.items() if name.casefold() != "ignore"}
    background = name_of.pop(labels.BACKGROUND, "").casefold()
    if background != labels.NAMES[labels.BACKGROUND] or name_of.keys() != set(labels.FOREGROUND):
        raise ModelPackageError("dataset.json", f"labels {content!r}", f"{usual!r}")
    return name_of


def _find_numbers(
    kind: str, name_of: Mapping[int, str], wanted: Sequence[str], option: Mapping[str, int] | None
) -> dict[str, int]:
    """Find the number of each of the `wanted` names that the training has.

    Args:
        kind: `channel` or `label`, for messages.
        name_of: The names in `dataset.json` by number. A name that occurs twice is ignored.
        wanted: Names of the edition.
        option: Numbers by name from the command line; None takes the names in `dataset.json`.

    Raises:
        ModelPackageError: A name is unknown and there is no option, or the option does not fit the names.
    """
    folded = [name.casefold() for name in name_of.values()]
    unique = {name.casefold(): number for number, name in name_of.items() if folded.count(name.casefold()) == 1}
    known = {name: unique[name.casefold()] for name in wanted if name.casefold() in unique}
    listed = ", ".join(f"{number} {name!r}" for number, name in sorted(name_of.items()))
    if option is None:
        if len(known) < len(name_of):
            form = ",".join(f"NAME={number}" for number in sorted(name_of))
            expected = f"names among {', '.join(wanted)}, or --{kind}s {form} with such names"
            raise ModelPackageError("dataset.json", f"{kind}s {listed}", expected)
        return known
    actual = f"found {_format_numbers(option)}"
    if sorted(option.values()) != sorted(name_of) or not option.keys() <= set(wanted):
        expected = f"one of {', '.join(wanted)} for each of {listed} of dataset.json"
        raise ModelPackageError(f"--{kind}s", actual, expected)
    for name, number in known.items():
        if option.get(name) != number:
            raise ModelPackageError(f"--{kind}s", actual, f"{name}={number}, as in dataset.json")
    return dict(option)
