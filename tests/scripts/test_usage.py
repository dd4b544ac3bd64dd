"""Help of the scripts, without a set-up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# All scripts except libraries and the set-ups, which have no options.
NAMES = {path.name for path in SCRIPTS.iterdir() if not path.suffix} - {"setup", "setup-evaluation"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_prints_and_runs_nothing(name: str, tmp_path: Path) -> None:
    """Only the scripts are copied: a set-up would leave files, and anything else would fail."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    command = ["bash", f"scripts/{name}", "--quick", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]


@pytest.mark.parametrize("word", ["env/python", "python-of-path"])
def test_python_of_the_device_check_is_found_from_the_callers_folder(word: str, tmp_path: Path) -> None:
    """Links, as in a virtual environment, are not resolved; a bare name is looked up in PATH."""
    (tmp_path / "env").mkdir()
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$0 $*"\n')
    program.chmod(0o755)
    link = tmp_path / "env" / word.rpartition("/")[2]
    link.symlink_to(program)
    environment = os.environ | {"PATH": f"{link.parent}:{os.environ['PATH']}"}
    command = [SCRIPTS / "device-check", "--python", word, "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{link} -m benchmarks.device --quick\n"
