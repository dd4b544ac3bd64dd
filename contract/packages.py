"""Model packages: unpacking, format version, and size and sha256 of every file that the manifest lists."""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from contract.archives import unpack
from contract.errors import ModelPackageError
from contract.files import read_json

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
REQUIRED_KEYS: Final = ("format_version", "name", "purpose", "channels", "labels", "configuration", "folds", "files")
# Manifests had no `edition` while there was one edition only.
EDITION_OF_OLDER_PACKAGES: Final = "hecktor2025"


@contextmanager
def package_folder(package: Path) -> Iterator[Path]:
    """The folder of a model package; a `.tar.gz` is unpacked to a temporary folder, which is removed at the end.

    Raises:
        ModelPackageError: not a model package.
    """
    check_is_package(package)
    if package.is_dir():
        yield package
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-model-", ignore_cleanup_errors=True) as folder:
        unpack_package(package, Path(folder))
        yield Path(folder)


def check_is_package(path: Path) -> None:
    """Check that this is a folder with a manifest, or a file that may be an archive. Raises `ModelPackageError`."""
    name = path.name or path.resolve().name
    if not path.exists():
        raise ModelPackageError(name, "not found", "a model package, as a folder or .tar.gz")
    if path.suffix == ".pth":
        raise ModelPackageError(name, "found a checkpoint", "a model package; `hecktor package` makes one")
    if path.is_dir() and not (path / MANIFEST).is_file():
        # A package without its manifest has files named fold_*.
        if any(one.is_dir() for below in ("", "*/", "*/*/") for one in path.glob(f"{below}fold_*")):
            found = "found nnU-Net's results"
            raise ModelPackageError(name, found, "a model package; `hecktor package --nnunet` makes one")
        raise ModelPackageError(name, f"no {MANIFEST}", "a model package")


def unpack_package(archive: Path, folder: Path) -> None:
    """Unpack a `.tar.gz` as the platform does. Raises `ModelPackageError`."""
    with _unpacking(archive):
        unpack(archive, folder)


@contextmanager
def _unpacking(archive: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into `ModelPackageError`."""
    try:
        yield
    except (tarfile.TarError, OSError, EOFError, zlib.error) as problem:
        found = f"cannot be unpacked ({problem or type(problem).__name__})"
        raise ModelPackageError(archive.name, found, "a model package, as a folder or .tar.gz") from None


def manifest_sha256(package: Path) -> str:
    """The sha256 of a package's manifest, which holds those of all its files; a `.tar.gz` gives that of its folder.

    Raises:
        ModelPackageError: not a model package.
    """
    check_is_package(package)
    if package.is_dir():
        return str(file_entry(package / MANIFEST)["sha256"])
    with _unpacking(package), tarfile.open(package) as tar:
        for member in tar:
            if posixpath.normpath(member.name) == MANIFEST and (file := tar.extractfile(member)) is not None:
                return hashlib.sha256(file.read()).hexdigest()
    raise ModelPackageError(package.name, f"no {MANIFEST}", "a model package")


def file_entry(path: Path) -> dict[str, Any]:
    """The manifest's entry for a file: `sha256` and `size` in bytes."""
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def read_manifest(root: Path) -> dict[str, Any]:
    """Read the manifest of the package in `root`.

    Raises:
        ModelPackageError: it is absent, incomplete or of another format version.
    """
    manifest = read_json(root / MANIFEST, error=ModelPackageError)
    if not isinstance(manifest, dict):
        raise ModelPackageError(MANIFEST, f"found a {type(manifest).__name__}", "an object")
    absent = [key for key in REQUIRED_KEYS if key not in manifest]
    if absent:
        raise ModelPackageError(MANIFEST, f"no {absent[0]!r}", ", ".join(REQUIRED_KEYS))
    if manifest["format_version"] != FORMAT_VERSION:
        raise ModelPackageError(MANIFEST, f"format version {manifest['format_version']!r}", f"{FORMAT_VERSION}")
    return manifest


def check_edition(manifest: Mapping[str, Any], edition: str) -> None:
    """Check that a package was made for this edition. Raises `ModelPackageError`."""
    named = manifest.get("edition", EDITION_OF_OLDER_PACKAGES)
    if named != edition:
        raise ModelPackageError(MANIFEST, f"found edition {named!r}", repr(edition))


def verified_files(root: Path, listed: Any) -> dict[str, Path]:
    """Paths of all files that a manifest lists, by name.

    Raises:
        ModelPackageError: a file is missing, unreadable or altered, or its name leads out of the package.
    """
    if not isinstance(listed, dict):
        raise ModelPackageError(MANIFEST, f"`files` is a {type(listed).__name__}", "an object")
    return {name: _verified_file(root, name, entry) for name, entry in listed.items()}


def _verified_file(root: Path, name: str, entry: Any) -> Path:
    path = root / name
    if not isinstance(entry, dict):
        raise ModelPackageError(MANIFEST, f"entry of {name!r} is no object", "its sha256 and size")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelPackageError(MANIFEST, f"file name {name!r} leads out of the package")
    if not path.is_file():
        raise ModelPackageError(name, "not in the model package, though its manifest lists it")
    try:
        actual = file_entry(path)
    except OSError as problem:
        expected = "a file that every user may read, as after `chmod -R a+rX` of the package"
        raise ModelPackageError(name, f"cannot be read ({problem.strerror})", expected) from None
    if actual["size"] != entry.get("size"):
        raise ModelPackageError(name, f"{actual['size']} bytes", f"{entry.get('size')}")
    if actual["sha256"] != entry.get("sha256"):
        expected = f"{str(entry.get('sha256'))[:12]}...: altered"
        raise ModelPackageError(name, f"sha256 {actual['sha256'][:12]}...", expected)
    return path
