"""Networks of an existing model package in place of trained ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.network.package import ModelPackage, load_package
from baseline.preparation import read_preparation
from baseline.work import WorkFolders
from contract.archives import unpack
from contract.errors import HecktorError
from contract.packages import MANIFEST, check_is_package, make_file_entry

# Differences in mm below this come from rounding.
_SAME_MM: Final = 1e-3
CONDITION: Final = "none of these patients was among the networks' training patients"


def use_networks(work: WorkFolders, package: Path, spacing_mm: tuple[float, ...] | None = None) -> None:
    """Copy a package into the working directory, so that the later steps use its networks.

    A copy of another package is replaced; masks and features are then measured again.

    Args:
        work: the working directory.
        package: folder or `.tar.gz`.
        spacing_mm: spacing (x, y, z) for which the release will be prepared; None takes that of `prepare.json`.
    """
    if work.plan_json.is_file():
        found = f"networks planned or trained in {work.root.name}"
        raise HecktorError("--networks", found, "a working directory without `hecktor train plan`")
    check_is_package(package)
    spacing = spacing_mm or read_preparation(work).spacing_mm
    work.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=work.root) as scratch:
        copy = _copied(package, Path(scratch) / "networks")
        check_spacing(copy, spacing, given=spacing_mm is not None)
        current = work.networks / MANIFEST
        if current.is_file() and make_file_entry(current) == make_file_entry(copy.root / MANIFEST):
            return
        if work.networks.exists():
            work.networks.rename(Path(scratch) / "earlier")
        copy.root.rename(work.networks)


def existing_networks(work: WorkFolders) -> ModelPackage | None:
    """The verified package whose networks the working directory uses; None if it trains its own."""
    return load_package(work.networks) if work.networks.is_dir() else None


def check_spacing(package: ModelPackage, spacing_mm: tuple[float, ...], *, given: bool = False) -> None:
    """Raise `HecktorError` unless images of this spacing (x, y, z) are what the package's networks expect.

    `given` is true if the spacing comes from `--spacing-mm`, false if it is that of the prepared images.
    """
    if np.allclose(spacing_mm, package.spacing_mm, rtol=0, atol=_SAME_MM):
        return
    images, networks = ([f"{step:g}" for step in steps] for steps in (spacing_mm, package.spacing_mm))
    if given:
        expected = f"{' '.join(networks)}, as of the networks of {package.manifest.name}"
        raise HecktorError("--spacing-mm", f"found {' '.join(images)}", expected)
    found = f"found networks of {' x '.join(networks)} mm"
    expected = f"{' x '.join(images)} mm as the prepared images"
    action = f"prepare another working directory with --spacing-mm {' '.join(networks)}"
    raise HecktorError(package.manifest.name, found, f"{expected}; {action}")


def networks_record(package: ModelPackage) -> dict[str, Any]:
    """Origin of the networks, for the manifest: the package, and what it tells of the training of its networks."""
    manifest = package.manifest.as_json()
    # A package that reused networks itself describes their training there.
    source = manifest.get("networks_from", manifest)
    described = {key: source[key] for key in ("training", "training_data", "licence") if key in source}
    sha256 = make_file_entry(package.root / MANIFEST)["sha256"]
    return {"name": manifest["name"], "sha256": sha256, **described, "condition": CONDITION}


def _copied(package: Path, target: Path) -> ModelPackage:
    if package.is_dir():
        source = load_package(package)
        for name in (MANIFEST, *source.manifest.files):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package / name, target / name)
        return load_package(target)
    unpack(package, target)
    return load_package(target)
