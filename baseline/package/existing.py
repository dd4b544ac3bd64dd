"""Networks trained elsewhere: nnU-Net's results folder, and a package whose networks a working directory uses."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from algorithm.network.package import INTENSITIES, ModelPackage, load_package
from baseline.package.numbering import find_channel_names, read_lesion_numbers
from baseline.release.cases import read_cases
from baseline.work import NNUNET_RESULTS, WorkFolders, read_preparation, require_nnunet_results
from contract.archives import unpack
from contract.errors import HecktorError, InputError, ModelPackageError
from contract.io.files import read_json
from contract.packages import MANIFEST, check_is_package, make_file_entry
from contract.patient import describe_id_difference, format_names
from contract.platform import is_system_name, normalise_unicode

if TYPE_CHECKING:  # imports torch, which reading a package does not need
    from baseline.network.checkpoint import Checkpoint

# Readers that keep the stored order of voxels; other readers change it.
_READERS: Final = ("SimpleITKIO", "NibabelIO")
# Maximum number of patients in a message.
_MAX_NAMES: Final = 5

# Entries of plans and configuration that change an answer. Other entries concern only training, such as batch_size and
# resampling_fn_seg.
_PLAN_KEYS: Final = ("transpose_forward", "transpose_backward", "image_reader_writer", "label_manager")
_CONFIGURATION_KEYS: Final = (
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

# Smaller differences come from rounding.
_MAX_ROUNDING_MM: Final = 1e-3
CONDITION: Final = "none of these patients was among the networks' training patients"


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
        folds: Numbers or `all`; None takes every numbered fold, or `all` if no fold has a number.
        checkpoint: `final` or `best`.

    Raises:
        ModelPackageError: A file or a fold is missing in the folder.
    """
    require_nnunet_results(folder)
    folder = folder.resolve()
    plans, dataset = _read_object(folder / "plans.json"), _read_object(folder / "dataset.json")
    chosen = list_folds(folder) if folds is None else list(dict.fromkeys(folds))
    existing = sorted(path.name.removeprefix("fold_") for path in folder.glob("fold_*") if path.is_dir())
    absent = [fold for fold in chosen if fold not in existing]
    if absent:
        raise ModelPackageError("--folds", f"found {', '.join(absent)}", f"one of {', '.join(existing)}")
    checkpoints = {fold: _find_checkpoint(folder, fold, checkpoint) for fold in chosen}
    configuration = folder.name.rpartition("__")[2]
    return NnunetResults(f"{folder.parent.name}-{folder.name}", configuration, plans, dataset, checkpoints)


