"""Images of the examples, by the commands of their READMEs."""

import subprocess
from pathlib import Path

import pytest

from rehearsal.runners.containers import ContainerEngine
from tests.examples.readme import EXAMPLES, run
from tests.examples.test_monai_unet import check_readme
from tests.examples.test_own_container import PHANTOMS, check_board, commands_of

pytestmark = pytest.mark.container


@pytest.mark.slow
def test_a_network_of_monai_and_a_forest_in_a_rehearsed_image(images: ContainerEngine, tmp_path: Path) -> None:
    check_readme(tmp_path, images=True)


def test_a_container_of_ones_own(images: ContainerEngine, tmp_path: Path) -> None:
    """On the base that the README names where no registry is reachable; as an image and as a process it scores the same.

    The image of a task differs by a variable alone; processes of all tasks are in tests/examples/test_own_container.py.
    """
    run(PHANTOMS, tmp_path)
    by_command, build, by_image, rank, _ = commands_of("segmentation")
    assert build[:2] == ["docker", "build"]
    base = ["--build-arg", "BASE_IMAGE=hecktor-evaluation-rfs"]
    command = [images.client, "build", *base, *build[2:-1], EXAMPLES / "own_container"]
    subprocess.run(command, check=True, capture_output=True)
    for other in (by_command, by_image, rank):
        run(other, tmp_path)
    check_board(tmp_path, "segmentation")
