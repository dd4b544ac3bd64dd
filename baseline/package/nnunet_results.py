"""Read nnU-Net's results folder and check that the algorithm can run its networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.network.package import CHANNELS
from baseline.package.checkpoint import Checkpoint
from contract import labels
from contract.errors import ModelPackageError
from contract.files import read_json

# Accepted names of the channels in `dataset.json`, in small letters.
_CHANNEL_NAMES: Final = (("ct",), ("pet", "pt"))
# Readers that keep the stored order of voxels; others turn them.
_READERS: Final = ("SimpleITKIO", "NibabelIO")
_EXPECTED: Final = "expected nnU-Net's results, DatasetXXX_Name/Trainer__Plans__3d_fullres with plans.json"


@dataclass(frozen=True)
class NnunetResults:
    """A results folder: nnU-Net's plans, and the checkpoints of the chosen folds."""

    name: str
    plans: Mapping[str, Any]
    checkpoints: Mapping[str, Path]


def read_results(folder: Path, folds: Sequence[str] | None, checkpoint: str) -> NnunetResults:
    """Read a results folder.

    Args:
        folder: `DatasetXXX_Name/Trainer__Plans__Configuration`.
        folds: numbers or `all`; None stands for every numbered fold, or `all` if there is none.
        checkpoint: `final` or `best`.

    Raises:
        ModelPackageError: not a results folder, other channels or labels, or a fold without the checkpoint.
    """
    if not folder.is_dir():
        raise ModelPackageError(folder.name, f"no such folder, {_EXPECTED}")
    folder = folder.resolve()
    if not (folder / "plans.json").is_file():
        below = sorted(path.parent.name for path in folder.glob("*/plans.json"))
        found = f"found {', '.join(below)} below, name one of them" if below else _EXPECTED
        raise ModelPackageError(folder.name, f"no plans.json, {found}")
    plans, dataset = _object(folder / "plans.json"), _object(folder / "dataset.json")
    _check_channels(dataset)
    _check_labels(dataset)
    chosen = _folds(folder) if folds is None else list(dict.fromkeys(folds))
    checkpoints = {fold: _checkpoint(folder, fold, checkpoint) for fold in chosen}
    return NnunetResults(f"{folder.parent.name}-{folder.name}", plans, checkpoints)


def trained_plans(plans: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The plans with only the configuration `name`, its inherited values filled in.

    Raises:
        ModelPackageError: not nnU-Net's plans, or unsupported: two dimensions, a cascade, another preprocessor, reader
            or label manager, or normalisation within a mask.
    """
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    try:
        manager = PlansManager(dict(plans))
        configuration = dict(manager.get_configuration(name).configuration)
        intensities = manager.foreground_intensity_properties_per_channel
    except (KeyError, RuntimeError, TypeError, ValueError) as problem:
        raise ModelPackageError("plans.json", f"not nnU-Net's plans for {name!r} ({problem})") from None
    for key in ("inherits_from", "next_stage"):
        configuration.pop(key, None)
    _check_configuration(configuration, name)
    for key, wanted in (("label_manager", ("LabelManager",)), ("image_reader_writer", _READERS)):
        if plans.get(key, wanted[0]) not in wanted:
            raise ModelPackageError("plans.json", f"{key} {plans[key]!r}", f"{' or '.join(wanted)}")
    return {
        "plans_name": str(plans.get("plans_name", "")),
        "label_manager": "LabelManager",
        "transpose_forward": plans.get("transpose_forward", [0, 1, 2]),
        "foreground_intensity_properties_per_channel": intensities,
        "configurations": {name: configuration},
    }


def check_same_training(checkpoint: Checkpoint, first: Checkpoint, plans: Mapping[str, Any]) -> None:
    """Check that a fold comes from the same training as the first one and the plans.

    Raises:
        ModelPackageError: another configuration, other mirror axes or other plans.
    """
    for key in ("configuration", "mirror_axes"):
        found, wanted = getattr(checkpoint, key), getattr(first, key)
        if found != wanted:
            raise ModelPackageError(checkpoint.name, f"{key} {found!r}", f"{wanted!r} as in {first.name}")
    if not checkpoint.plans:
        return
    trained, wanted = (_defining(one, checkpoint.configuration) for one in (checkpoint.plans, plans))
    for key, found in trained.items():
        if found != wanted[key]:
            raise ModelPackageError(checkpoint.name, f"trained with {key} {found!r}", f"{wanted[key]!r} (plans.json)")


def _defining(plans: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The values that all folds of a training share."""
    configuration = plans.get("configurations", {}).get(name, {})
    values = {key: configuration.get(key) for key in ("spacing", "normalization_schemes")}
    intensities = "foreground_intensity_properties_per_channel"
    return {"transpose_forward": plans.get("transpose_forward"), **values, intensities: plans.get(intensities)}


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path, error=ModelPackageError)
    if not isinstance(content, dict):
        raise ModelPackageError(path.name, f"found a {type(content).__name__}", "an object")
    return content


