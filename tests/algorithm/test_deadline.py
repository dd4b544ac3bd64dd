from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import output as output_module
from algorithm.case.read import Case
from algorithm.deadline import Deadline, StoppedError, Termination
from algorithm.masks.segmentation import CaseSegmentation, MaskSource
from algorithm.output import AnswerFiles, CaseAnswers, Stages
from algorithm.pipeline import watch
from algorithm.request import METHODS, PredictRequest
from contract.errors import OutputError, TimeLimitError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.io.files import read_json
from contract.patient import Patient
from tests.algorithm.edition import EDITION, RFS


def test_the_reserve_is_a_tenth_at_least_ten_seconds_and_at_most_half() -> None:
    """Sixty of 600 s are reserve: at 100 s 440 are left, and the clock started at 50. At 570 s the reserve is half
    gone. Time spent before the start counts.
    """
    now = 50.0
    deadline = Deadline(600.0, lambda: now)
    now = 150.0
    assert (deadline.elapsed_s(), deadline.left_s()) == (100.0, 440.0)
    assert (deadline.fits(440.0), deadline.fits(440.1)) == (True, False)
    now = 620.0
    assert not deadline.is_overdue()
    now = 620.1
    assert deadline.is_overdue()
    assert (Deadline(50.0, lambda: 0.0).left_s(), Deadline(5.0, lambda: 0.0).left_s()) == (40.0, 2.5)
    late = Deadline(600.0, lambda: 50.0, spent_s=8.0)
    assert (late.elapsed_s(), late.margin_s()) == (8.0, 592.0)


def test_without_a_limit_everything_fits_and_only_silence_is_overdue() -> None:
    """Tiles are signs of life; half an hour without one means that the computation hangs."""
    now = 0.0
    deadline = Deadline(None, lambda: now)
    now = 1e6
    deadline.check()
    assert deadline.fits(1e9)
    now += 1800.0
    assert not deadline.is_overdue()
    now += 0.1
    assert deadline.is_overdue()


def test_a_computation_that_hangs_without_a_limit_ends_with_its_answers(tmp_path: Path) -> None:
    now, released = 0.0, threading.Event()
    deadline, output = Deadline(None, lambda: now), make_output(tmp_path)

    def compute() -> None:
        nonlocal now
        output.write(make_answers(0.5))
        now = 1801.0
        while not released.wait(0.01):
            now += 1.0

    watched = watch(compute, output, deadline, Termination())
    released.set()
    assert (watched.answers.values, watched.reason) == ({"rfs": 0.5}, "no sign of life for 30 min")


def test_the_age_of_this_process() -> None:
    """Ask in a process that sleeps for half a second before: its age is at least that, and below a minute."""
    program = "import time; time.sleep(0.5); from algorithm.deadline import process_age_s; print(process_age_s())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.5 <= float(done.stdout) < 60


@pytest.mark.parametrize("limit_s", [0.0, math.nan, math.inf])
def test_a_limit_must_be_positive(limit_s: float) -> None:
    with pytest.raises(TimeLimitError, match="expected a positive number"):
        Deadline(limit_s, lambda: 0.0)


def test_an_interrupt_stops_the_computation_and_nothing_is_written_afterwards(tmp_path: Path) -> None:
    """Ctrl-C reaches only the watching thread; the computing thread ends at its next check and writes nothing."""
    begun, refused = threading.Event(), threading.Event()

    class Interrupting(Termination):
        @property
        def requested(self) -> bool:  # type: ignore[override]
            if begun.is_set():
                raise KeyboardInterrupt
            return False

        @requested.setter
        def requested(self, _: bool) -> None:
            pass

    deadline, output = Deadline(600.0), make_output(tmp_path)

    def compute() -> None:
        begun.set()
        while not deadline.is_stopped():
            time.sleep(0.01)
        try:
            output.write(make_answers(0.5))
        except StoppedError:
            refused.set()

    with pytest.raises(KeyboardInterrupt):
        watch(compute, output, deadline, Interrupting())
    assert refused.wait(5)
    assert list(tmp_path.iterdir()) == []


def make_output(folder: Path) -> AnswerFiles:
    request = PredictRequest(EDITION, RFS, METHODS["clinical"], folder, folder, "cpu", 600.0)
    return AnswerFiles(request, Stages())


def make_answers(value: float) -> CaseAnswers:
    grid = Geometry((1, 1, 1), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    case = Case(Volume(np.zeros((1, 1, 1), np.int16), grid), None, Patient())
    return CaseAnswers(CaseSegmentation(case, MaskSource.NOTHING), None, {"rfs": value})


def test_better_answers_replace_the_ones_before_and_a_failed_case_leaves_no_file(tmp_path: Path) -> None:
    output = make_output(tmp_path)

    def compute() -> None:
        output.write(make_answers(0.5))
        output.write(make_answers(0.75))

    watched = watch(compute, output, Deadline(600.0), Termination())
    assert (watched.answers.values, watched.reason) == ({"rfs": 0.75}, "")
    assert read_json(tmp_path / "rfs.json") == 0.75
    output.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_answers_before_a_step_that_never_ends_are_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the step ends later, the output is closed."""
    monkeypatch.setattr("algorithm.pipeline.PATIENCE_S", 0.2)
    output, go_on, termination = make_output(tmp_path), threading.Event(), Termination()
    refused: list[type] = []

    def compute() -> None:
        output.write(make_answers(0.5))
        termination.request()
        go_on.wait(60)
        try:
            output.write(make_answers(0.75))
        except StoppedError as problem:
            refused.append(type(problem))

    watched = watch(compute, output, Deadline(600.0), termination)
    assert (watched.answers.values, watched.reason) == ({"rfs": 0.5}, "asked to end")
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "case":
            thread.join(5)
    assert (refused, read_json(tmp_path / "rfs.json")) == ([StoppedError], 0.5)


def test_a_better_answer_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = make_output(tmp_path)

    def compute() -> None:
        output.write(make_answers(0.5))
        monkeypatch.setattr("algorithm.output.write_files", full)
        output.write(make_answers(0.75))

    def full(*_: object, **__: object) -> None:
        raise OutputError("rfs.json", "cannot be written (No space left on device)")

    watched = watch(compute, output, Deadline(600.0), Termination())
    reason = "rfs.json: cannot be written (No space left on device)"
    assert (watched.answers.values, watched.reason) == ({"rfs": 0.5}, reason)


def test_a_write_in_progress_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("algorithm.pipeline.PATIENCE_S", 0.1)
    output, termination, real = make_output(tmp_path), Termination(), output_module.write_files

    def slow(contents: Any, **options: Any) -> None:
        termination.request()
        time.sleep(0.5)
        real(contents, **options)

    monkeypatch.setattr("algorithm.output.write_files", slow)
    watched = watch(lambda: output.write(make_answers(0.5)), output, Deadline(600.0), termination)
    assert watched.answers.values == {"rfs": 0.5}
