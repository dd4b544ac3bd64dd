"""Write a model package: plans, one safetensors file per fold, heads as plain data, and a manifest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import FOLDER, FeatureHook
from algorithm.heads.head_hook import custom_heads
from algorithm.network.custom import HookFailedError, check_empty_patch
from algorithm.network.networks import Networks
from algorithm.network.package import CARD, ModelPackage, is_custom, load_package
from algorithm.network.preprocessing import normalise
from baseline.package.members import CustomMember, EnsembleMember, copy_networks, write_networks
from contract import labels
from contract.archives import SUFFIX, pack, unpack
from contract.code import Code
from contract.errors import ModelPackageError, OutputError, make_write_error
from contract.io.files import atomic_path, replace_path, write_json, write_text
from contract.packages import CHANNELS, FORMAT_VERSION, HEADS_FOLDER, MANIFEST, make_file_entry


@dataclass(frozen=True)
class PackageContents:
    """Contents of a package.

    Attributes:
        members: networks, or a package whose networks are copied. Inference runs the first checkpoint of each member,
            then the second of each, and so on: another architecture adds more than another fold.
        heads: heads by name.
        description: entries of the manifest: name, purpose, edition, intended use, training data, licence, results.
        card: the model card as Markdown; inference does not need it.
        features: hooks that measure features of the heads; the files of fitted ones are copied.
        code: where an entrant's own parts are found; None for the code of the image.
        custom_folder: the folder with the files of entrants' heads; None for none.
    """

    members: Sequence[EnsembleMember | CustomMember] | ModelPackage
    heads: Mapping[str, Head]
    description: Mapping[str, Any]
    card: str | None = None
    features: Sequence[FeatureHook] = ()
    code: Code | None = None
    custom_folder: Path | None = None


def export_contents(target: Path, contents: PackageContents) -> Path:
    """Write a package as an archive if `target` ends in `.tar.gz`, otherwise as a folder. Raises as both."""
    return (export_archive if target.name.endswith(SUFFIX) else export_folder)(target, contents)


def export_folder(target: Path, contents: PackageContents) -> Path:
    """Write a package into the folder `target`; it replaces an earlier package once it is verified."""
    is_empty_folder = target.is_dir() and not any(target.iterdir())
    if target.exists() and not (target / MANIFEST).is_file() and not is_empty_folder:
        raise OutputError(target.name, "exists and is not a model package", "a new name, or an existing package")
    with _scratch_beside(target) as scratch:
        written = _write_files(scratch / "model", contents)
        verified(written, contents.code)
        replace_path(written, target)
    return target


def export_archive(target: Path, contents: PackageContents) -> Path:
    """Write a package as the archive `target`, once an unpacked copy of it is verified."""
    with _scratch_beside(target) as scratch, atomic_path(target) as partial:
        pack(_write_files(scratch / "model", contents), partial)
        unpack(partial, scratch / "unpacked")
        verified(scratch / "unpacked", contents.code)
    return target


def verified(root: Path, code: Code | None = None) -> ModelPackage:
    """Load a package, load every fold into its network and normalise an empty image.

    An entrant's own networks, which may be anything, also answer one empty patch.
    """
    package = load_package(root, code)
    try:
        _try_networks(package)
    except HookFailedError as problem:
        raise ModelPackageError(str(problem)) from problem
    for hook in package.features:
        for fold in hook.folds if hook.name in package.code.folders else ():
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
def _scratch_beside(target: Path) -> Iterator[Path]:
    """A temporary folder on the target's file system; failed writes raise `OutputError`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as scratch:
            yield Path(scratch)
    except (OSError, SafetensorError) as problem:
        raise make_write_error(target.name, problem) from None


def _write_files(folder: Path, contents: PackageContents) -> Path:
    folder.mkdir()
    members, channels = contents.members, list(contents.description.get("channels", CHANNELS))
    if isinstance(members, ModelPackage):
        channels, networks = members.manifest.channels, copy_networks(folder, members)
    else:
        networks = write_networks(folder, members, len(channels))
    for name, head in contents.heads.items():
        write_json(folder / HEADS_FOLDER / f"{name}.json", head.as_json())
        _copy_custom_heads(head, contents.custom_folder, folder / HEADS_FOLDER)
    for hook in contents.features:
        for number, fold in enumerate(hook.folds):
            shutil.copytree(fold, folder / FOLDER / hook.name / f"fold_{number}")
    if contents.card is not None:
        write_text(folder / CARD, contents.card)
    described = contents.description.get("code", {})
    code = {**described, **networks.pop("code", {})}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "format_version": FORMAT_VERSION,
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
    """Copy the files of an entrant's heads into the package. Raises `ModelPackageError` if they are not there."""
    for custom in custom_heads(head):
        if source is None or not (source / custom.folder).is_dir():
            raise ModelPackageError(
                f"head {custom.hook}", f"no files {HEADS_FOLDER}/{custom.folder}", "them beside heads.json"
            )
        shutil.copytree(source / custom.folder, target / custom.folder)
