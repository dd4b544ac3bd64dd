"""Check by its format whether a file that a killed command left is complete."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contract.errors import HecktorError
from contract.images.volumes import read_volume

_ERRORS = (HecktorError, OSError, ValueError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile)


def list_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path, without hidden files and folders."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def is_whole(path: Path) -> bool:
    """Return whether a JSON, HTML, image, archive or safetensors file can be read; other files count as whole."""
    try:
        _read(path)
    except _ERRORS:
        return False
    return True


def _read(path: Path) -> None:
    for suffixes, read in _READERS.items():
        if path.name.endswith(suffixes):
            read(path)
            return


def _read_json(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"))


def _read_page(path: Path) -> None:
    if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise ValueError("no end of the page")


def _read_tar(path: Path) -> None:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and (content := archive.extractfile(member)) is not None:
                content.read()


def _read_gzip(path: Path) -> None:
    with gzip.open(path) as content:
        content.read()


def _read_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise ValueError("a damaged member")


_READERS: Final[dict[tuple[str, ...], Callable[[Path], object]]] = {
    (".mha", ".nii.gz"): read_volume,
    (".json",): _read_json,
    (".html",): _read_page,
    (".tar.gz", ".tgz"): _read_tar,
    (".gz",): _read_gzip,
    (".zip", ".npz", ".pth"): _read_zip,
}
