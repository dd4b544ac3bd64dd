"""Saved images: their properties, and the integrity of their layers.

An engine that already has the layers loads a damaged archive without an error.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import Any, Final, Protocol

from contract.errors import EngineError
from rehearsal.images.checks import ImageFacts

ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tar.xz")
_BLOCK_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_DOCUMENT_BYTES: Final = 16 * 1024 * 1024


class _Bytes(Protocol):
    def read(self, size: int = ...) -> bytes: ...


def facts_of_archive(path: Path, *, verify: bool = False) -> ImageFacts:
    """Properties of a saved image, read without an engine.

    With `verify` its layers are checked against the checksums in its configuration. Layers may be compressed in the
    archive; the checksums are those of the uncompressed content.

    Raises:
        EngineError: the platform does not accept this kind of archive, it cannot be read to its end, it contains no
            image, or a layer is missing or altered.
    """
    if not path.name.endswith(ARCHIVE_SUFFIXES):
        raise EngineError(path.name, f"expected an image saved as {', '.join(ARCHIVE_SUFFIXES)}")
    documents: dict[str, Any] = {}
    digests: dict[str, str] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(path, "r|*", bufsize=_BLOCK_BYTES) as archive:
            for member in archive:
                if member.issym():
                    folder = posixpath.dirname(member.name)
                    links[member.name] = posixpath.normpath(posixpath.join(folder, member.linkname))
                elif member.islnk():
                    links[member.name] = member.linkname
                elif (file := archive.extractfile(member)) is not None:
                    start = file.read(member.size) if member.size <= _DOCUMENT_BYTES else b""
                    documents[member.name] = _document(start)
                    if verify:
                        digests[member.name] = _digest(start, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as problem:
        raise EngineError(path.name, f"not a readable archive ({problem})") from None
    if verify:
        digests |= {name: digests[target] for name, target in links.items() if target in digests}
        _check_layers(path.name, documents, digests)
    return _facts(path, documents)


def _check_layers(archive: str, documents: dict[str, Any], digests: dict[str, str]) -> None:
    """Check the layers of the manifest's first image; `digests` holds the sha256 of each file by name."""
    try:
        first = documents["manifest.json"][0]
        checksums = documents[first["Config"]]["rootfs"]["diff_ids"]
        layers = dict(zip(first["Layers"], (text.removeprefix("sha256:") for text in checksums), strict=True))
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(archive, "no image with layers in it", "what `docker save` writes") from None
    for name, expected in layers.items():
        actual = digests.get(name)
        if actual != expected:
            fault = "is not in the archive" if actual is None else f"has sha256 {actual[:12]}..."
            raise EngineError(archive, f"layer {name} {fault}", f"{expected[:12]}...")


def _facts(path: Path, documents: dict[str, Any]) -> ImageFacts:
    manifest = documents.get("manifest.json")
    if not isinstance(manifest, list) or not manifest:
        raise EngineError(path.name, "no manifest.json in it", "what `docker save` writes")
    document = documents.get(str(manifest[0].get("Config")))
    config = document if isinstance(document, dict) else {}
    size_bytes, architecture = path.stat().st_size, str(config.get("architecture", ""))
    return ImageFacts.of(path.name, config.get("config") or {}, architecture, size_bytes, len(manifest))


def _document(content: bytes) -> Any:
    if content.lstrip()[:1] not in {b"{", b"["}:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return None


def _digest(start: bytes, file: _Bytes) -> str:
    """sha256 of `start` and the rest of `file`, uncompressed if it is gzip."""
    digest, block = hashlib.sha256(), start or file.read(_BLOCK_BYTES)
    inflate = zlib.decompressobj(wbits=31) if block[:2] == _GZIP_MAGIC else None
    while block:
        digest.update(block if inflate is None else inflate.decompress(block))
        block = file.read(_BLOCK_BYTES)
    return digest.hexdigest()
