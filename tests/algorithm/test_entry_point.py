"""`python -m algorithm` in its own process, as the container starts it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.editions import Algorithm
from contract.images.volumes import read_volume
from tests.algorithm.conftest import list_files
from tests.algorithm.edition import SEGMENTATION, TASKS
from tests.faults.forked import Forks


def start(
    *arguments: str | Path, entry: str = "algorithm", path: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *entry.split(), *map(str, arguments)]
    environment = None if path is None else {**os.environ, "PYTHONPATH": f"{path}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def answer_arguments(task: Algorithm, case: Any, package: Path, *options: str) -> list[str]:
    folders = ["--input", str(case.input), "--output", str(case.output), "--model", str(package)]
    return ["--task", task.name, *folders, "--device", "cpu", *options]


def predict_in_fork(forks: Forks, folder: Path, *arguments: str) -> tuple[int | None, str]:
    """Return exit status and stderr of `python -m algorithm` in a process that has imported the libraries."""
    process = forks.begin(folder, ["algorithm", *arguments])
    stderr = process.communicate()[1]
    return process.returncode, stderr


def test_each_task_writes_its_socket_and_nothing_else(forks: Forks, case_folder: Any, tiny_package: Path) -> None:
    case_folder.write()
    for task in TASKS:
        status, stderr = predict_in_fork(forks, case_folder.root, *answer_arguments(task, case_folder, tiny_package))
        assert status == 0, stderr
        assert f"{task.name} answered by package tiny: read" in stderr.splitlines()[-1]
    mask_path = f"{SEGMENTATION.answers[0].socket.relative_path}/output.mha"
    assert list_files(case_folder.output) == ["hpv-status.json", mask_path, "rfs.json"]
    mask = read_volume(case_folder.output / mask_path)
    assert mask.array.dtype == np.uint8
    assert set(np.unique(mask.array)) <= {0, 1, 2}
    assert mask.geometry.find_differences(case_folder.ct.geometry) == []
    risk = json.loads((case_folder.output / "rfs.json").read_text())
    assert isinstance(risk, float)
    assert math.isfinite(risk)
    assert isinstance(json.loads((case_folder.output / "hpv-status.json").read_text()), bool)


def test_a_refusal_is_the_last_line_of_stderr(case_folder: Any, tiny_package: Path) -> None:
    """Libraries print nothing after it at the end of the process."""
    case = case_folder.write()
    content = case.ct_path.read_bytes()
    case.ct_path.write_bytes(content[: len(content) * 2 // 3])
    done = start(*answer_arguments(TASKS[0], case, tiny_package))
    assert done.returncode == 1
    lines = done.stderr.rstrip("\n").splitlines()
    assert lines[-1].startswith("error: 0a1b2c3d-ct.mha: truncated, ")
    assert "Traceback" not in done.stderr
    assert not list(case.output.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["algorithm", "hecktor predict"])
def test_the_start_of_python_counts_against_the_time_limit(case_folder: Any, tmp_path: Path, entry: str) -> None:
    """Sleeping two seconds in a `sitecustomize` shortens the limit of 100 s."""
    case_folder.write()
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(2)\n")
    folders = ("--input", case_folder.input, "--output", case_folder.output)
    words = ("--task", "rfs", "--method", "clinical", "--time-limit", "100")
    done = start(*words, *folders, entry=entry, path=str(tmp_path))
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
