"""Container images: the platform's checks at an upload, and saved images with their layers."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from contract.archives import read_members
from contract.errors import EngineError
from contract.platform import MODEL_DIR, OUTPUT_DIR

API_METHOD_LABEL: Final = "org.grand-challenge.api-method"
API_METHODS: Final[tuple[Literal["exec", "invoke"], ...]] = ("exec", "invoke")
STRIPPED_PREFIX: Final = "GRAND_CHALLENGE_"
SIZE_LIMIT_BYTES: Final = 10_000_000_000
ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tar.xz")
# What the platform mounts hides what the image has there.
_MOUNTED: Final = (str(MODEL_DIR), str(OUTPUT_DIR), "/tmp")  # noqa: S108 - paths inside the container
_TORCH: Final = re.compile(r"(?:\btorch==|\btorch-|PYTORCH_VERSION=v?)(2\.9(?:\.\d+)?)(?![\d])")
_CUDA: Final = re.compile(
    r"\b(?:CUDA_VERSION=|nvidia_cuda_runtime-)(13(?:\.\d+)*)|\bwhl/(cu13\d)\b|\btorch(?:==|-)\S+\+(cu13\d)\b"
    r"|\bnvidia_\w+_(cu13)-"
)
_UNPACKED_BYTES: Final = 100_000_000_000
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES: Final = 16 * 1024 * 1024
# The manifest and the configuration have some kilobytes; only these two are parsed.
_DOCUMENT_BYTES: Final = 2 * 1024 * 1024
_DOCUMENTS_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image; `manifests` is 1 for an image in an engine.

    `started` is its entry point with its arguments, `made_by` the commands that made its layers, `wheels` the folders
    that pip made for PyTorch and CUDA.
    """

    name: str
    user: str
    architecture: str
    api_method: str
    size_bytes: int
    variables: tuple[str, ...]
    manifests: int = 1
    workdir: str = ""
    started: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()

    @property
    def stripped_variables(self) -> tuple[str, ...]:
        """Names of its environment variables that the platform removes."""
        names = [variable.split("=", 1)[0] for variable in self.variables]
        return tuple(name for name in names if name.startswith(STRIPPED_PREFIX))

    @classmethod
    def of(
        cls,
        name: str,
        config: Mapping[str, Any],
        architecture: str,
        size_bytes: int,
        manifests: int = 1,
        made_by: Iterable[object] = (),
    ) -> ImageFacts:
        """Properties of an image with the configuration `config` of its containers."""
        user, labels = str(config.get("User") or "").strip(), _object(config.get("Labels"))
        api_method, variables = str(labels.get(API_METHOD_LABEL, "exec")), tuple(map(str, config.get("Env") or ()))
        workdir = str(config.get("WorkingDir") or "")
        started = tuple(str(part) for key in ("Entrypoint", "Cmd") for part in _list(config.get(key)))
        commands = tuple(map(str, made_by))
        return cls(name, user, architecture, api_method, size_bytes, variables, manifests, workdir, started, commands)


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


def hidden_problems(facts: ImageFacts) -> list[str]:
    """Reasons why its program would not be found: it is in a folder over which the platform mounts another one."""
    problems = []
    # A program without a folder is looked for in PATH.
    named = [one for number, one in enumerate(facts.started) if "/" in one or (number and not one.startswith("-"))]
    parts = {"WORKDIR": (facts.workdir,), "ENTRYPOINT": tuple(posixpath.join(facts.workdir, one) for one in named)}
    for kind, paths in parts.items():
        for path in map(posixpath.normpath, filter(None, paths)):
            folder = next((one for one in _MOUNTED if path == one or path.startswith(f"{one}/")), None)
            if folder is not None and not (kind == "ENTRYPOINT" and path == facts.workdir):
                problems.append(
                    f"{facts.name}: {kind} {path} is hidden by what the platform mounts at {folder}, "
                    "expected the program in another folder, such as /opt/app (move it in the Dockerfile)"
                )
                break
    return problems


def version_warnings(facts: ImageFacts) -> list[str]:
    """Warnings about versions of PyTorch and CUDA, as far as the image's variables, commands and wheels tell them."""
    text, warnings = "\n".join((*facts.variables, *facts.made_by, *facts.wheels)), []
    if found := _TORCH.search(text):
        found_version = found.group(1)
        warnings.append(
            f"{facts.name}: PyTorch {found_version}, which nnU-Net refuses; expected 2.8 or earlier, or 2.10"
        )
    if found := _CUDA.search(text):
        version = next(filter(None, found.groups()))
        warnings.append(f"{facts.name}: CUDA {version}, which needs driver 580; expected CUDA 12 for older drivers")
    return warnings