def read_trained_plans(plans: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the plans with only the configuration `name`, including its inherited values.

    Raises:
        ModelPackageError: The algorithm cannot run a network with this configuration.
    """
    configuration, intensities = resolve_configuration(plans, name, "plans.json")
    for key in ("inherits_from", "next_stage"):
        configuration.pop(key, None)
    _check_configuration(configuration, name)
    for key, accepted in (("label_manager", ("LabelManager",)), ("image_reader_writer", _READERS)):
        if plans.get(key, accepted[0]) not in accepted:
            raise ModelPackageError("plans.json", f"{key} {plans[key]!r}", f"{' or '.join(accepted)}")
    return {
        "plans_name": str(plans.get("plans_name", "")),
        "label_manager": "LabelManager",
        "transpose_forward": plans.get("transpose_forward", [0, 1, 2]),
        INTENSITIES: intensities,
        "configurations": {name: configuration},
    }


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path, error=ModelPackageError)
    if not isinstance(content, dict):
        raise ModelPackageError(path.name, f"found a {type(content).__name__}", "an object")
    return content


def list_folds(folder: Path) -> list[str]:
    """List the numbers of the folds, or `all`; raise `ModelPackageError` if there is no fold."""
    numbers = sorted(int(path.name[5:]) for path in folder.glob("fold_*") if path.name[5:].isdecimal())
    if numbers:
        return [str(number) for number in numbers]
    if (folder / "fold_all").is_dir():
        return ["all"]
    raise ModelPackageError(folder.name, "no fold_<number> and no fold_all", NNUNET_RESULTS)


def _find_checkpoint(folder: Path, fold: str, kind: str) -> Path:
    """Find the `final` or `best` checkpoint of a fold; raise `ModelPackageError` if it does not exist."""
    path = folder / f"fold_{fold}" / f"checkpoint_{kind}.pth"
    if not path.is_file():
        existing = sorted(checkpoint.name for checkpoint in path.parent.glob("checkpoint_*.pth"))
        alternative = {"final": "best", "best": "final"}[kind]
        option = f", or --checkpoint {alternative}" if f"checkpoint_{alternative}.pth" in existing else ""
        expected = f"{path.name}{option}; --folds leaves out unfinished folds"
        raise ModelPackageError(f"fold_{fold}", f"found {', '.join(existing) or 'no checkpoint'}", expected)
    return path


def _check_configuration(configuration: Mapping[str, Any], name: str) -> None:
    """Check that the algorithm's preprocessing is what the configuration says."""
    spacing = configuration.get("spacing")
    if not isinstance(spacing, list) or len(spacing) != 3:
        raise ModelPackageError("plans.json", f"{name} has spacing {spacing!r}", "a network of three dimensions")
    previous = configuration.get("previous_stage")
    if previous is not None:
        actual = f"{name} is the second stage of a cascade after {previous!r}"
        raise ModelPackageError("plans.json", actual, "3d_fullres, or 3d_lowres on its own")
    preprocessor = configuration.get("preprocessor_name", "DefaultPreprocessor")
    if preprocessor != "DefaultPreprocessor":
        raise ModelPackageError("plans.json", f"preprocessor {preprocessor!r}", "DefaultPreprocessor")
    if any(configuration.get("use_mask_for_norm", ())):
        expected = "false: the algorithm normalises over all voxels"
        raise ModelPackageError("plans.json", "use_mask_for_norm is true", expected)


def resolve_configuration(plans: Mapping[str, Any], name: str, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration `name` with its inherited values, and the intensities of each channel.

    Raises:
        ModelPackageError: The content of `what` is not nnU-Net's plans with this configuration.
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


def check_same_training(checkpoint: Checkpoint, first: Checkpoint) -> None:
    """Check that a checkpoint comes from the training of the first fold.

    Plans and data set are compared only if both checkpoints record them.

    Raises:
        ModelPackageError: An entry that changes an answer differs.
    """
    for key in ("configuration", "mirror_axes"):
        actual, expected = getattr(checkpoint, key), getattr(first, key)
        if actual != expected:
            raise ModelPackageError(checkpoint.name, f"{key} {actual!r}", f"{expected!r} as in {first.name}")
    entries, first_entries = _list_entries(checkpoint), _list_entries(first)
    for name in sorted(entries.keys() & first_entries.keys()):
        if entries[name] != first_entries[name]:
            actual, expected = f"trained with {name} {entries[name]}", f"{first_entries[name]} as in {first.name}"
            raise ModelPackageError(checkpoint.name, actual, expected)


def _list_entries(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the recorded entries of plans and data set that change an answer, by name, as JSON."""
    entries: dict[str, Any] = {}
    if checkpoint.plans:
        configuration, intensities = resolve_configuration(checkpoint.plans, checkpoint.configuration, checkpoint.name)
        entries |= {key: configuration.get(key) for key in _CONFIGURATION_KEYS} | {INTENSITIES: intensities}
        entries |= {key: checkpoint.plans.get(key) for key in _PLAN_KEYS}
    if checkpoint.dataset:
        entries["channel_names"] = find_channel_names(checkpoint.dataset)
        entries |= {key: checkpoint.dataset.get(key) for key in ("labels", "regions_class_order")}
    return {name: json.dumps(value, sort_keys=True) for name, value in entries.items()}


@dataclass(frozen=True)
class FoldMasks:
    """Out-of-fold masks by patient ID, the numbers of GTVp and GTVn in them, and a sentence on their origin."""

    paths: Mapping[str, Path]
    lesions: tuple[int, ...]
    origin: str


def find_fold_masks(work: WorkFolders, folder: Path, lesions: tuple[int, ...] | None) -> FoldMasks:
    """Find the mask of each prepared patient by the network of a finished training that held the patient out.

    Args:
        work: The prepared working directory.
        folder: nnU-Net's results folder, whose folders `fold_*/validation` have the masks.
        lesions: Numbers of GTVp and GTVn; None if `dataset.json` has these names.

    Raises:
        HecktorError: There are no numbered folds, or a patient has no mask or several.
    """
    require_nnunet_results(folder)
    name = folder.resolve().name
    dataset = read_json(folder / "dataset.json")
    masks = _list_validation_masks(folder, name, str(dataset.get("file_ending", ".nii.gz")))
    prepared = {case.patient_id for case in read_cases(work)}
    unprepared = sorted(masks.keys() - prepared)
    absent = sorted(prepared - masks.keys())
    if absent:
        expected = (
            "one of each prepared patient (`nnUNetv2_train DATASET CONFIGURATION FOLD --val`, run in the environment "
            "of that training, not in this one, writes them for a fold; docs/own-model.md#fit-heads-on-your-nnu-net)"
        )
        actual = f"no mask of {format_names(absent, _MAX_NAMES)}"
        raise InputError(f"{name}/fold_*/validation", actual, expected + describe_id_difference(unprepared, absent))
    rest = f"; {format_names(unprepared, _MAX_NAMES)} not prepared, left out" if unprepared else ""
    origin = f"masks of nnU-Net's own validation, {name}/fold_*/validation{rest}"
    paths = {patient_id: masks[patient_id] for patient_id in sorted(prepared)}
    return FoldMasks(paths, read_lesion_numbers(dataset, lesions), origin)


def _list_validation_masks(folder: Path, name: str, ending: str) -> dict[str, Path]:
    """List nnU-Net's own masks of the patients that each fold held out, by patient ID."""
    masks: dict[str, Path] = {}
    for fold in list_folds(folder):
        if fold == "all":  # it is validated on its own training patients
            raise InputError(name, "found only fold_all", "numbered folds, whose networks held patients out")
        for path in sorted((folder / f"fold_{fold}" / "validation").glob(f"*{ending}")):
            if is_system_name(path.name):
                continue
            patient_id = normalise_unicode(path.name.removesuffix(ending))
            if patient_id in masks:
                first_fold = masks[patient_id].parts[-3][5:]
                actual = f"{patient_id} in the validation of fold {first_fold} and of fold {fold}"
                raise InputError(name, actual, "each patient held out by one fold")
            masks[patient_id] = path
    return masks


def use_networks(work: WorkFolders, package: Path, spacing_mm: tuple[float, ...] | None = None) -> None:
    """Copy a package into the working directory, so that the later steps use its networks.

    A copy of another package is replaced; masks and features are then measured again.

    Args:
        work: The working directory.
        package: Folder or `.tar.gz`.
        spacing_mm: Spacing (x, y, z) for which the release will be prepared; None takes the spacing of `prepare.json`.

    Raises:
        HecktorError: The working directory has its own networks, or the package does not fit its images.
    """
    if work.plan_json.is_file():
        actual = f"networks planned or trained in {work.root.name}"
        raise HecktorError("--networks", actual, "a working directory without `hecktor train plan`")
    check_is_package(package)
    spacing = spacing_mm or read_preparation(work).spacing_mm
    work.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=work.root) as scratch:
        copy = _copy_package(package, Path(scratch) / "networks")
        check_spacing(copy, spacing, is_from_option=spacing_mm is not None)
        current = work.networks / MANIFEST
        if current.is_file() and make_file_entry(current) == make_file_entry(copy.root / MANIFEST):
            return
        if work.networks.exists():
            work.networks.rename(Path(scratch) / "earlier")
        copy.root.rename(work.networks)


def load_existing_networks(work: WorkFolders) -> ModelPackage | None:
    """Load the package whose networks the working directory uses; return None if it trains its own networks."""
    return load_package(work.networks) if work.networks.is_dir() else None


def check_spacing(package: ModelPackage, spacing_mm: tuple[float, ...], *, is_from_option: bool = False) -> None:
    """Check that images of this spacing (x, y, z) are what the package's networks expect.

    Args:
        package: The networks.
        spacing_mm: Spacing of the images.
        is_from_option: Whether the spacing comes from `--spacing-mm`; otherwise the images are already prepared.

    Raises:
        HecktorError: The spacing differs.
    """
    if np.allclose(spacing_mm, package.spacing_mm, rtol=0, atol=_MAX_ROUNDING_MM):
        return
    images, networks = ([f"{step:g}" for step in steps] for steps in (spacing_mm, package.spacing_mm))
    if is_from_option:
        expected = f"{' '.join(networks)}, the spacing of the networks of {package.manifest.name}"
        raise HecktorError("--spacing-mm", f"found {' '.join(images)}", expected)
    expected = f"{' x '.join(images)} mm as the prepared images"
    action = f"prepare another working directory with --spacing-mm {' '.join(networks)}"
    raise HecktorError(package.manifest.name, f"found networks of {' x '.join(networks)} mm", f"{expected}; {action}")


def describe_networks(package: ModelPackage) -> dict[str, Any]:
    """Return the networks' origin for the manifest: the package, and what it states about their training."""
    manifest = package.manifest.as_json()
    # If the package took its networks from another package, this entry describes their training.
    source = manifest.get("networks_from", manifest)
    described = {key: source[key] for key in ("training", "training_data", "licence") if key in source}
    sha256 = make_file_entry(package.root / MANIFEST)["sha256"]
    return {"name": manifest["name"], "sha256": sha256, **described, "condition": CONDITION}


def _copy_package(package: Path, target: Path) -> ModelPackage:
    """Copy the files that the manifest lists, or unpack the archive; return the verified copy."""
    if package.is_dir():
        source = load_package(package)
        for name in (MANIFEST, *source.manifest.files):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package / name, target / name)
        return load_package(target)
    unpack(package, target)
    return load_package(target)
