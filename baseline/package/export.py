"""Write a model package: plans, the weights of each fold, heads as plain data, and a manifest.

The networks are nnU-Net's checkpoints, custom networks, or the networks of another package.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import nn

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import FOLDER, FeatureHook
from algorithm.heads.head_hook import list_custom_heads
from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import HookFailedError, Networks, check_empty_patch, iterate_tensors
from algorithm.network.package import (
    CARD,
    INTENSITIES,
    PLANS,
    TRANSPOSE,
    ModelPackage,
    is_custom,
    load_package,
    read_axes,
)
from algorithm.network.preprocessing import normalise
from baseline.network.checkpoint import Checkpoint
from baseline.package.custom_network import CustomMember
from contract import labels
from contract.archives import SUFFIX, pack, unpack
from contract.code import Code
from contract.errors import ModelPackageError, OutputError, make_write_error
from contract.io.files import atomic_path, read_json, replace_path, write_json, write_text
from contract.packages import (
    CHANNEL_NUMBERS,
    CHANNELS,
    FORMAT_VERSION,
    HEADS_FOLDER,
    LABEL_NUMBERS,
    MANIFEST,
    REORDERED_FORMAT_VERSION,
    make_file_entry,
)

# Keys of nnU-Net's plans that inference reads; others describe the machine that planned.
_PLAN_KEYS: Final = ("plans_name", INTENSITIES, "label_manager")
# Plans of a package without a network of nnU-Net.
_NO_PLANS: Final[Mapping[str, Any]] = {"plans_name": "none", INTENSITIES: {}, "label_manager": "LabelManager"}
# Folder of the package for the files of custom networks.
_CUSTOM_FOLDER: Final = "networks"
# Entries of a manifest that belong to the networks; the last six are optional.
_NETWORK_ENTRIES: Final = (
    "configuration",
    "folds",
    "fold_configurations",
    "mirror_axes",
    "average",
    "normalised_over",
    "resampling",
    "code",
)


@dataclass(frozen=True)
class EnsembleMember:
    """Networks of one architecture.

    Attributes:
        plans: nnU-Net's plans. Only `configuration`, which inherits from no other, is written.
        configuration: Name of the trained configuration.
        checkpoints: Checkpoint of each fold, read when it is written; only its weights are written, floating-point
            weights as float16.
    """

    plans: Mapping[str, Any]
    configuration: str
    checkpoints: Iterable[Checkpoint]


@dataclass(frozen=True)
class PackageContents:
    """Contents of a package.

    Attributes:
        members: Networks, or a package whose networks are copied. Inference runs the first checkpoint of each member,
            then the second of each, and so on: another architecture adds more than another fold.
        heads: Heads by name.
        description: Entries of the manifest: name, purpose, edition, intended use, training data, licence, results.
        card: The model card as Markdown; inference does not need it.
        features: Hooks that measure features of the heads; the files of fitted hooks are copied.
        code: Custom code; None takes the code of the image.
        custom_folder: Folder with the files of custom heads; None if there are no such heads.
    """

    members: Sequence[EnsembleMember | CustomMember] | ModelPackage
    heads: Mapping[str, Head]
    description: Mapping[str, Any]
    card: str | None = None
    features: Sequence[FeatureHook] = ()
    code: Code | None = None
    custom_folder: Path | None = None


def export_contents(target: Path, contents: PackageContents) -> Path:
    """Write a package as an archive if `target` ends in `.tar.gz`, otherwise as a folder; return `target`.

    Raises:
        OutputError: The package cannot be written, or another file or folder has its name.
        ModelPackageError: A network, a head or the code does not fit the package.
    """
    return export_archive(target, contents) if target.name.endswith(SUFFIX) else export_folder(target, contents)


def export_folder(target: Path, contents: PackageContents) -> Path:
    """Write a package into the folder `target`; it replaces an earlier package once it is verified.

    Raises:
        HecktorError: As `export_contents`.
    """
    is_empty_folder = target.is_dir() and not any(target.iterdir())
    if target.exists() and not (target / MANIFEST).is_file() and not is_empty_folder:
        raise OutputError(target.name, "exists and is not a model package", "a new name, or an existing package")
    with _make_scratch_folder(target) as scratch:
        folder = _write_files(scratch / "model", contents)
        verify_package(folder, contents.code)
        replace_path(folder, target)
    return target


def export_archive(target: Path, contents: PackageContents) -> Path:
    """Write a package as the archive `target`, once an unpacked copy of it is verified.

    Raises:
        HecktorError: As `export_contents`.
    """
    with _make_scratch_folder(target) as scratch, atomic_path(target) as partial:
        pack(_write_files(scratch / "model", contents), partial)
        unpack(partial, scratch / "unpacked")
        verify_package(scratch / "unpacked", contents.code)
    return target


def verify_package(root: Path, code: Code | None = None) -> ModelPackage:
    """Load a package, load every fold into its network and normalise an empty image.

    Custom networks, whose behaviour is unknown, also process one empty patch.

    Raises:
        ModelPackageError: A part of the package cannot be loaded, or a custom network or hook fails.
    """
    package = load_package(root, code)
    try:
        _try_networks(package)
    except HookFailedError as problem:
        raise ModelPackageError(str(problem)) from problem
    for hook in package.features:
        if hook.name in package.code.folders:
            for fold in hook.folds:
                hook.make_instance(fold, "cpu")
    return package


def _try_networks(package: ModelPackage) -> None:
    networks = Networks(package, keeps_all=False)
    networks.check()
    for fold in range(len(package.fold_files)):
        network = networks.get(fold, torch.device("cpu"))
        if is_custom(package.configuration_of(fold)):
            check_empty_patch(network, package, fold)
    empty = (np.zeros((2, 2, 2), dtype=np.float32),) * len(package.manifest.channels)
    normalise(empty, package)


@contextmanager
def _make_scratch_folder(target: Path) -> Iterator[Path]:
    """Make a temporary folder on the target's file system; a write that fails raises `OutputError`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as scratch:
            yield Path(scratch)
    except (OSError, SafetensorError) as problem:
        raise make_write_error(target.name, problem) from None


