"""Compare a results folder with the training that its checkpoints record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from algorithm.network.package import INTENSITIES
from baseline.network.checkpoint import Checkpoint
from contract.errors import ModelPackageError

# Entries that change an answer; others concern training alone, such as batch_size and resampling_fn_seg.
_OF_PLANS: Final = ("transpose_forward", "transpose_backward", "image_reader_writer", "label_manager")
_OF_CONFIGURATION: Final = (
    "spacing",
    "patch_size",
    "normalization_schemes",
    "use_mask_for_norm",
    "preprocessor_name",
    "previous_stage",
    "resampling_fn_data",
    "resampling_fn_data_kwargs",
    "resampling_fn_probabilities",
    "resampling_fn_probabilities_kwargs",
    "architecture",
)

Difference = tuple[str, Any, Any]


def resolved(plans: Mapping[str, Any], name: str, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration `name` with its inherited values, and the intensities of each channel.

    Raises:
        ModelPackageError: `what` does not hold nnU-Net's plans with this configuration.
    """
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    try:
        manager = PlansManager(dict(plans))
        configuration = dict(manager.get_configuration(name).configuration)
        return configuration, dict(manager.foreground_intensity_properties_per_channel)
    except KeyError as problem:
        raise ModelPackageError(what, f"no {problem}", "nnU-Net's plans") from None
    except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
        raise ModelPackageError(what, f"not nnU-Net's plans for {name!r} ({problem})") from None


def check_same_training(
    checkpoint: Checkpoint, first: Checkpoint, plans: Mapping[str, Any], dataset: Mapping[str, Any]
) -> None:
    """Check that a fold comes from the training of the first one and of the files beside them.

    Plans or data set that a checkpoint does not record are not compared.

    Raises:
        ModelPackageError: another configuration, other mirror axes, plans or data set.
    """
    for key in ("configuration", "mirror_axes"):
        found, wanted = getattr(checkpoint, key), getattr(first, key)
        if found != wanted:
            raise ModelPackageError(checkpoint.name, f"{key} {found!r}", f"{wanted!r} as in {first.name}")
    for file, fields in (
        ("plans.json", plan_differences(plans, checkpoint)),
        ("dataset.json", dataset_differences(dataset, checkpoint)),
    ):
        for field, found, trained in fields:
            if checkpoint.name == first.name:
                expected = f"{_shown(trained)}, with which {checkpoint.name} was trained"
                raise ModelPackageError(file, f"{field} {_shown(found)}", expected)
            # The file agrees with the first fold, so this one belongs to another training.
            fault = f"trained with {field} {_shown(trained)}"
            raise ModelPackageError(checkpoint.name, fault, f"{_shown(found)} ({file})")


def plan_differences(plans: Mapping[str, Any], checkpoint: Checkpoint) -> Iterator[Difference]:
    """Name, value and trained value of each entry that differs, inherited values filled in on both sides."""
    if not checkpoint.plans:
        return
    name = checkpoint.configuration
    given, trained = resolved(plans, name, "plans.json"), resolved(checkpoint.plans, name, checkpoint.name)
    for key in _OF_PLANS:
        yield from differences(plans.get(key), checkpoint.plans.get(key), key)
    for key in _OF_CONFIGURATION:
        yield from differences(given[0].get(key), trained[0].get(key), key)
    yield from intensity_differences(given[1], trained[1])


def dataset_differences(dataset: Mapping[str, Any], checkpoint: Checkpoint) -> Iterator[Difference]:
    """Name, value and trained value of each entry about channels and labels that differs."""
    if not checkpoint.dataset:
        return
    yield from differences(channel_names(dataset), channel_names(checkpoint.dataset), "channel_names")
    for key in ("labels", "regions_class_order"):
        yield from differences(dataset.get(key), checkpoint.dataset.get(key), key)


def channel_names(dataset: Mapping[str, Any]) -> Any:
    """`channel_names` of a `dataset.json`, which old data sets call `modality`."""
    return dataset.get("channel_names", dataset.get("modality"))


def intensity_differences(given: Mapping[str, Any], trained: Mapping[str, Any]) -> Iterator[Difference]:
    """Each intensity that differs, named by channel."""
    for channel in sorted(given.keys() | trained.keys()):
        title = f"{INTENSITIES} of channel {channel}:"
        for field, found, expected in differences(given.get(channel), trained.get(channel), title):
            yield field.replace(":.", ": "), found, expected


def differences(given: Any, trained: Any, field: str) -> Iterator[Difference]:
    """Name and both values of every leaf that differs; an absent entry equals null, a tuple equals a list."""
    given, trained = _plain(given), _plain(trained)
    if isinstance(given, dict) and isinstance(trained, dict):
        for key in sorted(given.keys() | trained.keys()):
            yield from differences(given.get(key), trained.get(key), f"{field}.{key}")
    elif json.dumps(given) != json.dumps(trained) and given != trained:  # NaN equals itself only as text
        yield field, given, trained


def _plain(value: Any) -> Any:
    """The value as JSON would return it; NumPy numbers, which a checkpoint may hold, become plain ones."""
    return json.loads(json.dumps(value, default=lambda one: one.item() if isinstance(one, np.generic) else str(one)))


def _shown(value: Any) -> str:
    return "null" if value is None else repr(value)
