"""`scripts/device-check` from end to end on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.device.parts import PARTS
from benchmarks.device.speed import CONVERTED, HALF, TILE
from contract.io.files import read_json

ROOT = Path(__file__).resolve().parents[3]
ROWS = {
    "machine": ["machine"],
    "convolution": ["8 to 8 channels, 16^3 voxels (ms)"],
    "tiles": ["default, 16 x 16 x 16 voxels", "resenc-m, 16 x 16 x 16 voxels"],
    "tail": ["3 x 24 x 24 x 24 values"],
    "patients": ["default, head and neck", "default, whole body", "resenc-m, head and neck"],
    "agreement": ["masks"],
    "training": ["plain"],
    "fallbacks": ["no card to fill"],
    "nccl": ["skipped"],
    "compiled": ["skipped"],
}


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    target = tmp_path / "check.json"
    command = [
        ROOT / "scripts/device-check",
        "--python",
        sys.executable,
        "--device",
        "cpu",
        "--quick",
        "--output",
        target,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    document = read_json(target)
    assert json.loads(done.stdout) == document
    assert (done.returncode, document["failures"], document["stopped"]) == (0, [], [])
    parts = {part["part"]: part for part in document["parts"]}
    assert {name: [row["name"] for row in part["rows"]] for name, part in parts.items()} == ROWS
    assert [*parts, "image"] == list(PARTS)
    figures = {name: [row["figures"] for row in part["rows"]] for name, part in parts.items()}
    assert set(figures["convolution"][0]) == {"float32", "bfloat16", HALF}
    assert all(row[TILE] > 0 and row[CONVERTED] > 0 for row in figures["tiles"])
    assert set(figures["tail"][0]) == {"softmax (ms)", "addition (ms)", "copy to RAM (ms)"}
    for run in figures["patients"]:
        assert (run["passes"], run["planned passes"]) == (4, 4)
        assert run["answered by"].startswith("cpu (")
    assert figures["agreement"][0]["Dice GTVp"] == 1  # the CPU with itself
    assert figures["training"][0]["an iteration (ms)"] > 0
    assert not [path for path in tmp_path.iterdir() if path != target]  # no scratch is left
