"""Each suite of `scripts/bench` runs from the command to its table, on small inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


def printed(*arguments: str | Path) -> list[list[str]]:
    """The cells of the rows that a suite prints with `--quick`, without headers."""
    done = subprocess.run([BENCH, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
    heads = {number - 1 for number, line in enumerate(tables) if line.startswith("|-")}
    rows = [line for number, line in enumerate(tables) if number not in heads and number - 1 not in heads]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def ratios(rows: list[list[str]]) -> dict[str, float]:
    """The time ratio of each row that has one."""
    return {row[0]: float(row[4]) for row in rows if row[4]}


def test_the_stages(tmp_path: Path) -> None:
    """Two sizes of patients with two rows each, evaluation and reading of few and of many cases, rank and report.

    Of a whole body the memory is held against 6 GB.
    """
    rows = printed("--quick", "--data", tmp_path)
    assert len(rows) == 2 * 2 + 2 * 2 + 2
    assert len(ratios(rows)) in (2, 3)  # six coarse cases may take less than the noise of the start
    (aim,) = (row[6] for row in rows if row[0] == "whole body: algorithm, one pass")
    assert aim == "at most 5722 MiB: met"
    assert (tmp_path / "bench-quick.json").is_file()


def test_the_peers(tmp_path: Path) -> None:
    """In their own environment, which the script makes: every peer has answered, so that each ratio is printed."""
    found = ratios(printed("--peers", "--quick", "--data", tmp_path))
    assert set(found) == {
        "row, against SimpleITK read",
        "row, against SimpleITK filters",
        "ours, against panoptica",
        "ours, against surface-distance",
        "C-index: ours",
        "C-index: ours, 1000 bootstraps",
    }
    assert all(ratio > 0 for ratio in found.values())