def _write_files(folder: Path, contents: PackageContents) -> Path:
    """Write the files of a package into a new folder; return the folder."""
    folder.mkdir()
    if isinstance(contents.members, ModelPackage):
        channels = contents.members.manifest.channels
        networks = _copy_networks(folder, contents.members)
    else:
        channels = list(contents.description.get("channels", CHANNELS))
        networks = _write_networks(folder, contents.members, len(channels))
    for name, head in contents.heads.items():
        write_json(folder / HEADS_FOLDER / f"{name}.json", head.as_json())
        _copy_custom_heads(head, contents.custom_folder, folder / HEADS_FOLDER)
    for hook in contents.features:
        for number, fold in enumerate(hook.folds):
            shutil.copytree(fold, folder / FOLDER / hook.name / f"fold_{number}")
    if contents.card is not None:
        write_text(folder / CARD, contents.card)
    code = {**contents.description.get("code", {}), **networks.pop("code", {})}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    configurations = read_json(folder / PLANS)["configurations"].values()
    is_reordered = any(LABEL_NUMBERS in configuration for configuration in configurations)
    manifest = {
        "format_version": REORDERED_FORMAT_VERSION if is_reordered else FORMAT_VERSION,
        **contents.description,
        **({"code": code} if code else {}),
        "channels": channels,
        "labels": {str(value): name for value, name in labels.NAMES.items()},
        **networks,
        "files": {path.relative_to(folder).as_posix(): make_file_entry(path) for path in files},
    }
    write_json(folder / MANIFEST, manifest)
    return folder


def _copy_custom_heads(head: Head, source: Path | None, target: Path) -> None:
    """Copy the files of custom heads into the package; raise `ModelPackageError` if they do not exist."""
    for custom in list_custom_heads(head):
        if source is None or not (source / custom.folder).is_dir():
            actual = f"no files {HEADS_FOLDER}/{custom.folder}"
            raise ModelPackageError(f"head {custom.hook}", actual, "the files next to heads.json")
        shutil.copytree(source / custom.folder, target / custom.folder)


def _copy_networks(folder: Path, package: ModelPackage) -> dict[str, Any]:
    """Copy plans and weights of a package unchanged; return their entries of the manifest."""
    names = (PLANS, *package.manifest.folds)
    for name, path in zip(names, (package.root / PLANS, *package.fold_files), strict=True):
        target = folder / name
        if path.is_dir():
            shutil.copytree(path, target, copy_function=shutil.copyfile)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return {key: value for key, value in package.manifest.as_json().items() if key in _NETWORK_ENTRIES}


def _write_networks(folder: Path, members: Sequence[EnsembleMember | CustomMember], channels: int) -> dict[str, Any]:
    """Write plans and weights of the members; return their entries of the manifest.

    `channels` is the number of the edition's channels.
    """
    plans, names = _merge_plans(members)
    code: dict[str, str] = {}
    for member in members:
        if isinstance(member, CustomMember):
            code |= member.code
    networks = [_build_without_memory(plans["configurations"][name], channels) for name in names]
    files, member_of = _write_folds(folder, members, networks)
    write_json(folder / PLANS, plans)
    entries = {"configuration": names[0], "folds": files}
    if len(set(names)) > 1:
        entries["fold_configurations"] = [names[number] for number in member_of]
    return {**entries, **({"code": code} if code else {})}


