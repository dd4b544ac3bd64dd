"""The pages' scripts agree with their types; checked where tsc is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPORTING = Path(__file__).resolve().parents[3] / "reporting"


def test_scripts_agree_with_their_types() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc found, expected TypeScript (npm install --global typescript)")
    done = subprocess.run([tsc, "-p", REPORTING / "jsconfig.json"], capture_output=True, text=True, check=False)
    assert done.stdout == ""
