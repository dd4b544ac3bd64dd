"""User code in its own layers of an image, with its requirements: built, rehearsed and scored."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from contract.archives import unpack
from contract.editions import load_edition
from contract.io.files import read_json, write_json
from contract.packages import read_identity
from hecktor.cli import main
from rehearsal.runners.containers import ContainerEngine
from rehearsal.submission.images import SOURCE, ImageBuilder, find_builder_engine
from rehearsal.submission.pipeline import SubmissionOptions, make_submission
from tests.baseline.heads.custom_code import ABSOLUTE
from tests.baseline.package.own_model import MODEL, write_model
from tests.containers.conftest import ROOT, hold_build_lock
from tests.containers.test_images import list_patients, read_layers, rehearse_images, run_inside
from tests.containers.test_requirements import write_wheel

RFS = load_edition().find_algorithm("rfs")
# A network of MONAI with a coarse spacing and a head that adds a constant of the package `tiny`, which the image lacks.
COARSE = ("(3.0, 3.0, 4.0)", "(9.0, 9.0, 9.0)")
RISK = "import tiny\n" + ABSOLUTE.replace(
    'features["x"].to_numpy()', 'features["gtvn_volume_ml"].to_numpy() + tiny.answer'
)


def write_code(folder: Path, requirements: str) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text('"""User code."""\n\nNAME = "mine"\n')
    (folder / "requirements.txt").write_text(requirements)
    return folder


def install(folder: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "docker" / "code-install", sys.executable, sys.executable, prefix, folder]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_conflict_with_a_pin_is_one_line_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scripts/build` prints this line last (tests/scripts/test_build.py).

    Without the constraints pip would replace the package in the environment of the tests, so it only resolves.
    """
    monkeypatch.setenv("PIP_DRY_RUN", "1")
    write_code(tmp_path / "my_model", "SimpleITK ==2.3.0\n")
    done = install(tmp_path, tmp_path / "prefix")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    pinned = f"simpleitk=={metadata.version('simpleitk')} as in the image"
    assert line.lower() == f"error: my_model/requirements.txt: found simpleitk==2.3.0, expected {pinned}"


def test_only_what_the_image_lacks_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are below the folder that the image has in its path, with any version of Python."""
    write_wheel(tmp_path, "answer = 1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    write_code(tmp_path / "my_model", "torch>=2.5\ntiny\nnumpy\n")
    assert install(tmp_path, tmp_path / "code-packages").returncode == 0
    dockerfile = (ROOT / "docker" / "code.Dockerfile").read_text()
    packages = tmp_path / dockerfile.split("ENV PYTHONPATH=/opt/app:/opt/")[1].split()[0]
    assert {path.name for path in packages.iterdir()} <= {"tiny.py", "tiny-1.0.dist-info", "__pycache__"}
    assert (packages / "tiny.py").read_text() == "answer = 1"


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


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder of code with a wheel that it requires, and the weights of its network next to it."""
    folder, _ = write_model(tmp_path_factory.mktemp("code"), f"{MODEL}\n{RISK}", COARSE)
    write_wheel(folder, "answer = 1")
    (folder / "requirements.txt").write_text("/code/my_model/tiny-1.0-py3-none-any.whl\nnumpy>=2\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def model(code: Path) -> Path:
    """Pack the network and a head of the risk."""
    work = code.parent
    custom = {"kind": "custom", "hook": "my_model:Head", "folder": "rfs/my_model.Head", "features": ["gtvn_volume_ml"]}
    write_json(work / "heads" / "rfs" / "my_model.Head" / "classes.json", 0)
    write_json(work / "heads.json", {"rfs": custom | {"mean": 0.0, "sd": 1.0}})
    options = ["--code", str(code), "--weights", str(work / "weights"), "--heads", str(work / "heads.json")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(next(code.glob("*.whl")))
        assert main(["package", *options, "--output", str(work / "model.tar.gz")]) == 0
    return work / "model.tar.gz"


@pytest.fixture(scope="module")
def code_image(images: ContainerEngine, code: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the image as for a submission, which requires a model, and return its tag."""
    builder = ImageBuilder(find_builder_engine(None), SOURCE, "cpu", code=(code,))
    with hold_build_lock():
        builder.build(load_edition(), [RFS], tmp_path_factory.mktemp("log") / "log")
    return builder.name(RFS)


@pytest.mark.container
def test_code_has_its_own_layer(images: ContainerEngine, code_image: str) -> None:
    """User code and its package can be imported as the image's user; the layers of the image without code come first."""
    script = (
        "import os; from contract.code import find_installed_code; print(sorted(os.listdir('/opt/code/my_model')), "
        "find_installed_code().find('my_model:tiny', 'head').__file__)"
    )
    names, _, package = run_inside(images, code_image, script).strip().rpartition(" ")
    assert names == "['__init__.py', 'requirements.txt', 'tiny-1.0-py3-none-any.whl']"
    assert package == "/opt/code-packages/site-packages/tiny.py"
    layers = [read_layers(images, name) for name in ("hecktor-rfs:require-model", code_image)]
    assert layers[1][: len(layers[0])] == layers[0]
    assert images.read_image_facts(code_image).user == "hecktor"


@pytest.mark.container
@pytest.mark.slow
def test_own_networks_and_heads_are_rehearsed_and_scored(
    images: ContainerEngine, code_image: str, model: Path, phantoms: Path, tmp_path: Path
) -> None:
    """The image refuses to run without a model, and answers with the model of an archive; both patients are ordered."""
    patients = list_patients(phantoms)
    refused = rehearse_images(images, RFS, phantoms, tmp_path / "without", image=code_image, only=patients[:1])
    assert "error: model package: none in /opt/ml/model, expected the uploaded package" in refused.failures[0]
    result = rehearse_images(images, RFS, phantoms, tmp_path / "with", image=code_image, model=model, scored=True)
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    assert result.ranked["aggregates.c_index.value"] in (0.0, 1.0)
    unpack(model, tmp_path / "model")
    record = read_json(tmp_path / "with" / "rehearsal.json")
    assert record["package"] == {**read_identity(tmp_path / "model").model_dump(), "given": True, "recorded": 2}
    assert [case["record"]["segmented_by"] for case in record["cases"]] == ["network"] * 2


@pytest.mark.container
@pytest.mark.slow
def test_a_submission_holds_the_model_and_a_rehearsed_archive(
    images: ContainerEngine, code: Path, model: Path, tmp_path: Path
) -> None:
    """The image is built, saved, loaded from its archive and rehearsed on a phantom with the uploaded model."""
    options = SubmissionOptions(
        model, tmp_path / "upload", (RFS,), torch="cpu", kinds=("head_and_neck",), coarsening=8, code=(code,)
    )
    builder = ImageBuilder(find_builder_engine(None), SOURCE, "cpu", level=1, code=(code,))
    with hold_build_lock():
        submission = make_submission(options, builder, lambda _: None)
    assert {path.name for path in options.output.iterdir()} >= {"README.md", "model.tar.gz", "hecktor-rfs.tar.gz"}
    assert [rehearsal.task for rehearsal in submission.rehearsals] == ["rfs"]
