"""Folders packed as `model.tar.gz` in the platform's form: files at the top level, without owners or times."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Final

SUFFIX: Final = ".tar.gz"


def pack(folder: Path, archive: Path) -> None:
    """Pack the content of `folder`, as `tar -C folder .` does; the same files give the same bytes."""
    with (
        archive.open("wb") as raw,
        # Weights barely compress, so the fastest level is enough.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=1) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in [folder, *sorted(folder.rglob("*"))]:
            name = "." if path == folder else f"./{path.relative_to(folder).as_posix()}"
            tar.add(path, arcname=name, recursive=False, filter=_without_owner)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack as the platform does, with `filter="data"`."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.isdir() else 0o644
    return member
