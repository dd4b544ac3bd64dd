"""`scripts/test-cuda-image` builds and tests an image only if its files have changed since the last test."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the files that the script reads before it needs an engine."""
    for folder in ("docker", "requirements", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def call(tree: Path, *options: str) -> tuple[int, str, str]:
    """Return exit status, hash and the line that names it, on a machine without an engine."""
    environment = os.environ | {"HECKTOR_ENGINE": "false"}
    command = [tree / "scripts" / "test-cuda-image", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (line,) = done.stdout.splitlines()
    return done.returncode, re.findall("[0-9a-f]{64}", line)[0], line


def test_an_image_that_passed_needs_no_engine(tree: Path) -> None:
    record = tree / "requirements" / "cuda-tested.json"
    record.unlink(missing_ok=True)
    status, digest, line = call(tree)
    assert (status, line) == (1, f"CUDA image to be tested: {digest}, last tested: none")
    record.write_text(json.dumps({"sha256": digest, "tests_passed": 1}, indent=2))
    assert call(tree) == (0, digest, f"CUDA image as tested: {digest}")
    assert call(tree, "--again")[0] == 1


def test_the_hash_covers_exactly_the_files_that_make_the_image(tree: Path) -> None:
    """Files that the Dockerfile names, and the Dockerfile, make the image."""
    dockerfile = "docker/algorithm.Dockerfile"
    text = (tree / dockerfile).read_text().replace("${TORCH}", "cuda")
    named = {dockerfile, *re.findall(r"(?<![/\w])(?:docker|requirements)/[\w.-]+", text)}
    assert {"requirements/torch-cuda.lock", "docker/slim"} < named
    _, before, _ = call(tree)
    for name in named:
        content = (tree / name).read_bytes()
        (tree / name).write_bytes(content + b"\n")
        assert call(tree)[1] != before, name
        (tree / name).write_bytes(content)
    for path in (*(tree / "docker").iterdir(), *(tree / "requirements").iterdir()):
        if path.relative_to(tree).as_posix() not in named:
            path.unlink()
    assert call(tree)[1] == before


def test_the_tests_for_the_image_exist() -> None:
    """Months may pass before the script runs them."""
    text = (ROOT / "scripts" / "test-cuda-image").read_text()
    (tests,) = re.findall(r"^TESTS=\(.*\)$", text, re.MULTILINE)
    command = ["bash", "-c", f'{tests}; [ ${{#TESTS[@]}} -gt 1 ] && ls -d "${{TESTS[@]}}"']
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