def _merge_plans(members: Sequence[EnsembleMember | CustomMember]) -> tuple[dict[str, Any], list[str]]:
    """Merge the members' plans; return them and the name of each member's configuration.

    The first plans give the intensities. The configuration of another member has its own intensities and axes if they
    differ.=>
    """
    first = next((member.plans for member in members if isinstance(member, EnsembleMember)), _NO_PLANS)
    configurations: dict[str, Any] = {}
    names = []
    for member in members:
        if isinstance(member, CustomMember):
            own_name, configuration = member.reference, member.configuration
        else:
            own_name = member.configuration
            configuration = dict(member.plans["configurations"][own_name])
            axes = read_axes(configuration, member.plans)
            if axes != (0, 1, 2):
                configuration[TRANSPOSE] = list(axes)
            if member.plans[INTENSITIES] != first[INTENSITIES]:
                configuration[INTENSITIES] = member.plans[INTENSITIES]
        names.append(_add_configuration(configurations, own_name, configuration))
    return {**{key: first[key] for key in _PLAN_KEYS}, "configurations": configurations}, names


def _add_configuration(configurations: dict[str, Any], name: str, configuration: Mapping[str, Any]) -> str:
    """Add a configuration and return its name, with a number if another configuration has the name."""
    candidate, number = name, 1
    while configurations.setdefault(candidate, configuration) != configuration:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _build_without_memory(configuration: Mapping[str, Any], channels: int) -> nn.Module | None:
    """Build the network of a configuration for the names and shapes of its weights; None for a custom network."""
    if is_custom(configuration):
        return None
    with torch.device("meta"):
        seen = len(configuration.get(CHANNEL_NUMBERS, range(channels)))
        return build_untrained_network(configuration, seen, len(labels.NAMES))


def _write_folds(
    folder: Path, members: Sequence[EnsembleMember | CustomMember], networks: Sequence[nn.Module | None]
) -> tuple[list[str], list[int]]:
    """Write the first checkpoint of each member, then the second of each, and so on.

    Args:
        folder: Folder of the package.
        members: Networks to write.
        networks: The untrained network of each member; None for a custom network.

    Returns:
        File name and number of the member of each fold.
    """
    checkpoints: list[Iterable[Checkpoint | Path]] = [
        member.folders if isinstance(member, CustomMember) else member.checkpoints for member in members
    ]
    files: list[str] = []
    member_of: list[int] = []
    for fold in itertools.zip_longest(*checkpoints):
        for number, checkpoint in enumerate(fold):
            network = networks[number]
            if isinstance(checkpoint, Path):
                name = f"{_CUSTOM_FOLDER}/{len(files)}"
                shutil.copytree(checkpoint, folder / name, copy_function=shutil.copyfile)
            elif checkpoint is not None and network is not None:
                name = f"fold_{len(files)}.safetensors"
                _write_weights(checkpoint, folder / name, network)
            else:
                continue
            files.append(name)
            member_of.append(number)
    return files, member_of


def _write_weights(checkpoint: Checkpoint, path: Path, network: nn.Module) -> None:
    """Write the weights of a checkpoint; `network` is its untrained network.

    Raises:
        ModelPackageError: The weights do not fit the network, or float16 cannot represent them.
    """
    _check_shapes(checkpoint.name, checkpoint.weights, network)
    # A checkpoint has a shared tensor under each of its names; only the first one is written.
    weights = {
        name: _convert_to_half(checkpoint.weights[name]).contiguous().clone() for name, _ in iterate_tensors(network)
    }
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelPackageError(checkpoint.name, f"{name} contains NaN, infinity or a number beyond float16")
    path.write_bytes(save(weights))  # `save_file` ignores the umask


def _convert_to_half(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to float16, except integers such as a position index or a counter of batches, which would be rounded."""
    return tensor.to(torch.float16) if tensor.is_floating_point() else tensor


def _check_shapes(name: str, weights: Mapping[str, torch.Tensor], network: nn.Module) -> None:
    """Check that the weights of checkpoint `name` are exactly the tensors of the network."""
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    unmatched = sorted(weights.keys() ^ expected.keys())
    if unmatched:
        holder = "weights" if unmatched[0] in weights else "network of plans.json"
        raise ModelPackageError(name, f"{unmatched[0]} is only in the {holder}", "the trained network")
    for key, shape in expected.items():
        actual = tuple(weights[key].shape)
        if actual != shape:
            raise ModelPackageError(name, f"{key} of shape {actual}", f"{shape} (plans.json)")
