"""The images contain the tested versions, and no package that conflicts with a CPU build of torch."""

from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def pins(name: str) -> dict[str, str]:
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", ["algorithm.txt", "evaluation.txt"])
def test_images_contain_the_tested_versions(name):
    assert pins(name).items() <= pins("dev.txt").items()


@pytest.mark.parametrize("name", ["algorithm.txt", "evaluation.txt", "dev.txt"])
def test_packages_that_must_not_be_pinned(name):
    assert not {"torch", "torchvision", "timm"} & set(pins(name))


def test_the_evaluation_contains_no_network():
    assert not {"nnunetv2", "monai", "safetensors"} & set(pins("evaluation.txt"))
