"""An image that changes while it is read is an error, even if its pixels stay valid."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from contract.errors import InputError
from contract.images import volumes as images
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume

GRID = Geometry((8, 8, 8), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))


def append_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replace_by_copy(path: Path) -> None:
    content = path.read_bytes()
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)


def write_again(path: Path) -> None:
    """Write the same number of bytes in place; the clock of a file system may not have moved on."""
    status = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize(
    "change", [append_byte, replace_by_copy, Path.unlink, write_again], ids=["longer", "replaced", "deleted", "again"]
)
def test_a_change_between_header_and_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.mha"
    write_volume(path, Volume(np.zeros((8, 8, 8), np.int16), GRID))
    real = images.metaimage.read_voxels

    def read_and_change(*arguments: object) -> object:
        pixels = real(*arguments)  # type: ignore[arg-type]
        change(path)
        return pixels

    monkeypatch.setattr(images.metaimage, "read_voxels", read_and_change)
    with pytest.raises(InputError, match=r"^a\.mha: changed while it was being read"):
        read_volume(path)
