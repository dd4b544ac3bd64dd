"""`scripts/device-check` from end to end on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from algorithm.cli import main as predict_main
from benchmarks.device import patients, speed
from benchmarks.device.check import PARTS
from benchmarks.device.job import CheckJob
from benchmarks.device.speed import CONVERTED, HALF, ITERATION_MS, TILE
from contract.errors import run_main
from contract.io.files import read_json

ROOT = Path(__file__).resolve().parents[3]
# Function of each part, its rows, and some of their figures. `predict` is called in this process.
CALLED: dict[str, tuple[Any, list[str], set[str]]] = {
    "convolution": (speed.time_convolution, ["8 to 8 channels, 16^3 voxels (ms)"], {"float32", "bfloat16", HALF}),
    "tiles": (speed.time_tiles, ["default, 16 x 16 x 16 voxels", "resenc-m, 16 x 16 x 16 voxels"], {TILE, CONVERTED}),
    "tail": (speed.time_tail, ["3 x 24 x 24 x 24 values"], {"softmax (ms)", "addition (ms)", "copy to RAM (ms)"}),
    "patients": (
        patients.run_patients,
        ["default, head and neck", "default, whole body", "resenc-m, head and neck"],
        {"time limit (s)", "segment (s)", "margin (s)", "peak memory (MiB)"},
    ),
    "agreement": (patients.compare_devices, ["masks"], {"Dice GTVp", "differing voxels"}),
    "training": (speed.train_plain, ["plain"], {"first epoch (s)", ITERATION_MS}),
    "compiled": (speed.train_compiled, ["skipped"], {"why"}),
}
SLOW = ("patients", "agreement", "training")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of phantoms and packages, which the parts share."""
    return tmp_path_factory.mktemp("device-check")


def run_here(command: Sequence[str], **_: Any) -> SimpleNamespace:
    """Run `python -m algorithm` in this process."""
    return SimpleNamespace(returncode=run_main(predict_main, command[3:]), stdout="")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CALLED])
def test_a_part_on_a_cpu(name: str, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
        monkeypatch.setenv(f"nnUNet_{variable}", "")  # so that the test restores them
    monkeypatch.setattr(patients, "subprocess", SimpleNamespace(run=run_here, PIPE=-1, STDOUT=-2))
    function, rows, figures = CALLED[name]
    assert PARTS[name].function == f"{function.__module__.rpartition('.')[2]}:{function.__name__}"
    job = CheckJob("cpu", True, scratch, tmp_path / "rows.json", 300.0)
    function(job)
    assert [(row["name"], row["failures"]) for row in job.rows] == [(row, []) for row in rows]
    assert all(row["figures"].keys() >= figures for row in job.rows)
    for row in job.rows:
        if name == "patients":
            assert (row["figures"]["passes"], row["figures"]["planned passes"]) == (4, 4)
            assert row["figures"]["answered by"].startswith("cpu (")
        if name == "agreement":
            assert row["figures"]["Dice GTVp"] == 1  # the CPU agrees with itself


@pytest.mark.slow
def test_the_script_runs_the_other_parts_in_processes(tmp_path: Path) -> None:
    started = {"machine": ["machine"], "fallbacks": ["no card to fill"]}
    assert [name for name in PARTS if name not in {*CALLED, "image"}] == list(started)
    target = tmp_path / "check.json"
    options = ["--python", sys.executable, "--device", "cpu", "--quick", "--output", target, "--only", "fallbacks"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [ROOT / "scripts/device-check", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    document = read_json(target)
    assert json.loads(done.stdout) == document
    assert (done.returncode, document["failures"], document["stopped"]) == (0, [], [])
    assert {part["part"]: [row["name"] for row in part["rows"]] for part in document["parts"]} == started
    assert not [path for path in tmp_path.iterdir() if path != target]  # no scratch is left
