"""The networks of a model package: nnU-Net's checkpoints converted, an entrant's own, or those of another package."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save
from torch import nn

from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import own_tensors
from algorithm.network.package import INTENSITIES, PLANS, TRANSPOSE, ModelPackage, is_custom, read_axes
from baseline.network.checkpoint import Checkpoint
from baseline.package.declaration import NetworkDeclaration, declaration_of
from contract import labels
from contract.code import Code, split_reference
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import write_json
from contract.packages import CHANNELS

# The keys that inference reads; others describe the machine that planned.
_PLAN_KEYS: Final = ("plans_name", INTENSITIES, "label_manager")
# Plans of a package without a network of nnU-Net.
_NO_PLANS: Final[Mapping[str, Any]] = {"plans_name": "none", INTENSITIES: {}, "label_manager": "LabelManager"}
# Folder of the package for the files of an entrant's own networks.
_CUSTOM_FOLDER: Final = "networks"
# Entries of a manifest that belong to the networks; the last six are optional.
_OF_NETWORKS: Final = (
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
        plans: nnU-Net's plans; only `configuration`, which inherits from no other, is written.
        configuration: name of the trained configuration.
        checkpoints: one per fold, read one at a time; only their weights are written, floating ones as float16.
    """

    plans: Mapping[str, Any]
    configuration: str
    checkpoints: Iterable[Checkpoint]


def write_networks(
    folder: Path, members: Sequence[EnsembleMember | CustomMember], channels: int = len(CHANNELS)
) -> dict[str, Any]:
    """Write plans and weights of the members; returns their entries of the manifest."""
    plans, names = _merged_plans(members)
    code = {
        name: digest for member in members if isinstance(member, CustomMember) for name, digest in member.code.items()
    }
    folds, member_of = _write_folds(folder, members, [plans["configurations"][name] for name in names], channels)
    write_json(folder / PLANS, plans)
    several = {"fold_configurations": [names[number] for number in member_of]} if len(set(names)) > 1 else {}
    return {"configuration": names[0], "folds": folds, **several, **({"code": code} if code else {})}


def copy_networks(folder: Path, package: ModelPackage) -> dict[str, Any]:
    """Copy plans and weights of a package unchanged; returns their entries of the manifest."""
    names = (PLANS, *package.manifest.folds)
    for name, path in zip(names, (package.root / PLANS, *package.fold_files), strict=True):
        target = folder / name
        if path.is_dir():
            shutil.copytree(path, target, copy_function=shutil.copyfile)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return {key: value for key, value in package.manifest.as_json().items() if key in _OF_NETWORKS}


def _merged_plans(members: Sequence[EnsembleMember | CustomMember]) -> tuple[dict[str, Any], list[str]]:
    """Merge the members' plans; return them and the name of each member's configuration, which names its axes."""
    first = next((one.plans for one in members if isinstance(one, EnsembleMember)), _NO_PLANS)
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
        # Different plans may use one name for different configurations.
        others = (f"{own_name}_{number}" for number in itertools.count(2))
        candidates = itertools.chain([own_name], others)
        names.append(
            next(name for name in candidates if configurations.setdefault(name, configuration) == configuration)
        )
    return {**{key: first[key] for key in _PLAN_KEYS}, "configurations": configurations}, names


def _write_folds(
    folder: Path,
    members: Sequence[EnsembleMember | CustomMember],
    configurations: Sequence[Mapping[str, Any]],
    channels: int,
) -> tuple[list[str], list[int]]:
    """Write the first checkpoint of each member, then the second, and so on; returns file names and members."""
    with torch.device("meta"):  # only names and shapes are needed
        networks = [None if is_custom(one) else _untrained(one, channels) for one in configurations]
    folds: list[Iterable[Checkpoint | Path]] = [
        member.folders if isinstance(member, CustomMember) else member.checkpoints for member in members
    ]
    rounds = itertools.zip_longest(*folds)
    files: list[str] = []
    member_of: list[int] = []
    for number, checkpoint in itertools.chain.from_iterable(map(enumerate, rounds)):
        if checkpoint is None:
            continue
        network = networks[number]
        if isinstance(checkpoint, Path):
            files.append(f"{_CUSTOM_FOLDER}/{len(files)}")
            shutil.copytree(checkpoint, folder / files[-1], copy_function=shutil.copyfile)
        elif network is not None:
            files.append(_write_fold(checkpoint, folder / f"fold_{len(files)}.safetensors", network))
        member_of.append(number)
    return files, member_of


