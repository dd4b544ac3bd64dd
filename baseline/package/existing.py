"""Networks of an existing model package, which a working directory uses instead of training its own."""

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

# Smaller differences come from rounding.
_MAX_ROUNDING_MM: Final = 1e-3
CONDITION: Final = "none of these patients was among the networks' training patients"


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
