"""Shell functions of the scripts that call a container engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from contract.editions import list_editions, load_edition

ROOT = Path(__file__).resolve().parents[2]


def test_images_are_listed_without_an_environment(tmp_path: Path) -> None:
    """`scripts/build` runs before any set-up, so `python3` without site packages lists the declared images."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    shutil.copytree(ROOT / "contract" / "editions", tmp_path / "contract" / "editions")
    shutil.copy(ROOT / "scripts" / "engine-lib.sh", tmp_path)
    environment = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    command = ["bash", "-c", "set -eu; source ./engine-lib.sh; declared_images"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(" ") for line in done.stdout.splitlines()] == [
        [task.image, task.evaluation_image, edition.name, task.name]
        for edition in map(load_edition, list_editions())
        if edition.algorithms_of is None
        for task in edition.algorithms
    ]
