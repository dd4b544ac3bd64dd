"""Tests that hang fail by name, in both environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANGS = "import subprocess\n\n\ndef test_that_hangs():\n    subprocess.run(['sleep', '100'])\n\n\ndef test_after():\n    pass\n"


@pytest.mark.parametrize("environment", [".venv", ".venv-evaluation"])
def test_a_test_that_hangs_is_named_and_the_next_one_runs(tmp_path: Path, environment: str) -> None:
    python = Path(sys.executable) if environment == ".venv" else ROOT / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{environment} was not made")
    (tmp_path / "test_hang.py").write_text(HANGS)
    command = [python, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--timeout", "1", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert "test_hang.py::test_that_hangs" in done.stdout.rsplit("FAILED", maxsplit=1)[-1]
    assert "Failed: Timeout (>1.0s) from pytest-timeout." in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) <= 600
