"""Contents of the two wheels: the code without weights, and the shipped packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_weights_are_in_a_wheel_of_their_own(tmp_path: Path) -> None:
    """Build both wheels from a copy of the tracked files; together they hold each file of the shipped packages once."""
    tracked = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True, text=True).stdout
    names = [name for name in tracked.split("\0") if name and (ROOT / name).is_file()]
    for name in names:
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    folder = tmp_path / "source"
    subprocess.run((*command, "--wheel-dir", tmp_path, ".", "./models"), cwd=folder, check=True, capture_output=True)
    code, models = (next(tmp_path.glob(f"{name}-*.whl")) for name in ("hecktor", "hecktor_models"))
    shipped = {name for name in names if name.startswith("algorithm/default_model/")}
    packed = set(zipfile.ZipFile(models).namelist())
    assert {name for name in packed if ".dist-info/" not in name} == shipped
    assert not packed & set(zipfile.ZipFile(code).namelist())
    assert "algorithm/network/package.py" in zipfile.ZipFile(code).namelist()
    assert code.stat().st_size < 2.5e6
