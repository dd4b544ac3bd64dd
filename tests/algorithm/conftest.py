"""Runs of the command line, and changed copies of packages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from algorithm.cli import main
from contract.errors import run_main
from contract.io.files import read_json, write_json
from tests.conftest import write_manifest


@pytest.fixture(autouse=True)
def forget_code() -> Iterator[None]:
    """Remove the module of a test's user code after the test."""
    yield
    sys.modules.pop("my_code", None)


@dataclass(frozen=True)
class PredictRun:
    """Result of a run: exit status, lines of stderr, files below the output folder."""

    status: int
    lines: list[str]
    files: list[str]

    @property
    def warnings(self) -> list[str]:
        return [line.split("*** WARNING *** ")[1] for line in self.lines if "*** WARNING ***" in line]


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


Predict = Callable[..., PredictRun]


@pytest.fixture
def predict(tmp_path: Path, tiny_package: Path, capfd: pytest.CaptureFixture[str], root_logger: None) -> Predict:
    """Run the command line over `tmp_path/input`; also capture the output of C++ libraries."""

    def run(task: str, *options: str, model: Path = tiny_package, output: Path | None = None) -> PredictRun:
        target = output or tmp_path / "output"
        arguments = ["--task", task, "--input", str(tmp_path / "input"), "--output", str(target)]
        if "threshold" not in options:  # it uses no package
            arguments += ["--model", str(model)]
        capfd.readouterr()
        status = run_main(main, [*arguments, "--device", "cpu", *options])
        return PredictRun(status, capfd.readouterr().err.splitlines(), list_files(target))

    return run


def copy_package(
    package: Path, root: Path, change_plans: Callable[[dict[str, Any]], object] | None = None, **manifest: Any
) -> Path:
    """Copy a package to a new folder, change its plans and keys of its manifest, and sign it."""
    shutil.copytree(package, root)
    if change_plans is not None:
        plans = read_json(root / "plans.json")
        change_plans(plans)
        write_json(root / "plans.json", plans)
    content = read_json(root / "manifest.json")
    write_manifest(
        root, **{name: value for name, value in content.items() if name not in ("files", "folds")} | manifest
    )
    return root