def _untrained(configuration: Mapping[str, Any], channels: int) -> nn.Module:
    seen = len(configuration.get("channels", range(channels)))
    return build_untrained_network(configuration, seen, len(labels.NAMES))


def _write_fold(checkpoint: Checkpoint, path: Path, network: nn.Module) -> str:
    trained = checkpoint.weights
    _check_fit(checkpoint.name, trained, network)
    # A checkpoint holds a shared tensor under each of its names; only the first one is written.
    weights = {name: _compact(trained[name]).contiguous().clone() for name, _ in own_tensors(network)}
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelPackageError(checkpoint.name, f"{name} holds NaN, infinity or a number beyond float16")
    path.write_bytes(save(weights))  # `save_file` ignores the umask
    return path.name


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as float16; integers, such as a position index or a counter of batches, would be rounded."""
    return tensor.to(torch.float16) if tensor.is_floating_point() else tensor


def _check_fit(name: str, trained: Mapping[str, torch.Tensor], network: nn.Module) -> None:
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    odd = sorted(trained.keys() ^ expected.keys())
    if odd:
        holder = "weights" if odd[0] in trained else "network of plans.json"
        raise ModelPackageError(name, f"{odd[0]} is only in the {holder}", "the trained network")
    for key, shape in expected.items():
        if tuple(trained[key].shape) != shape:
            raise ModelPackageError(name, f"{key} of shape {tuple(trained[key].shape)}", f"{shape} (plans.json)")


NETWORK = "network"
# Its name in a folder of code if the user gives none.
_CLASS = "Network"


@dataclass(frozen=True)
class CustomMember:
    """Networks of one class of an entrant: one folder of files for each fold.

    Attributes:
        reference: the class, such as `my_model:Network`.
        declaration: what the class declares.
        folders: the files of each fold, which are copied as they are.
        digest: sha256 of the code.
        channels: names of the edition's channels.
    """

    reference: str
    declaration: NetworkDeclaration
    folders: tuple[Path, ...]
    digest: str
    channels: tuple[str, ...]

    @property
    def code(self) -> dict[str, str]:
        """The manifest's entry: the folder of code and its checksum."""
        return {split_reference(self.reference, NETWORK)[0]: self.digest}

    @property
    def configuration(self) -> dict[str, Any]:
        """The network as a configuration of nnU-Net's plans."""
        return self.declaration.configuration(self.reference, self.channels)


def custom_member(
    code: Code, network: str | None, weights: Sequence[Path], channels: tuple[str, ...]
) -> CustomMember | None:
    """The entrant's network of `--code`, `--network` and `--weights`; None without weights.

    `channels` are the names of the edition's.

    Raises:
        HecktorError: --code is not one folder, or a folder of weights is absent or empty.
        ModelPackageError: the code cannot be imported, or has no such class or a wrong declaration.
    """
    if not weights:
        return None
    if network is None:
        if len(code.folders) != 1:
            found = f"found {len(code.folders)} of them with --weights"
            raise HecktorError("--code", found, "one folder of code, or --network folder:Name")
        network = f"{next(iter(code.folders))}:{_CLASS}"
    for folder in weights:
        if not folder.is_dir() or not any(path.is_file() for path in folder.rglob("*")):
            raise HecktorError(f"--weights {folder.name}", "found no files", "the folder that the network is made from")
    declaration = declaration_of(code.find(network, NETWORK), network, channels)
    digest = code.digest(split_reference(network, NETWORK)[0])
    return CustomMember(network, declaration, tuple(weights), digest, channels)
