"""`python -m algorithm` in its own process, as the container starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest


def start(*arguments: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "algorithm", *map(str, arguments)]
    environment = None if path is None else {**os.environ, "PYTHONPATH": f"{path}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_refusal_is_the_last_line_of_stderr(case_folder: Any, tiny_package: Path) -> None:
    """Libraries print nothing after it at the end of the process."""
    case = case_folder.write()
    content = case.ct_path.read_bytes()
    case.ct_path.write_bytes(content[: len(content) * 2 // 3])
    folders = ("--input", case.input, "--output", case.output, "--model", tiny_package)
    done = start("--task", "segmentation", *folders, "--device", "cpu")
    assert done.returncode == 1
    lines = done.stderr.rstrip("\n").splitlines()
    assert lines[-1].startswith("error: 0a1b2c3d-ct.mha: truncated, ")
    assert "Traceback" not in done.stderr
    assert not list(case.output.rglob("*"))


@pytest.mark.slow
def test_the_start_of_python_counts_against_the_time_limit(case_folder: Any, tmp_path: Path) -> None:
    """Sleeping two seconds in a `sitecustomize` shortens the limit of 100 s."""
    case_folder.write()
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(2)\n")
    folders = ("--input", case_folder.input, "--output", case_folder.output)
    words = ("--task", "rfs", "--method", "clinical", "--time-limit", "100")
    done = start(*words, *folders, path=str(tmp_path))
    left = re.search(r"([\d.]+) s of 100 s left$", done.stderr.rstrip())
    assert left is not None, done.stderr
    assert float(left[1]) <= 98


@pytest.mark.slow
@pytest.mark.parametrize(("task", "method"), [("segmentation", "threshold"), ("rfs", "clinical")])
def test_comparators_load_no_network_library(case_folder: Any, tiny_package: Path, task: str, method: str) -> None:
    case_folder.write()
    model = () if method == "threshold" else ("--model", str(tiny_package))
    program = textwrap.dedent(
        """
        import sys
        from algorithm.cli import main
        status = main(sys.argv[1:])
        heavy = {"torch", "nnunetv2", "monai", "sklearn", "lifelines", "pandas", "matplotlib"} & set(sys.modules)
        sys.exit(f"loaded {sorted(heavy)}" if heavy else status)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--task", task, "--method", method, "--input", str(case_folder.input),
         "--output", str(case_folder.output), *model],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
