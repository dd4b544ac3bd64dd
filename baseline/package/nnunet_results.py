"""Read nnU-Net's results folder: plans, checkpoints of one training, and the masks of each fold's validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.network.package import INTENSITIES
from baseline.network.checkpoint import Checkpoint
from baseline.package.trained_order import channel_names, lesion_numbers
from baseline.release.cases import read_cases
from baseline.work import NNUNET_RESULTS, WorkFolders, require_nnunet_results
from contract.errors import InputError, ModelPackageError
from contract.io.files import read_json
from contract.patient import describe_id_difference, format_names
from contract.platform import compose, is_system_name

# Readers that keep the stored order of voxels; others turn them.
_READERS: Final = ("SimpleITKIO", "NibabelIO")
_MOST_NAMES: Final = 5

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


@dataclass(frozen=True)
class NnunetResults:
    """A results folder: nnU-Net's plans and `dataset.json`, and the checkpoints of the chosen folds.

    `configuration` is the last part of the folder's name.
    """

    name: str
    configuration: str
    plans: Mapping[str, Any]
    dataset: Mapping[str, Any]
    checkpoints: Mapping[str, Path]


def read_results(folder: Path, folds: Sequence[str] | None, checkpoint: str) -> NnunetResults:
    """Read a results folder.

    Args:
        folder: `DatasetXXX_Name/Trainer__Plans__Configuration`.
        folds: numbers or `all`; None stands for every numbered fold, or `all` if there is none.
        checkpoint: `final` or `best`.
    """
    require_nnunet_results(folder)
    folder = folder.resolve()
    plans, dataset = _object(folder / "plans.json"), _object(folder / "dataset.json")
    chosen = folds_of(folder) if folds is None else list(dict.fromkeys(folds))
    there = sorted(path.name.removeprefix("fold_") for path in folder.glob("fold_*") if path.is_dir())
    if absent := [fold for fold in chosen if fold not in there]:
        raise ModelPackageError("--folds", f"found {', '.join(absent)}", f"one of {', '.join(there)}")
    checkpoints = {fold: _checkpoint(folder, fold, checkpoint) for fold in chosen}
    configuration = folder.name.rpartition("__")[2]
    return NnunetResults(f"{folder.parent.name}-{folder.name}", configuration, plans, dataset, checkpoints)


def read_trained_plans(plans: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The plans with only the configuration `name`, its inherited values filled in."""
    configuration, intensities = resolved(plans, name, "plans.json")
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
        INTENSITIES: intensities,
        "configurations": {name: configuration},
    }


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path, error=ModelPackageError)
    if not isinstance(content, dict):
        raise ModelPackageError(path.name, f"found a {type(content).__name__}", "an object")
    return content


def folds_of(folder: Path) -> list[str]:
    """The numbers of the folds, or `all`."""
    numbered = sorted(int(path.name[5:]) for path in folder.glob("fold_*") if path.name[5:].isdecimal())
    if numbered:
        return [str(number) for number in numbered]
    if (folder / "fold_all").is_dir():
        return ["all"]
    raise ModelPackageError(folder.name, "no fold_<number> and no fold_all", NNUNET_RESULTS)


def _checkpoint(folder: Path, fold: str, which: str) -> Path:
    path = folder / f"fold_{fold}" / f"checkpoint_{which}.pth"
    if not path.is_file():
        there = sorted(other.name for other in path.parent.glob("checkpoint_*.pth"))
        other = {"final": "best", "best": "final"}[which]
        option = f", or --checkpoint {other}" if f"checkpoint_{other}.pth" in there else ""
        expected = f"{path.name}{option}; --folds leaves out unfinished folds"
        raise ModelPackageError(f"fold_{fold}", f"found {', '.join(there) or 'no checkpoint'}", expected)
    return path


def _check_configuration(configuration: Mapping[str, Any], name: str) -> None:
    spacing, previous = configuration.get("spacing"), configuration.get("previous_stage")
    preprocessor = configuration.get("preprocessor_name", "DefaultPreprocessor")
    three, masked = isinstance(spacing, list) and len(spacing) == 3, any(configuration.get("use_mask_for_norm", ()))
    cascade = f"{name} is the second stage of a cascade after {previous!r}"
    for fits, found, expected in (
        (three, f"{name} has spacing {spacing!r}", "a network of three dimensions"),
        (previous is None, cascade, "3d_fullres, or 3d_lowres on its own"),
        (preprocessor == "DefaultPreprocessor", f"preprocessor {preprocessor!r}", "DefaultPreprocessor"),
        (not masked, "use_mask_for_norm is true", "false: the algorithm normalises over all voxels"),
    ):
        if not fits:
            raise ModelPackageError("plans.json", found, expected)


