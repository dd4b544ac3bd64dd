"""An image that changes while it is being read is refused, whatever its pixels look like afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from contract.errors import InputError
from contract.images import volumes as images
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume

GRID = Geometry((8, 8, 8), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replaced(path: Path) -> None:
    content = path.read_bytes()
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)


@pytest.mark.parametrize("change", [grown, replaced, Path.unlink], ids=["grown", "replaced", "gone"])
def test_a_change_between_header_and_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.mha"
    write_volume(path, Volume(np.zeros((8, 8, 8), np.int16), GRID))
    real = images.metaimage.read_pixels

    def changing(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        change(path)
        return found

    monkeypatch.setattr(images.metaimage, "read_pixels", changing)
    with pytest.raises(InputError, match=r"^a\.mha: changed while it was being read"):
        read_volume(path)
