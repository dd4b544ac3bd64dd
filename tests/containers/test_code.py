"""User code in its own layers of an image, with its requirements; the image's packages stay unchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rehearsal.runners.containers import ContainerEngine
from tests.containers.conftest import ROOT, build, hold_build_lock
from tests.containers.test_images import run_inside
from tests.containers.test_requirements import write_wheel


def write_code(folder: Path, requirements: str) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text('"""User code."""\n\nNAME = "mine"\n')
    (folder / "requirements.txt").write_text(requirements)
    return folder


def install(folder: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "docker" / "code-install", sys.executable, sys.executable, prefix, folder]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("requirement", "pin"), [("torch==2.4.0", "torch"), ("numpy<2", "numpy"), ("SimpleITK ==2.3.0", "simpleitk")]
)
def test_a_conflict_with_a_pin_is_one_line_that_names_both(requirement: str, pin: str, tmp_path: Path) -> None:
    write_code(tmp_path / "my_model", f"{requirement}\n")
    done = install(tmp_path, tmp_path / "prefix")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    wanted = requirement.replace(" ", "").lower()
    assert line.lower().startswith(f"error: my_model/requirements.txt: found {wanted}, expected {pin}")
    assert f"=={metadata.version(pin)} as in the image" in line


def test_requirements_that_the_image_has_install_nothing(tmp_path: Path) -> None:
    write_code(tmp_path / "my_model", "torch>=2.5\nnumpy\n")
    assert install(tmp_path, tmp_path / "prefix").returncode == 0
    assert not list((tmp_path / "prefix").iterdir())


def test_packages_are_found_with_any_version_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are below the folder that the image has in its path."""
    write_wheel(tmp_path, "answer = 1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    write_code(tmp_path / "my_model", "tiny\n")
    assert install(tmp_path, tmp_path / "code-packages").returncode == 0
    dockerfile = (ROOT / "docker" / "code.Dockerfile").read_text()
    path = dockerfile.split("ENV PYTHONPATH=/opt/app:/opt/")[1].split()[0]
    assert (tmp_path / path / "tiny.py").read_text() == "answer = 1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2026", "--code", "nothing"], "error: nothing: no __init__.py, expected a folder that is a Python package"),
        (["2026", "--code", "my-model"], "error: my-model: not a name of Python, expected letters, digits and _"),
        (["2026", "--code", "model", "--code", "other/model"], "error: --code: found model twice, expected different"),
        (["evaluation", "--code", "model"], "error: --code: found with evaluation, expected algorithm images"),
    ],
)
def test_unusable_code_ends_the_build_at_once(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("my-model", "model", "other/model"):
        write_code(tmp_path / name, "")
    # Copy the script without the build context of the images.
    for name in ("scripts", "contract"):
        shutil.copytree(ROOT / name, tmp_path / "project" / name)
    script = tmp_path / "project" / "scripts" / "build"
    done = subprocess.run([script, *arguments], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[0].startswith(message)) == (1, True), done.stderr


@pytest.mark.container
def test_code_has_its_own_layer(images: ContainerEngine, tmp_path: Path) -> None:
    """User code can be imported as the image's user, and the layers of the image without it come first."""
    code = write_code(tmp_path / "my_model", "numpy>=2\n")
    (code / ".git").mkdir()
    (code / ".git" / "config").write_text("secret")
    with hold_build_lock():
        build("segmentation", "--code", str(code))
    with_code, without = "hecktor-segmentation:my_model", "hecktor-segmentation:latest"
    script = (
        "from contract.code import find_installed_code; print(find_installed_code().find('my_model:NAME', 'network'))"
    )
    assert run_inside(images, with_code, script).strip() == "mine"
    file_names = run_inside(images, with_code, "import os; print(sorted(os.listdir('/opt/code/my_model')))").strip()
    assert file_names == "['__init__.py', 'requirements.txt']"
    layers = [
        images.run("image", "inspect", "--format", '{{join .RootFS.Layers ","}}', name).strip().split(",")
        for name in (without, with_code)
    ]
    assert layers[1][: len(layers[0])] == layers[0]
    assert images.read_image_facts(with_code).user == "hecktor"
    write_code(tmp_path / "other", "torch==2.4.0\n")
    done = subprocess.run(
        [ROOT / "scripts" / "build", "segmentation", "--code", tmp_path / "other"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("error: other/requirements.txt: found torch==2.4.0, expected torch")
