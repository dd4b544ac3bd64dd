"""`hecktor new model`: the skeleton of a model of the user's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contract.code import Code
from hecktor.cli import main

ROOT = Path(__file__).parents[2]


def new_model(folder: Path) -> Path:
    assert main(["new", "model", str(folder)]) == 0
    return folder


def test_the_skeleton_passes_mypy_strict(tmp_path: Path) -> None:
    folder = new_model(tmp_path / "my_model")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", folder.name]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_skeleton_has_each_hook_with_a_docstring(tmp_path: Path) -> None:
    code = Code.of([new_model(tmp_path / "my_model")])
    for name in ("Network", "Head"):
        hook = code.find(f"my_model:{name}", "hook")
        for method in [one for one in vars(hook) if not one.startswith("__") or one in ("__init__", "__call__")]:
            if callable(getattr(hook, method)):
                assert getattr(hook, method).__doc__, method


@pytest.mark.parametrize("name", ["my-model", "1st", "there"])
def test_names_that_cannot_be_used(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    assert main(["new", "model", str(tmp_path / name)]) == 1
    message = "there: exists, expected a new folder" if name == "there" else f"{name}: a name that Python cannot import"
    assert f"error: {message}" in capsys.readouterr().err
    assert not list((tmp_path / name).glob("*"))
