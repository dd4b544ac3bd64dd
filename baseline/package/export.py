"""Write a model package: plans, one safetensors file per fold, heads as plain data, and a manifest."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from algorithm.heads.linear import LinearHead
from algorithm.network.networks import Networks, own_tensors, untrained_network
from algorithm.network.package import CARD, PLANS, ModelPackage, load_package
from algorithm.network.segment import normalise
from baseline.package.axes import IDENTITY, axes_of, turned_configuration, turned_tensor
from baseline.package.checkpoint import Checkpoint, read_checkpoint
from baseline.package.nnunet_results import trained_plans
from baseline.release.data_set import CHANNELS
from contract import labels
from contract.archives import pack, unpack
from contract.errors import ModelPackageError, OutputError
from contract.files import atomic_path, write_json, write_text
from contract.packages import FORMAT_VERSION, MANIFEST, file_entry

# The keys that inference reads; others describe the machine that planned.
_INTENSITIES: Final = "foreground_intensity_properties_per_channel"
_PLAN_KEYS: Final = ("plans_name", _INTENSITIES, "label_manager")


@dataclass(frozen=True)
class EnsembleMember:
    """Networks of one architecture.

    Attributes:
        plans: nnU-Net's plans; only `configuration`, which inherits from no other, is written.
        configuration: name of the trained configuration.
        checkpoints: one per fold, read one at a time; only their weights are written, as float16.
    """

    plans: Mapping[str, Any]
    configuration: str
    checkpoints: Iterable[Checkpoint]


@dataclass(frozen=True)
class PackageContents:
    """Contents of a package.

    Attributes:
        members: networks with the same grid, normalisation and intensities. Inference runs the first checkpoint of
            each member, then the second of each, and so on: another architecture adds more than another fold.
        heads: heads by name.
        description: entries of the manifest: name, purpose, intended use, training data, licence, results.
        card: the model card as Markdown; inference does not need it.
    """

    members: Sequence[EnsembleMember]
    heads: Mapping[str, LinearHead]
    description: Mapping[str, Any]
    card: str | None = None


def export_package(
    target: Path,
    plans: Mapping[str, Any],
    checkpoints: Mapping[str, Sequence[Path]],
    heads: Mapping[str, LinearHead],
    description: Mapping[str, Any],
    card: str | None = None,
) -> Path:
    """Write a package from nnU-Net's final checkpoints into the folder `target`.

    `plans` are from nnU-Net; `checkpoints` by configuration, fold 0 first, as `ModelPackage.numbers_of` expects. Heads,
    description and card are as in `PackageContents`. Inference averages the passes' probabilities; docs/inference.md
    compares them with logits.
    """
    members = [
        EnsembleMember(trained_plans(plans, name), name, (read_checkpoint(path) for path in paths))
        for name, paths in checkpoints.items()
    ]
    return export_folder(target, PackageContents(members, heads, {**description, "average": "probabilities"}, card))


def export_folder(target: Path, contents: PackageContents) -> Path:
    """Write a package into the folder `target`; it replaces an earlier package once it is verified.

    Raises:
        ModelPackageError: the algorithm cannot load the package.
        OutputError: `target` is not a package, or cannot be written.
    """
    is_empty_folder = target.is_dir() and not any(target.iterdir())
    if target.exists() and not (target / MANIFEST).is_file() and not is_empty_folder:
        raise OutputError(target.name, "exists and is not a model package", "a new name, or an existing package")
    with _scratch_beside(target) as scratch:
        written = _write_files(scratch / "model", contents)
        verified(written)
        written.chmod(0o755)
        if target.exists():
            target.rename(scratch / "earlier")
        written.rename(target)
    return target


def export_archive(target: Path, contents: PackageContents) -> Path:
    """Write a package as the archive `target`, once an unpacked copy of it is verified.

    Raises:
        ModelPackageError: the algorithm cannot load the package.
        OutputError: `target` cannot be written.
    """
    with _scratch_beside(target) as scratch, atomic_path(target) as partial:
        pack(_write_files(scratch / "model", contents), partial)
        unpack(partial, scratch / "unpacked")
        verified(scratch / "unpacked")
    return target


def verified(root: Path) -> ModelPackage:
    """Load a package, load every fold into its network and normalise an empty image with its plans.

    Raises:
        ModelPackageError: any of these fails.
    """
    package = load_package(root)
    networks = Networks(package)
    for fold in range(len(package.fold_files)):
        networks.of(fold, torch.device("cpu"))
    empty = np.zeros((2, 2, 2), dtype=np.float32)
    try:
        normalise((empty, empty), package)
    except (KeyError, TypeError) as problem:
        raise ModelPackageError(PLANS, f"intensities lack {problem}, which the normalisation needs") from None
    return package


@contextmanager
def _scratch_beside(target: Path) -> Iterator[Path]:
    """A temporary folder on the target's file system; failed writes raise `OutputError`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as scratch:
            yield Path(scratch)
    except (OSError, SafetensorError) as problem:
        raise OutputError(target.name, f"cannot be written ({problem})", "a writable folder") from None


