"""Suites of `scripts/bench` run from the command to the table, on small inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


def run_suite(*arguments: str | Path) -> list[list[str]]:
    """Return the cells of the rows that a suite prints with `--quick`, without headers."""
    done = subprocess.run([BENCH, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
    heads = {number - 1 for number, line in enumerate(tables) if line.startswith("|-")}
    rows = [line for number, line in enumerate(tables) if number not in heads and number - 1 not in heads]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def read_ratios(rows: list[list[str]]) -> dict[str, float]:
    """Return the time ratio of each row that has one."""
    return {row[0]: float(row[4]) for row in rows if row[4]}


def test_the_stages(tmp_path: Path) -> None:
    """A patient has two rows; then come evaluation and reading of few and many cases, rank and report.

    The memory of a whole body is compared with 6 GB. The head and neck takes the same code.
    """
    rows = run_suite("--quick", "--data", tmp_path, "--only", "[!h]*")
    assert len(rows) == 2 + 2 * 2 + 2
    assert len(read_ratios(rows)) in (1, 2)  # six coarse cases may take less than the noise of the start
    (aim,) = (row[6] for row in rows if row[0] == "whole body: algorithm, one pass")
    assert aim == "at most 5722 MiB: met"
    assert (tmp_path / "bench-quick.json").is_file()


def test_the_peers(tmp_path: Path) -> None:
    """Run the peers in their own environment, which the script makes; both answer, so each ratio is printed."""
    ratios = read_ratios(run_suite("--peers", "--quick", "--data", tmp_path, "--only", "[pos]*"))
    assert set(ratios) == {"ours, against panoptica", "ours, against surface-distance"}
    assert all(ratio > 0 for ratio in ratios.values())
