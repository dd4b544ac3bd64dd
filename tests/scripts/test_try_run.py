"""`scripts/try-run` with an engine that only notes how it was called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRY_RUN = ROOT / "scripts" / "try-run"
ENGINE = """\
#!/bin/bash
echo "$*" >> {folder}/calls
[ "$*" != "image inspect hecktor-larynx:latest" ] || exit 1
"""

TryRun = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def try_run(tmp_path: Path) -> TryRun:
    engine = tmp_path / "engine"
    engine.write_text(ENGINE.format(folder=tmp_path))
    engine.chmod(0o755)
    (tmp_path / "input").mkdir()

    def run(image: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
        # Paths are relative to the caller's folder, which is not that of the repository.
        words = [word.relative_to(tmp_path) if isinstance(word, Path) else word for word in options]
        command = [TRY_RUN, image, "input", "output", *words]
        environment = os.environ | {"HECKTOR_ENGINE": str(engine)}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    return folder


def run_of(folder: Path) -> list[str]:
    """The words of the one call that starts a container."""
    (run,) = [line.split() for line in (folder / "calls").read_text().splitlines() if line.startswith("run ")]
    return run


def test_a_model_is_mounted_read_only(try_run: TryRun, model: Path, tmp_path: Path) -> None:
    assert try_run("rfs", "--model", model).returncode == 0
    assert f"{model}:/opt/ml/model:ro" in run_of(tmp_path)


def test_nothing_is_started_without_a_usable_model(try_run: TryRun, tmp_path: Path) -> None:
    """Docker would make an absent folder, as root."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights").touch()
    for name, problem in (
        ("typo", f"--model: {tmp_path}/typo not found, expected a folder"),
        ("empty", f"--model: {tmp_path}/empty holds no file"),
        ("other", f"--model: no manifest.json in {tmp_path}/other, expected a model package"),
    ):
        done = try_run("rfs", "--model", tmp_path / name)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"error: {problem}"
    assert not (tmp_path / "typo").exists()
    assert "volume create" not in (tmp_path / "calls").read_text()


def test_an_argument_of_the_other_kind_of_image_is_an_error(try_run: TryRun, model: Path) -> None:
    done = try_run("evaluation-rfs", "--model", model)
    assert done.stderr == "error: --model: found with an evaluation image, expected an algorithm's\n"
    done = try_run("rfs", "--ground-truth", model)
    assert done.stderr == "error: --ground-truth: found with an algorithm image, expected an evaluation's\n"


def test_a_ground_truth_is_mounted_read_only(try_run: TryRun, model: Path, tmp_path: Path) -> None:
    assert try_run("evaluation-rfs", "--ground-truth", model).returncode == 0
    assert f"{model}:/opt/ml/input/data/ground_truth:ro" in run_of(tmp_path)
    assert try_run("evaluation-rfs", "--ground-truth", tmp_path / "typo").returncode == 1


@pytest.mark.parametrize(
    ("options", "tag"),
    [
        ([], "latest"),
        (["--cuda"], "cuda"),
        (["--require-model"], "require-model"),
        (["--require-model", "--cuda"], "cuda-require-model"),
    ],
)
def test_options_choose_the_tag(try_run: TryRun, tmp_path: Path, options: list[str], tag: str) -> None:
    assert try_run("rfs", *options).returncode == 0
    assert f"image inspect hecktor-rfs:{tag}\n" in (tmp_path / "calls").read_text()


def test_the_image_of_an_own_edition_may_lack_the_prefix(try_run: TryRun, tmp_path: Path) -> None:
    assert try_run("larynx").returncode == 0
    assert run_of(tmp_path)[-1] == "larynx:latest"
