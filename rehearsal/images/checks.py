"""The platform's checks of an uploaded image."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from contract.errors import EngineError

API_METHOD_LABEL: Final = "org.grand-challenge.api-method"
API_METHODS: Final[tuple[Literal["exec", "invoke"], ...]] = ("exec", "invoke")
STRIPPED_PREFIX: Final = "GRAND_CHALLENGE_"
SIZE_LIMIT_BYTES: Final = 10_000_000_000
ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tar.xz")
_JSON_LIMIT_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image; `manifests` is 1 for an image in an engine."""

    name: str
    user: str
    architecture: str
    api_method: str
    size_bytes: int
    variables: tuple[str, ...]
    manifests: int = 1

    @property
    def stripped_variables(self) -> tuple[str, ...]:
        """Names of its environment variables that the platform removes."""
        names = [variable.split("=", 1)[0] for variable in self.variables]
        return tuple(name for name in names if name.startswith(STRIPPED_PREFIX))


def facts_of_inspection(name: str, inspected: Mapping[str, Any]) -> ImageFacts:
    """Read the output of `docker image inspect` or `podman image inspect` for one image."""
    return _facts(
        name, inspected.get("Config") or {}, inspected.get("Architecture", ""), int(inspected.get("Size", 0)), 1
    )


def facts_of_archive(path: Path) -> ImageFacts:
    """Read a saved image without an engine.

    Raises:
        EngineError: the platform does not accept this kind of archive, or it contains no image.
    """
    if not path.name.endswith(ARCHIVE_SUFFIXES):
        raise EngineError(path.name, f"expected an image saved as {', '.join(ARCHIVE_SUFFIXES)}")
    try:
        manifest, documents = _json_members(path)
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise EngineError(path.name, f"not a readable archive ({problem})") from None
    return facts_of_documents(path, manifest, documents)


def facts_of_documents(path: Path, manifest: Any, documents: Mapping[str, Any]) -> ImageFacts:
    """Properties of a saved image from its `manifest.json` and its other JSON files by name.

    Raises:
        EngineError: the archive contains no image.
    """
    if not isinstance(manifest, list) or not manifest:
        raise EngineError(path.name, "no manifest.json in it", "what `docker save` writes")
    config = documents.get(str(manifest[0].get("Config")), {})
    architecture = str(config.get("architecture", ""))
    return _facts(path.name, config.get("config") or {}, architecture, path.stat().st_size, len(manifest))


def upload_problems(facts: ImageFacts) -> list[str]:
    """Reasons why the platform would refuse this image; empty if it would accept it."""
    problems = []
    user = facts.user.split(":", 1)[0]
    if user in {"", "root", "0"}:
        shown = f"USER {facts.user}" if facts.user else "no USER, so it runs as root"
        problems.append(f"{facts.name}: {shown}, expected a user that is not root")
    if facts.architecture != "amd64":
        problems.append(f"{facts.name}: built for {facts.architecture or 'nothing known'}, expected amd64")
    if facts.manifests != 1:
        problems.append(f"{facts.name}: {facts.manifests} images in the archive, expected exactly one")
    if facts.api_method not in API_METHODS:
        problems.append(f"{facts.name}: label {API_METHOD_LABEL}={facts.api_method!r}, expected exec or invoke")
    if facts.size_bytes > SIZE_LIMIT_BYTES:
        problems.append(f"{facts.name}: {facts.size_bytes / 1e9:.2f} GB, expected at most 10 GB")
    return [f"{problem}; the platform would refuse the image" for problem in problems]


def _facts(name: str, config: Mapping[str, Any], architecture: str, size_bytes: int, manifests: int) -> ImageFacts:
    labels = config.get("Labels") or {}
    return ImageFacts(
        name=name,
        user=str(config.get("User") or "").strip(),
        architecture=architecture,
        api_method=str(labels.get(API_METHOD_LABEL, "exec")),
        size_bytes=size_bytes,
        variables=tuple(config.get("Env") or ()),
        manifests=manifests,
    )


def _json_members(path: Path) -> tuple[Any, dict[str, Any]]:
    """`manifest.json` and all other small JSON files by name, in one pass over the archive."""
    manifest: Any = None
    documents: dict[str, Any] = {}
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            if not member.isfile() or member.size > _JSON_LIMIT_BYTES:
                continue
            file = archive.extractfile(member)
            content = b"" if file is None else file.read()
            try:
                document = json.loads(content)
            except ValueError:
                continue
            if member.name == "manifest.json":
                manifest = document
            elif isinstance(document, dict):
                documents[member.name] = document
    return manifest, documents