def _check_channels(dataset: Mapping[str, Any]) -> None:
    found = dataset.get("channel_names", dataset.get("modality"))
    names = [found.get(str(number)) for number in range(len(found))] if isinstance(found, dict) else []
    fits = (str(name).casefold() in known for name, known in zip(names, _CHANNEL_NAMES, strict=False))
    if len(names) != len(CHANNELS) or not all(fits):
        raise ModelPackageError(
            "dataset.json",
            f"channel_names {found!r}",
            f"{dict(enumerate(CHANNELS))!r}; rename them in dataset.json if they are these two in this order "
            "(plans.json defines their normalisation)",
        )


def _check_labels(dataset: Mapping[str, Any]) -> None:
    found = dataset.get("labels")
    wanted = {name: value for value, name in labels.NAMES.items()}
    known = {str(key).casefold(): value for key, value in found.items()} if isinstance(found, dict) else {}
    known.pop("ignore", None)
    if any(isinstance(value, list) for value in known.values()):
        raise ModelPackageError("dataset.json", f"labels {found!r} with regions", f"plain labels {wanted!r}")
    if known != {name.casefold(): value for name, value in wanted.items()}:
        raise ModelPackageError("dataset.json", f"labels {found!r}", f"{wanted!r}")


def _folds(folder: Path) -> list[str]:
    numbered = sorted(int(path.name[5:]) for path in folder.glob("fold_*") if path.name[5:].isdecimal())
    if numbered:
        return [str(number) for number in numbered]
    if (folder / "fold_all").is_dir():
        return ["all"]
    raise ModelPackageError(folder.name, f"no fold_<number> and no fold_all, {_EXPECTED}")


def _checkpoint(folder: Path, fold: str, which: str) -> Path:
    path = folder / f"fold_{fold}" / f"checkpoint_{which}.pth"
    if not path.is_file():
        there = sorted(other.name for other in path.parent.glob("checkpoint_*.pth"))
        found = f"found {', '.join(there)}" if there else "found none"
        raise ModelPackageError(
            f"fold_{fold}", f"no {path.name}, {found}; expected it, or name finished folds with --folds"
        )
    return path


def _check_configuration(configuration: Mapping[str, Any], name: str) -> None:
    spacing, previous = configuration.get("spacing"), configuration.get("previous_stage")
    preprocessor = configuration.get("preprocessor_name", "DefaultPreprocessor")
    three, masked = isinstance(spacing, list) and len(spacing) == 3, any(configuration.get("use_mask_for_norm", ()))
    cascade = f"{name} is the second stage of a cascade after {previous!r}"
    for fits, found, expected in (
        (three, f"{name} has spacing {spacing!r}", "a network of three dimensions"),
        (previous is None, cascade, "3d_fullres on its own"),
        (preprocessor == "DefaultPreprocessor", f"preprocessor {preprocessor!r}", "DefaultPreprocessor"),
        (not masked, "use_mask_for_norm is true", "false: the algorithm normalises over all voxels"),
    ):
        if not fits:
            raise ModelPackageError("plans.json", found, expected)
