from __future__ import annotations

import math
import time

import pytest

from algorithm.budget import Budget
from algorithm.methods import METHODS, method_for
from algorithm.stages import Stages, peak_memory_mib
from contract.errors import HecktorError, TimeLimitError
from contract.tasks import HPV, RFS, SEGMENTATION, TASKS


def test_a_tenth_is_kept_in_reserve() -> None:
    """Of 600 s 60 are reserve: at 100 s 440 are left, and the clock started at 50."""
    now = 50.0
    budget = Budget.start(600.0, lambda: now)
    now = 150.0
    assert (budget.elapsed_s(), budget.left_s()) == (100.0, 440.0)
    assert budget.fits(440.0)
    assert not budget.fits(440.1)


def test_the_reserve_is_at_least_ten_seconds() -> None:
    assert Budget.start(20.0, lambda: 0.0).left_s() == 10.0
    assert not Budget.start(5.0, lambda: 0.0).fits(0.0)


@pytest.mark.parametrize("limit_s", [0.0, -1.0, math.nan])
def test_a_limit_must_be_positive(limit_s: float) -> None:
    with pytest.raises(TimeLimitError, match="expected a positive number"):
        Budget.start(limit_s, lambda: 0.0)


def test_every_task_has_the_baseline_and_a_comparator() -> None:
    assert {method.name for method in METHODS.values() if SEGMENTATION.name in method.tasks} == {
        "baseline",
        "threshold",
    }
    for task in (RFS, HPV):
        assert {method.name for method in METHODS.values() if task.name in method.tasks} == {"baseline", "clinical"}
        assert method_for("clinical", task).heads[task.name].endswith("_clinical")
    assert all(method_for("baseline", task).segmenter == "network" for task in TASKS)


def test_a_method_that_does_not_answer_a_task() -> None:
    with pytest.raises(HecktorError, match="method 'threshold' does not answer task rfs, expected segmentation"):
        method_for("threshold", RFS)


def test_stages_add_up_and_say_what_was_done() -> None:
    stages = Stages()
    for _ in range(2):
        with stages("read"):
            time.sleep(0.01)
    stages.passes_done, stages.passes_planned = 3, 8
    assert stages.seconds["read"] >= 0.02
    assert stages.summary().startswith("read 0.0 s, 3 of 8 passes, peak memory ")
    assert peak_memory_mib() > 10
