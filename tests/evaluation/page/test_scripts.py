"""The pages' scripts: bundled into one, and checked against their types where tsc is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from evaluation.page.document import bundled

EVALUATION = Path(__file__).resolve().parents[3] / "evaluation"


def test_a_module_comes_once_and_after_its_imports() -> None:
    text = bundled(("page/charts.js", "report/cases.js"))
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith('modules["')]
    assert len(names) == len(set(names)) == len([*EVALUATION.glob("page/*.js")]) + 1
    assert names.index("page/data.js") < names.index("page/tables.js") < names.index("page/charts.js")
    assert names[-1] == "report/cases.js"
    assert not [line for line in text.splitlines() if line.startswith(("import ", "export "))]


def test_scripts_agree_with_their_types() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc found, expected TypeScript (npm install --global typescript)")
    done = subprocess.run([tsc, "-p", EVALUATION / "jsconfig.json"], capture_output=True, text=True, check=False)
    assert done.stdout == ""
