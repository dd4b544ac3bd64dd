"""Integrity of a saved image: an engine that already has its layers loads a damaged archive without an error."""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import Any, Final, Protocol

from contract.errors import EngineError
from rehearsal.images.checks import ImageFacts, facts_of_documents

_BLOCK_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_DOCUMENT_BYTES: Final = 16 * 1024 * 1024


class _Bytes(Protocol):
    def read(self, size: int = ...) -> bytes: ...


def facts_of_verified(path: Path) -> ImageFacts:
    """Properties of a saved image after its layers were checked against the checksums in its configuration.

    Layers may be compressed in the archive; the checksums are those of the uncompressed content.

    Raises:
        EngineError: the archive cannot be read to its end, or a layer is missing or altered.
    """
    digests: dict[str, str] = {}
    links: dict[str, str] = {}
    documents: dict[str, Any] = {}
    try:
        with tarfile.open(path, "r|*", bufsize=_BLOCK_BYTES) as archive:
            for member in archive:
                if member.issym():
                    links[member.name] = posixpath.normpath(
                        posixpath.join(posixpath.dirname(member.name), member.linkname)
                    )
                elif member.islnk():
                    links[member.name] = member.linkname
                elif (file := archive.extractfile(member)) is not None:
                    start = file.read(min(member.size, _DOCUMENT_BYTES)) if member.size <= _DOCUMENT_BYTES else b""
                    documents[member.name] = _document(start)
                    digests[member.name] = _digest(start, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as problem:
        raise EngineError(path.name, f"not a readable archive ({problem})") from None
    wanted = _wanted(documents, path.name)
    for name, digest in wanted.items():
        actual = digests.get(links.get(name, name))
        if actual != digest:
            fault = "is not in the archive" if actual is None else f"has sha256 {actual[:12]}..."
            raise EngineError(path.name, f"layer {name} {fault}", f"{digest[:12]}...")
    objects = {name: document for name, document in documents.items() if isinstance(document, dict)}
    return facts_of_documents(path, documents["manifest.json"], objects)


def _wanted(documents: dict[str, Any], archive: str) -> dict[str, str]:
    """Names and sha256 of the layers of the manifest's first image."""
    try:
        first = documents["manifest.json"][0]
        checksums = documents[first["Config"]]["rootfs"]["diff_ids"]
        return dict(zip(first["Layers"], (text.removeprefix("sha256:") for text in checksums), strict=True))
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(f"{archive}", "no image with layers in it", "what `docker save` writes") from None


def _document(content: bytes) -> Any:
    if content[:1] not in {b"{", b"["}:
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