def _write_files(folder: Path, contents: PackageContents) -> Path:
    folder.mkdir()
    plans, names = _merged_plans(contents.members)
    folds, member_of = _write_folds(folder, contents.members, [plans["configurations"][name] for name in names])
    write_json(folder / PLANS, plans)
    for name, head in contents.heads.items():
        write_json(folder / "heads" / f"{name}.json", head.as_json())
    if contents.card is not None:
        write_text(folder / CARD, contents.card)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "format_version": FORMAT_VERSION,
        **contents.description,
        "channels": list(CHANNELS),
        "labels": {str(value): name for value, name in labels.NAMES.items()},
        "configuration": names[0],
        "folds": folds,
        **({"fold_configurations": [names[number] for number in member_of]} if len(set(names)) > 1 else {}),
        "files": {path.relative_to(folder).as_posix(): file_entry(path) for path in files},
    }
    write_json(folder / MANIFEST, manifest)
    return folder


def _merged_plans(members: Sequence[EnsembleMember]) -> tuple[dict[str, Any], list[str]]:
    """The members' plans merged, with axes (z, y, x), and the name of each member's configuration."""
    first = members[0].plans
    configurations: dict[str, Any] = {}
    names = []
    for member in members:
        if member.plans[_INTENSITIES] != first[_INTENSITIES]:
            raise ModelPackageError(
                "plans.json",
                f"{_INTENSITIES} of {member.configuration!r} in {member.plans['plans_name']!r} differ from those "
                f"in {first['plans_name']!r}",
                "networks trained on the same images",
            )
        turned = turned_configuration(member.plans["configurations"][member.configuration], axes_of(member.plans))
        # Different plans may use one name for different configurations.
        others = (f"{member.configuration}_{number}" for number in itertools.count(2))
        candidates = itertools.chain([member.configuration], others)
        names.append(next(name for name in candidates if configurations.setdefault(name, turned) == turned))
    order = {"transpose_forward": list(IDENTITY), "transpose_backward": list(IDENTITY)}
    return {**{key: first[key] for key in _PLAN_KEYS}, **order, "configurations": configurations}, names


def _write_folds(
    folder: Path, members: Sequence[EnsembleMember], configurations: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[int]]:
    """Write the first checkpoint of each member, then the second, and so on; returns file names and members."""
    with torch.device("meta"):  # only names and shapes are needed
        networks = [untrained_network(one, len(CHANNELS), len(labels.NAMES)) for one in configurations]
    rounds = itertools.zip_longest(*(member.checkpoints for member in members))
    files: list[str] = []
    member_of: list[int] = []
    for number, checkpoint in itertools.chain.from_iterable(map(enumerate, rounds)):
        if checkpoint is not None:
            path = folder / f"fold_{len(files)}.safetensors"
            files.append(_write_fold(checkpoint, path, networks[number], axes_of(members[number].plans)))
            member_of.append(number)
    return files, member_of


def _write_fold(checkpoint: Checkpoint, path: Path, network: nn.Module, axes: tuple[int, ...]) -> str:
    trained = {name: turned_tensor(tensor, axes) for name, tensor in checkpoint.weights.items()}
    _check_fit(checkpoint.name, trained, network)
    # A checkpoint holds a shared tensor under each of its names; only the first one is written.
    weights = {name: trained[name].to(torch.float16).contiguous().clone() for name, _ in own_tensors(network)}
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelPackageError(checkpoint.name, f"{name} holds NaN, infinity or a number beyond float16")
    save_file(weights, str(path))
    path.chmod(0o644)
    return path.name


def _check_fit(name: str, trained: Mapping[str, torch.Tensor], network: nn.Module) -> None:
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    odd = sorted(trained.keys() ^ expected.keys())
    if odd:
        holder = "weights" if odd[0] in trained else "network of plans.json"
        raise ModelPackageError(name, f"{odd[0]} is only in the {holder}", "the trained network")
    for key, shape in expected.items():
        if tuple(trained[key].shape) != shape:
            raise ModelPackageError(name, f"{key} of shape {tuple(trained[key].shape)}", f"{shape} (plans.json)")