def resolved(plans: Mapping[str, Any], name: str, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration `name` with its inherited values, and the intensities of each channel."""
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    try:
        manager = PlansManager(dict(plans))
        configuration = dict(manager.get_configuration(name).configuration)
        return configuration, dict(manager.foreground_intensity_properties_per_channel)
    except KeyError as problem:
        raise ModelPackageError(what, f"no {problem}", "nnU-Net's plans") from None
    except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
        raise ModelPackageError(what, f"not nnU-Net's plans for {name!r} ({problem})") from None


def check_same_training(checkpoint: Checkpoint, first: Checkpoint) -> None:
    """Check that a fold comes from the training of the first one; plans that it does not record are not compared."""
    for key in ("configuration", "mirror_axes"):
        found, wanted = getattr(checkpoint, key), getattr(first, key)
        if found != wanted:
            raise ModelPackageError(checkpoint.name, f"{key} {found!r}", f"{wanted!r} as in {first.name}")
    given, trained = _entries(checkpoint), _entries(first)
    for name in sorted(given.keys() & trained.keys()):
        if given[name] != trained[name]:
            raise ModelPackageError(
                checkpoint.name, f"trained with {name} {given[name]}", f"{trained[name]} as in {first.name}"
            )


def _entries(checkpoint: Checkpoint) -> dict[str, str]:
    """The recorded entries of plans and data set that change an answer, by name, as JSON."""
    entries: dict[str, Any] = {}
    if checkpoint.plans:
        configuration, intensities = resolved(checkpoint.plans, checkpoint.configuration, checkpoint.name)
        entries |= {key: configuration.get(key) for key in _OF_CONFIGURATION} | {INTENSITIES: intensities}
        entries |= {key: checkpoint.plans.get(key) for key in _OF_PLANS}
    if checkpoint.dataset:
        entries["channel_names"] = channel_names(checkpoint.dataset)
        entries |= {key: checkpoint.dataset.get(key) for key in ("labels", "regions_class_order")}
    return {name: json.dumps(value, sort_keys=True) for name, value in entries.items()}


@dataclass(frozen=True)
class FoldMasks:
    """Out-of-fold masks by patient ID, the numbers of GTVp and GTVn in them, and a line on their origin."""

    paths: Mapping[str, Path]
    lesions: tuple[int, ...]
    origin: str


def fold_masks(work: WorkFolders, folder: Path, lesions: tuple[int, ...] | None) -> FoldMasks:
    """A mask of each prepared patient by the network of a finished training that held the patient out.

    Args:
        work: the prepared working directory.
        folder: nnU-Net's results folder, whose `fold_*/validation` hold the masks.
        lesions: numbers of GTVp and GTVn; None if `dataset.json` has these names.

    Raises:
        HecktorError: no numbered folds, or a patient has no mask or several.
    """
    require_nnunet_results(folder)
    name, dataset = folder.resolve().name, read_json(folder / "dataset.json")
    masks = _validation_masks(folder, name, str(dataset.get("file_ending", ".nii.gz")))
    wanted = {case.patient_id for case in read_cases(work)}
    others = sorted(masks.keys() - wanted)
    if absent := sorted(wanted - masks.keys()):
        expected = (
            "one of each prepared patient (`nnUNetv2_train DATASET CONFIGURATION FOLD --val`, run in the environment "
            "of that training and not in this one, writes a fold's; docs/own-model.md#fit-heads-on-your-nnu-net)"
        )
        found = f"no mask of {format_names(absent, _MOST_NAMES)}"
        raise InputError(f"{name}/fold_*/validation", found, expected + describe_id_difference(others, absent))
    rest = f"; {format_names(others, _MOST_NAMES)} not prepared, left out" if others else ""
    origin = f"masks of nnU-Net's own validation, {name}/fold_*/validation{rest}"
    return FoldMasks({patient: masks[patient] for patient in sorted(wanted)}, lesion_numbers(dataset, lesions), origin)


def _validation_masks(folder: Path, name: str, ending: str) -> dict[str, Path]:
    """nnU-Net's own masks of the patients whom each fold held out, by patient ID."""
    masks: dict[str, Path] = {}
    for fold in folds_of(folder):
        if fold == "all":  # it is validated on its own training patients
            raise InputError(name, "found fold_all alone", "numbered folds, whose networks held patients out")
        for path in sorted((folder / f"fold_{fold}" / "validation").glob(f"*{ending}")):
            if is_system_name(path.name):
                continue
            patient = compose(path.name.removesuffix(ending))
            if patient in masks:
                twice = f"{patient} in the validation of fold {masks[patient].parts[-3][5:]} and of fold {fold}"
                raise InputError(name, twice, "each patient held out by one fold")
            masks[patient] = path
    return masks
