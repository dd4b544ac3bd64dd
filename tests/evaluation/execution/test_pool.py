"""Worker processes: order, errors, and a process that dies."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from contract.errors import GroundTruthError, HecktorError
from evaluation.execution import map_cases
from tests.evaluation.conftest import GRID, apply_in_this_process
from tests.evaluation.staging import make_mask
from tests.evaluation.tasks import SEGMENTATION

SCORES = """
import itertools
import os
from contract.errors import GroundTruthError

def double(number):
    if number == "die":
        os._exit(9)
    if number == "hang":
        sum(itertools.repeat(0))  # in C, without releasing Python's lock
    if number == "eat":
        bytearray(20 << 30)
    if number == "folder":
        return os.getcwd()
    if number == "bad":
        raise GroundTruthError("bad.mha: empty file")
    return 2 * number
"""
NOISY = """
import os

def speak(number):
    os.write(1, b"/secret/place\\n")
    os.write(2, b"\\xff /secret/place\\n")
    return number
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Import a function from a module that the worker processes can import as well."""
    Path(tmp_path / "scores_for_pool.py").write_text(SCORES)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.find_spec("scores_for_pool")
    assert spec is not None
    import scores_for_pool

    yield scores_for_pool.double
    del sys.modules["scores_for_pool"]


@pytest.mark.parametrize(("workers", "items"), [(0, ["die"]), (2, [5, "die", 1, "hang", 2, "die", 3, "eat", 4])])
def test_a_crash_a_timeout_and_too_much_memory_fail_only_their_case(double, items, workers, monkeypatch):
    """Results keep their order."""
    monkeypatch.setattr("evaluation.execution.CASE_TIME_LIMIT_S", 2)
    rows = map_cases(double, items, workers, on_death=lambda item: f"lost {item}")
    assert rows == [f"lost {item}" if isinstance(item, str) else 2 * item for item in items]


def test_worker_processes_return_the_same_rows(phase_of, blank, monkeypatch):
    phase = phase_of(SEGMENTATION)
    for number in range(3):
        phase.add_truth_mask(f"P{number}", make_mask(GRID, primary=2, nodes=True))
        phase.add_mask(f"P{number}", make_mask(GRID, primary=2 + number, nodes=number > 0))
    (phase.add_job("odd") / "m.mha").write_bytes(b"no image")
    phase.add_truth_mask("odd", blank())
    from_processes = phase.run(workers=2)
    monkeypatch.setattr("evaluation.execution._apply", apply_in_this_process)
    assert phase.run() == from_processes


def test_all_faulty_references_come_together(double):
    for items, message in ((["bad", 2], "empty file"), (["bad", 2, "bad", 4], r"^2 of 4 references .*bad.*; bad.mha")):
        with pytest.raises(GroundTruthError, match=message):
            map_cases(double, items, 1, on_death=lambda _: None)


def test_processes_that_cannot_begin_are_an_error(monkeypatch):
    """Otherwise each case would count as one that ended its process."""
    monkeypatch.setattr("evaluation.execution._prepare_process", os.abort)
    with pytest.raises(HecktorError, match="each process ends while it starts"):
        map_cases(abs, [1, 2], 1, on_death=lambda _: None)


def test_processes_work_in_the_present_folder(double, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert map_cases(double, ["folder"], 0, on_death=lambda _: None) == [str(tmp_path)]


def test_workers_print_nothing(tmp_path, monkeypatch, capfd):
    (tmp_path / "noisy_for_pool.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import noisy_for_pool  # type: ignore[import-not-found]

    assert map_cases(noisy_for_pool.speak, [1, 2], 1, lambda item: -item) == [1, 2]
    captured = capfd.readouterr()
    assert "secret" not in captured.out + captured.err
