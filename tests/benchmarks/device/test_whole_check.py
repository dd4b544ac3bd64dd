"""`scripts/device-check` from end to end on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.device import speed
from benchmarks.device.check import PARTS
from benchmarks.device.job import CheckJob
from benchmarks.device.speed import CONVERTED, HALF, TILE
from contract.io.files import read_json

ROOT = Path(__file__).resolve().parents[3]
# The test starts the processes of these parts, and calls the functions of the others in this process.
STARTED = {
    "machine": ["machine"],
    "patients": ["default, head and neck", "default, whole body", "resenc-m, head and neck"],
    "agreement": ["masks"],
    "training": ["plain"],
    "fallbacks": ["no card to fill"],
}
CALLED = {
    "convolution": (speed.time_convolution, ["8 to 8 channels, 16^3 voxels (ms)"], {"float32", "bfloat16", HALF}),
    "tiles": (speed.time_tiles, ["default, 16 x 16 x 16 voxels", "resenc-m, 16 x 16 x 16 voxels"], {TILE, CONVERTED}),
    "tail": (speed.time_tail, ["3 x 24 x 24 x 24 values"], {"softmax (ms)", "addition (ms)", "copy to RAM (ms)"}),
    "compiled": (speed.train_compiled, ["skipped"], {"why"}),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_part_on_a_cpu(name: str, tmp_path: Path) -> None:
    function, rows, figures = CALLED[name]
    assert PARTS[name].function == f"{function.__module__.rpartition('.')[2]}:{function.__name__}"
    job = CheckJob("cpu", True, tmp_path, tmp_path / "rows.json", 60.0)
    function(job)
    assert [(row["name"], row["failures"]) for row in job.rows] == [(row, []) for row in rows]
    assert all(row["figures"].keys() >= figures for row in job.rows)


@pytest.mark.slow
def test_the_other_parts_run_on_a_cpu(tmp_path: Path) -> None:
    assert [name for name in PARTS if name not in {*CALLED, "image"}] == list(STARTED)
    target = tmp_path / "check.json"
    options = ["--python", sys.executable, "--device", "cpu", "--quick", "--output", target, "--only", *STARTED]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [ROOT / "scripts/device-check", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    document = read_json(target)
    assert json.loads(done.stdout) == document
    assert (done.returncode, document["failures"], document["stopped"]) == (0, [], [])
    parts = {part["part"]: part for part in document["parts"]}
    assert {name: [row["name"] for row in part["rows"]] for name, part in parts.items()} == STARTED
    figures = {name: [row["figures"] for row in part["rows"]] for name, part in parts.items()}
    for run in figures["patients"]:
        assert (run["passes"], run["planned passes"]) == (4, 4)
        assert run["answered by"].startswith("cpu (")
    assert figures["agreement"][0]["Dice GTVp"] == 1  # the CPU agrees with itself
    assert figures["training"][0]["an iteration (ms)"] > 0
    assert not [path for path in tmp_path.iterdir() if path != target]  # no scratch is left
