"""A folder that other users may enter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Make a folder that other users may enter.

    `tmp_path` does not serve, even with other modes: each start of pytest closes pytest's folders to other users, so a
    second pytest of the same user would take the folder away from the test.
    """
    with tempfile.TemporaryDirectory(prefix="hecktor-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
