from __future__ import annotations

import math
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from algorithm.budget import Budget
from algorithm.heads.methods import METHODS, method_for
from algorithm.masks.segmentation import Segmentation
from algorithm.stages import Stages, peak_memory_mib
from contract.errors import HecktorError, TimeLimitError
from contract.images.geometry import Geometry
from contract.tasks import HPV, RFS, SEGMENTATION, TASKS


def test_a_tenth_is_kept_in_reserve() -> None:
    """Of 600 s 60 are reserve: at 100 s 440 are left, and the clock started at 50."""
    now = 50.0
    budget = Budget.start(600.0, lambda: now)
    now = 150.0
    assert (budget.elapsed_s(), budget.left_s()) == (100.0, 440.0)
    assert budget.fits(440.0)
    assert not budget.fits(440.1)


def test_the_reserve_is_at_least_ten_seconds_and_at_most_half() -> None:
    assert Budget.start(50.0, lambda: 0.0).left_s() == 40.0
    assert Budget.start(5.0, lambda: 0.0).left_s() == 2.5


def test_what_is_spent_before_the_start_counts() -> None:
    budget = Budget.start(600.0, lambda: 50.0, spent_s=8.0)
    assert (budget.elapsed_s(), budget.margin_s()) == (8.0, 592.0)


def test_overdue_is_when_half_of_the_reserve_is_gone() -> None:
    """Of 600 s 60 are reserve: at 570 s it is half gone."""
    now = 0.0
    budget = Budget.start(600.0, lambda: now)
    now = 570.0
    assert not budget.overdue()
    now = 570.1
    assert budget.overdue()


def test_the_age_of_this_process() -> None:
    """A child that sleeps for half a second before it asks is at least that old, and no minute."""
    program = "import time; time.sleep(0.5); from algorithm.budget import process_age_s; print(process_age_s())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.5 <= float(done.stdout) < 60


@pytest.mark.parametrize("limit_s", [0.0, -1.0, math.nan, math.inf])
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


def test_stages_add_up_and_say_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks of 1.5 s by a clock of the test's own are 3 s; the line also names a card that other tests used."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stages = Stages(Budget.start(600.0, lambda: now))
    for _ in range(2):
        with stages("read"):
            now += 1.5
    cube = Geometry((2, 2, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    zero = np.zeros((2, 2, 2), np.float32)
    stages.passes(Segmentation(np.zeros((3, 2, 2, 2), np.float32), zero, None, cube, 3, 8, "all of it on a card"))
    now = 200.0
    assert stages.seconds["read"] == 3.0
    assert re.fullmatch(
        r"read 3\.0 s, 3 of 8 passes over all of it on a card, peak memory \d+ MiB(, on the GPU \d+ MiB)?, "
        r"400\.0 s of 600 s left",
        stages.summary(),
    )
    stages.passes(Segmentation.from_mask(np.zeros((2, 2, 2), np.uint8), zero, None, cube))
    assert ", no pass, by PET threshold, " in stages.summary()
    assert peak_memory_mib() > 10
