"""The model package: plain data with a checksum for every file, nothing that can execute.

A package is a folder::

    manifest.json          format, purpose, channels, labels, spacing, folds, heads, sha256 and size of every file
    plans.json             nnU-Net's plans
    fold_<k>.safetensors   one weights file a fold, no optimiser state
    heads/<name>.json      coefficients, imputation, thresholds
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.heads import LinearHead, parse_head
from contract import sockets
from contract.errors import ModelPackageError
from contract.files import read_json

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
DEFAULT_PACKAGE: Final = Path(__file__).parent / "default_model"
_REQUIRED: Final = ("format_version", "name", "purpose", "channels", "labels", "configuration", "folds", "files")


@dataclass(frozen=True)
class ModelPackage:
    """A verified package; weights are read fold by fold when they are needed."""

    root: Path
    manifest: Mapping[str, Any]
    plans: Mapping[str, Any]
    fold_files: tuple[Path, ...]
    heads: Mapping[str, LinearHead]

    @property
    def name(self) -> str:
        """Name and purpose in one line, for the log."""
        return f"{self.manifest['name']} ({self.manifest['purpose']})"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The nnU-Net configuration that the weights belong to."""
        found: Mapping[str, Any] = self.plans["configurations"][self.manifest["configuration"]]
        return found

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        """The network's voxel spacing in (x, y, z); the plans hold it in (z, y, x)."""
        z, y, x = (float(v) for v in self.configuration["spacing"])
        return (x, y, z)

    def head(self, name: str) -> LinearHead:
        """The head called `name`. Raises `ModelPackageError` where the package has none."""
        if name not in self.heads:
            raise ModelPackageError(f"{MANIFEST}: no head {name!r}, expected one of {', '.join(self.heads) or 'none'}")
        return self.heads[name]


def default_package_path() -> Path:
    """The uploaded package where there is one, else the one that is shipped with the code."""
    if (sockets.MODEL_DIR / MANIFEST).is_file():
        return sockets.MODEL_DIR
    return DEFAULT_PACKAGE


def load_package(root: Path) -> ModelPackage:
    """Read and verify a package.

    Raises:
        ModelPackageError: the manifest is absent or of another format; a file is missing, altered or not listed
            as it should be; a head or the plans cannot be read.
    """
    manifest = read_json(root / MANIFEST, error=ModelPackageError)
    if not isinstance(manifest, dict):
        raise ModelPackageError(f"{MANIFEST}: found a {type(manifest).__name__}, expected an object")
    absent = [key for key in _REQUIRED if key not in manifest]
    if absent:
        raise ModelPackageError(f"{MANIFEST}: no {absent[0]!r}, expected {', '.join(_REQUIRED)}")
    if manifest["format_version"] != FORMAT_VERSION:
        raise ModelPackageError(f"{MANIFEST}: format version {manifest['format_version']!r}, expected {FORMAT_VERSION}")
    files = _verified_files(root, manifest["files"])
    plans = read_json(_listed(files, "plans.json"), error=ModelPackageError)
    if manifest["configuration"] not in plans.get("configurations", {}):
        raise ModelPackageError(f"plans.json: no configuration {manifest['configuration']!r}, which the manifest names")
    folds = tuple(_listed(files, name) for name in manifest["folds"])
    heads = {
        Path(name).stem: parse_head(read_json(path, error=ModelPackageError), name)
        for name, path in files.items()
        if name.startswith("heads/")
    }
    return ModelPackage(root, manifest, plans, folds, heads)


def file_entry(path: Path) -> dict[str, Any]:
    """The manifest's entry for a file: `sha256` and `size` in bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "size": path.stat().st_size}


def _verified_files(root: Path, listed: Any) -> dict[str, Path]:
    if not isinstance(listed, dict):
        raise ModelPackageError(f"{MANIFEST}: `files` is a {type(listed).__name__}, expected an object")
    files: dict[str, Path] = {}
    for name, expected in listed.items():
        path = root / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ModelPackageError(f"{MANIFEST}: file name {name!r} leads out of the package")
        if not path.is_file():
            raise ModelPackageError(f"{name}: not in the model package, though its manifest lists it")
        found = file_entry(path)
        if found["size"] != expected.get("size"):
            raise ModelPackageError(f"{name}: {found['size']} bytes, expected {expected.get('size')}")
        if found["sha256"] != expected.get("sha256"):
            raise ModelPackageError(
                f"{name}: sha256 {found['sha256'][:12]}..., expected {str(expected.get('sha256'))[:12]}...: altered"
            )
        files[name] = path
    return files


def _listed(files: Mapping[str, Path], name: str) -> Path:
    if name not in files:
        raise ModelPackageError(f"{MANIFEST}: does not list {name}, expected it with size and sha256")
    return files[name]
