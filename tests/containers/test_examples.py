"""The image of `examples/own_container`, by the commands of its README."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rehearsal.runners.containers import ContainerEngine
from tests.examples.readme import EXAMPLES, run
from tests.examples.test_own_container import check_board, read_task_commands

pytestmark = pytest.mark.container


def test_an_own_container(images: ContainerEngine, phantoms: Path, tmp_path: Path) -> None:
    """Build on the base that the README names for machines without a registry; image and process score the same.

    Images of the tasks differ only in a variable; processes of all tasks are in tests/examples/test_own_container.py.
    """
    shutil.copytree(phantoms, tmp_path / "cases")
    by_command, build, by_image, rank, _ = read_task_commands("segmentation")
    assert build[:2] == ["docker", "build"]
    base = ["--build-arg", "BASE_IMAGE=hecktor-evaluation-rfs"]
    command = [images.client, "build", *base, *build[2:-1], EXAMPLES / "own_container"]
    subprocess.run(command, check=True, capture_output=True)
    for step in (by_command, by_image, rank):
        run(step, tmp_path)
    check_board(tmp_path, "segmentation")
