from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from algorithm.cli import main
from contract.errors import run_main


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
