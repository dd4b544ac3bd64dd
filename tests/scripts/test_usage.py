"""Help of the scripts, without any set-up."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NAMES = ("bench", "build", "demo", "engine", "fuzz", "gpu-smoke", "lock", "save", "test", "train-default", "try-run")


@pytest.mark.parametrize("name", NAMES)
def test_help_is_the_comment_at_the_head_and_runs_nothing(name: str, tmp_path: Path) -> None:
    """From another folder, in a copy of the scripts alone: set-up would leave files, and anything else would fail."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    lines = (SCRIPTS / name).read_text().splitlines()
    last = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    for option in ("--help", "-h"):
        command = ["bash", f"scripts/{name}", "--quick", option]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [line.removeprefix("#").removeprefix(" ") for line in lines[1:last]]
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]
