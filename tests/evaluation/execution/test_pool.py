"""Worker processes: order, errors, and a process that dies."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from contract.errors import GroundTruthError
from evaluation.execution.pool import AutomaticWorkers, map_cases

SCORES = """
import os
from contract.errors import GroundTruthError

def double(number):
    if number == "die":
        os._exit(9)
    if number == "bad":
        raise GroundTruthError("bad.mha: empty file")
    return 2 * number
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A function in a module that fresh interpreters can import."""
    Path(tmp_path / "scores_for_pool.py").write_text(SCORES)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.find_spec("scores_for_pool")
    assert spec is not None
    import scores_for_pool

    yield scores_for_pool.double
    del sys.modules["scores_for_pool"]


def test_order_is_kept(double):
    assert map_cases(double, [5, 1, 4, 2, 3], 2, on_death=lambda _: None) == [10, 2, 8, 4, 6]


@pytest.mark.parametrize("items", [["die"], [1, 2, "die", 3, 4], ["die", 1, "die", 2]])
def test_a_process_that_dies_costs_its_own_case_only(double, items):
    rows = map_cases(double, items, 2, on_death=lambda item: f"lost {item}")
    assert rows == ["lost die" if item == "die" else 2 * item for item in items]


def test_errors_come_through(double):
    with pytest.raises(GroundTruthError, match="empty file"):
        map_cases(double, [1, 2, "bad", 3, 4], 2, on_death=lambda _: None)


def test_no_workers_stay_in_this_process():
    assert map_cases(lambda number: number + 1, [1, 2], 0, on_death=lambda _: None) == [2, 3]


@pytest.mark.parametrize(
    ("cases", "voxels", "own", "others"),
    [
        (12, 27_000_000, 0, 1),  # 0.49 s of work: four processes would save 0.36 s and take 1 s
        (100, 27_000_000, 4, 4),
        (3, 250_000_000, 0, 1),
        (8, 250_000_000, 4, 4),  # 3 s
        (1, 500_000_000, 0, 1),
    ],
)
def test_processes_start_where_they_save_more_than_they_take(cases, voxels, own, others):
    assert AutomaticWorkers(4, isolate=False).count(cases, voxels) == own
    assert AutomaticWorkers(4, isolate=True).count(cases, voxels) == others
