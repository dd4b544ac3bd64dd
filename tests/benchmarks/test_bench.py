"""The stages and peers of `scripts/bench` on small inputs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from algorithm.cli import main as predict_main
from benchmarks import data as bench_data
from benchmarks.data import BenchData, make_data
from benchmarks.suite import make_benchmarks
from contract.errors import run_main
from evaluation.cli import main as evaluation_main
from hecktor.cli import main as hecktor_main

pytestmark = pytest.mark.slow
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
MAINS = {"algorithm": predict_main, "evaluation": evaluation_main, "hecktor": hecktor_main}


def run_suite(*arguments: str | Path) -> list[list[str]]:
    """Return the cells of the rows that a suite prints with `--quick`, without headers."""
    done = subprocess.run([BENCH, *arguments, "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    _, _, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def run_here(command: Sequence[str], **_: Any) -> None:
    """Run `python -m MODULE ARGUMENTS` in this process."""
    _, _, module, *arguments = command
    assert run_main(MAINS[module], arguments) == 0


@pytest.mark.usefixtures("root_logger")
def test_the_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage runs once in this process, then one of them by the script, which finds the data."""
    monkeypatch.setattr(bench_data, "subprocess", SimpleNamespace(run=run_here))
    data = BenchData(tmp_path / "data" / "quick", quick=True)
    assert list(make_data(data))[-1] == "3 teams with 20 cases"
    cases = list(make_benchmarks(data, tmp_path / "scratch"))
    for case in cases:
        if isinstance(case.work, tuple):
            run_here(case.work)
        else:
            assert case.work()()
    assert [case.name for case in cases if case.max_mib or case.max_ratio] == [
        "head and neck: algorithm, one pass", "whole body: algorithm, one pass", "6 cases: evaluation",
    ]  # fmt: skip
    (row,) = run_suite("--data", tmp_path, "--only", "*: report")
    assert (row[0], float(row[3]) > 10) == ("3 teams x 20 cases: report", True)
    assert (tmp_path / "bench-quick.json").is_file()


def test_the_peers(tmp_path: Path) -> None:
    """The script makes the environment of the peers, whose values must equal ours before anything is measured."""
    ((name, *_),) = run_suite("--peers", "--data", tmp_path, "--only", "ours, against s*")
    assert name == "ours, against surface-distance"