def facts_of_archive(path: Path, *, verify: bool = False) -> ImageFacts:
    """Properties of a saved image, read without an engine.

    With `verify` its layers are checked against the checksums in its configuration, those of the uncompressed content:
    an engine that already has the layers loads a damaged archive without an error.

    Raises:
        EngineError: the platform does not accept this kind of archive, it cannot be read to its end, it contains no
            image, or a layer is missing or altered.
    """
    if not path.name.endswith(ARCHIVE_SUFFIXES):
        raise EngineError(path.name, f"expected an image saved as {', '.join(ARCHIVE_SUFFIXES)}")
    documents = _Documents(path.name)
    digests: dict[str, str | None] = {}
    links: dict[str, str] = {}
    for member, pieces in read_members(path, max_bytes=_UNPACKED_BYTES, error=EngineError):
        name = posixpath.normpath(member.name)  # some programs write ./NAME
        if member.kind == "symbolic link":
            links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.target))
        elif member.kind == "hard link":
            links[name] = posixpath.normpath(member.target)
        elif member.kind == "file":
            start = b"".join(pieces) if member.size <= _DOCUMENT_BYTES else b""
            documents.keep(name, start)
            if verify:
                digests[name] = _digest(path.name, chain([start], pieces))
    if verify:
        digests |= {name: digests[target] for name, target in links.items() if target in digests}
        _check_layers(path.name, documents, digests)
    return _facts(path, documents)


def _check_layers(archive: str, documents: _Documents, digests: Mapping[str, str | None]) -> None:
    """Check the layers of the manifest's first image; `digests` holds the sha256 of each file by name, as `_digest`."""
    try:
        first = documents.parsed("manifest.json")[0]
        checksums = documents.parsed(posixpath.normpath(first["Config"]))["rootfs"]["diff_ids"]
        names = map(posixpath.normpath, first["Layers"])
        layers = dict(zip(names, (text.removeprefix("sha256:") for text in checksums), strict=True))
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(archive, "no image with layers in it", "what `docker save` writes") from None
    for name, expected in layers.items():
        if name not in digests:
            raise EngineError(archive, f"layer {name} is not in the archive", f"{expected[:12]}...")
        if (actual := digests[name]) not in (None, expected):
            raise EngineError(archive, f"layer {name} has sha256 {str(actual)[:12]}...", f"{expected[:12]}...")


def _facts(path: Path, documents: _Documents) -> ImageFacts:
    manifest = documents.parsed("manifest.json")
    if not (isinstance(manifest, list) and manifest and isinstance(manifest[0], dict)):
        raise EngineError(path.name, "no manifest.json in it", "what `docker save` writes")
    document = _object(documents.parsed(posixpath.normpath(str(manifest[0].get("Config")))))
    config, architecture = _object(document.get("config")), str(document.get("architecture", ""))
    made_by = [_object(step).get("created_by", "") for step in _list(document.get("history"))]
    return ImageFacts.of(path.name, config, architecture, path.stat().st_size, len(manifest), made_by)


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _object(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


class _Documents:
    """The JSON members of an archive, bounded together, and parsed only when they are asked for."""

    def __init__(self, archive: str) -> None:
        self._archive, self._contents, self._left = archive, dict[str, bytes](), _DOCUMENTS_BYTES

    def keep(self, name: str, content: bytes) -> None:
        """Keep a member that may be JSON."""
        if content.lstrip()[:1] not in {b"{", b"["}:
            return
        self._left -= len(content)
        if self._left < 0:
            found = f"found JSON members of more than {_DOCUMENTS_BYTES} bytes together"
            raise EngineError(self._archive, found, "what `docker save` writes")
        self._contents[name] = content

    def parsed(self, name: str) -> Any:
        """The content of a member, None if it is absent or not JSON."""
        try:
            return json.loads(self._contents.get(name, b"null"))
        except (ValueError, RecursionError):
            return None


def _digest(archive: str, pieces: Iterable[bytes]) -> str | None:
    """sha256 of a file's content, uncompressed if it is gzip; None of zstd and gzip in parts, which are not checked."""
    digest, blocks = hashlib.sha256(), filter(None, pieces)
    start = next(blocks, b"")
    if start.startswith(_ZSTD_MAGIC):
        return None
    whole = chain([start], blocks)
    try:
        for block in _inflated(whole) if start.startswith(_GZIP_MAGIC) else whole:
            digest.update(block)
    except _InPartsError:
        return None
    except zlib.error as problem:
        raise EngineError(archive, f"found a damaged layer ({problem})", "what `docker save` writes") from None
    return digest.hexdigest()


class _InPartsError(Exception):
    """A gzip file of several parts, such as a layer of eStargz."""


def _inflated(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a gzip file, in pieces of bounded size. Raises `_InPartsError` for one of several parts."""
    inflate = zlib.decompressobj(wbits=31)
    for block in blocks:
        if inflate.eof or inflate.unused_data:
            raise _InPartsError
        rest = block
        while rest:
            yield inflate.decompress(rest, _BLOCK_BYTES)
            rest = inflate.unconsumed_tail
    if inflate.unused_data:
        raise _InPartsError
    if not inflate.eof:
        raise zlib.error("it ends early")
