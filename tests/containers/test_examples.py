"""Images of the examples, by the commands of their READMEs."""

import subprocess
from pathlib import Path

import pytest

from rehearsal.runners.containers import ContainerEngine
from tests.examples.readme import EXAMPLES, commands, run
from tests.examples.test_monai_unet import check_readme
from tests.examples.test_own_container import ranks_of_one_score

pytestmark = pytest.mark.container


@pytest.mark.slow
def test_a_network_of_monai_and_a_forest_in_a_rehearsed_image(images: ContainerEngine, tmp_path: Path) -> None:
    check_readme(tmp_path, images=True)


def test_a_container_of_ones_own(images: ContainerEngine, tmp_path: Path) -> None:
    """On the base of an image with SimpleITK, since the test has no network; as an image and as a process it scores the
    same.
    """
    phantoms, by_command, build, by_image, rank, _ = commands("own_container")
    assert build[:2] == ["docker", "build"]
    base = ["--build-arg", "BASE_IMAGE=hecktor-2026"]
    subprocess.run(
        [images.client, "build", *base, *build[2:-1], EXAMPLES / "own_container"], check=True, capture_output=True
    )
    for command in (phantoms, by_command, by_image, rank):
        run(command, tmp_path)
    assert ranks_of_one_score(tmp_path) == [1, 1]
