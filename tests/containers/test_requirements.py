"""The images contain the tested versions, and no package that conflicts with a CPU build of torch."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
AGREE = "No broken requirements found."
LEFT_OUT = """\
dynamic-network-architectures 0.4.4 requires timm, which is not installed.
batchgenerators 0.25.5 requires unittest2, which is not installed."""

NEWER_CUDNN = (
    'torch 2.10.0 has requirement nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux", '
    "but you have nvidia-cudnn-cu12 9.19.0.56."
)


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


def test_the_evaluation_image_draws_nothing() -> None:
    """Evaluating and ranking import no matplotlib, which its requirements leave out; the tests' add it for reports."""
    assert "matplotlib" not in pins("evaluation.txt")
    program = (
        "import sys; sys.modules['matplotlib'] = sys.modules['PIL'] = None\n"
        "import evaluation.__main__, evaluation.pipeline, evaluation.rows.kinds\n"
        "import evaluation.ranking.cli, evaluation.ranking.pipeline, evaluation.ranking.table\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_images_contain_nothing_of_dicom() -> None:
    """Cases come to the images as .mha; `convert` and its extra `dicom` are for users' machines."""
    dicom = {"pydicom", "python-gdcm"}
    assert dicom <= set(pins("dev.txt"))
    for name in ("algorithm", "evaluation"):
        assert not dicom & set(pins(f"{name}.txt"))
        assert "convert" not in (ROOT / "docker" / f"{name}.Dockerfile").read_text()


def test_gpl_decoders_of_dicom_are_not_installed() -> None:
    """pylibjpeg-libjpeg is GPL; python-gdcm decodes the same syntaxes."""
    assert not {"pylibjpeg", "pylibjpeg-libjpeg"} & set(pins("dev.txt"))


def test_every_package_accepts_the_cuda_build_of_torch():
    """The same as `pip check` in the CUDA image: MONAI demands 2.8 or newer, nnU-Net excludes 2.9."""
    version = pins("torch-cuda.txt")["torch"]
    demands = [Requirement(line) for name in pins("algorithm.txt") for line in metadata.requires(name) or ()]
    torch = [demand for demand in demands if demand.name == "torch" and demand.marker is None]
    assert len(torch) >= 3
    assert all(demand.specifier.contains(version) for demand in torch), torch


def test_cudnn_computes_convolutions_in_half_precision():
    """From 9.15 on torch uses it for them. The build asserts the same of what was installed."""
    version = pins("torch-cuda.txt")["nvidia-cudnn-cu12"]
    assert tuple(map(int, version.split(".")[:2])) >= (9, 15)
    assert f"you have nvidia-cudnn-cu12 {version}." in NEWER_CUDNN
    assert ">= (9, 15)" in (ROOT / "docker" / "algorithm.Dockerfile").read_text()


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (AGREE, 0),
        (LEFT_OUT, 0),
        (NEWER_CUDNN, 0),
        (NEWER_CUDNN.replace("9.19.0.56", "9.14.0.64"), 1),
        (f"{LEFT_OUT}\nmonai 1.6.1 has requirement torch>=2.8.0, but you have torch 2.7.1.", 1),
        ("nnunetv2 2.8.1 requires yacs, which is not installed.", 1),
        ("", 1),
    ],
    ids=["agree", "left out on purpose", "newer cuDNN", "another cuDNN", "wrong version", "missing", "no pip"],
)
def test_pip_check_fails_on_all_but_what_is_left_out(tmp_path, report, status):
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncat <<'END'\n{report}\nEND\n[ '{report}' = '{AGREE}' ]\n" if report else "#!/bin/sh\nexit 1\n"
    )
    python.chmod(0o755)
    done = subprocess.run([ROOT / "docker" / "pip-check", python], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert ("error: pip check: " in done.stderr) == (status == 1 and report != "")
    assert "timm" not in done.stderr
