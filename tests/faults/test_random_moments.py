"""SIGTERM and SIGKILL at random moments of every stage, through both entry points."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from contract.editions import Algorithm
from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION
from tests.faults.conftest import ENTRIES, Ended, case_arguments, held_to_promise
from tests.faults.forked import Forks

pytestmark = pytest.mark.slow

# Each is random within its share of the stage: no gap between two of them is longer than a quarter of it.
MOMENTS: Final = 8
MOMENTS_OF_FOUR_ANSWERS: Final = 3
# A call of each stage, in the order of a run; a pass over the small case has 8 tiles. The later stages are those of the
# last answers of a task, after those of the threshold and of the first pass.
BEGINNINGS: Final = {
    "read": "algorithm.command:predict 1",
    "localise": "algorithm.pipeline:find_region 1",
    "load": "algorithm.network.networks:load_weights 1",
    "first pass": "algorithm.network.tiles:_tile_logits 1",
    "later pass": "algorithm.network.tiles:_tile_logits 9",
    "restore": "algorithm.region.grids:restore_labels 3",
    "measure": "algorithm.answers:image_features 3",
    "head": "algorithm.pipeline:compute_answers 3",
    "write": "contract.io.files:_rename_partial 3",
}


class Moments:
    """Runs of one case, one after another, each with a signal at a moment of its own."""

    def __init__(self, forks: Forks, case: Any, package: Path, task: Algorithm, entries: Iterable[str]) -> None:
        """The `entries` take turns."""
        self.forks, self.case, self.task = forks, case, task
        arguments = case_arguments(case, package, task)
        self.commands = itertools.cycle([*ENTRIES[entry], *arguments] for entry in entries)

    def run(
        self, stage: str | None = None, delay_s: float = 0.0, number: signal.Signals = signal.SIGTERM
    ) -> tuple[Ended, dict[str, float]]:
        """How a run ended, and the seconds at which it reached each stage; the signal comes `delay_s` into `stage`."""
        shutil.rmtree(self.case.output)
        self.case.output.mkdir()
        marks = [f"run {function} os.write(1, b'{name}\\n')" for name, function in BEGINNINGS.items()]
        begun, sent, at_s = time.monotonic(), None, {}
        process = self.forks.begin(self.case.root, next(self.commands), marks)
        for line in process.stdout:
            at_s[line.rstrip()] = time.monotonic() - begun
            if line.rstrip() == stage and sent is None:
                time.sleep(delay_s)
                sent = time.monotonic()
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process.pid, number)
        _, said = process.communicate()
        ended = time.monotonic()
        at_s["end"] = ended - begun
        assert process.returncode is not None
        return held_to_promise(self.case, self.task, process.returncode, said, ended - (sent or begun)), at_s

    def duration_s(self, stage: str) -> float:
        """Seconds from the beginning of `stage` to that of the next one, in a run without a signal."""
        _, at_s = self.run()
        return min(seconds for seconds in at_s.values() if seconds > at_s[stage]) - at_s[stage]


@pytest.mark.parametrize("stage", BEGINNINGS)
def test_sigterm_at_random_moments(forks: Forks, case_folder: Any, tiny_package: Path, stage: str) -> None:
    """Each run, by both entry points in turn, ends within 5 s: with a whole answer, or, before the region is known,
    with an error that says so.
    """
    task = RFS if stage in ("measure", "head") else SEGMENTATION
    check_moments(Moments(forks, case_folder.write(), tiny_package, task, ENTRIES), stage, MOMENTS)


@pytest.mark.parametrize("stage", BEGINNINGS)
def test_sigterm_at_random_moments_of_four_answers(
    forks: Forks, case_folder: Any, combined_package: Path, stage: str
) -> None:
    """All answers are written, from the beginning on."""
    moments = Moments(forks, case_folder.write(), combined_package, COMBINED, ENTRIES)
    check_moments(moments, stage, MOMENTS_OF_FOUR_ANSWERS)


def check_moments(moments: Moments, stage: str, count: int) -> None:
    task, duration_s = moments.task, moments.duration_s(stage)
    rng = random.Random(stage)
    for number in range(count):
        delay_s = duration_s * (number + rng.random()) / count
        ended, _ = moments.run(stage, delay_s)
        assert ended.seconds < 5, (delay_s, ended)
        if ended.status == 1 and stage in ("read", "localise") and not task.always_answers:
            assert ended.files == []
            assert ended.last.startswith("error: asked to end: no answer yet after ")
        else:
            assert ended.status == 0, (delay_s, ended)
            assert f"{task.name} answered by package tiny: " in ended.last


@pytest.mark.parametrize("stage", ["load", "later pass", "measure", "write"])
@pytest.mark.parametrize("task", [RFS, COMBINED], ids=lambda task: task.name)
def test_sigkill_at_random_moments(
    forks: Forks, case_folder: Any, tiny_package: Path, combined_package: Path, task: Algorithm, stage: str
) -> None:
    """Whatever is replaced at that moment, whole and valid answers stay (`held_to_promise`)."""
    package = combined_package if task is COMBINED else tiny_package
    moments = Moments(forks, case_folder.write(), package, task, ["algorithm"])
    duration_s, rng = moments.duration_s(stage), random.Random(f"{task.name} {stage}")
    for _ in range(MOMENTS_OF_FOUR_ANSWERS):
        ended, _ = moments.run(stage, rng.uniform(0, duration_s), signal.SIGKILL)
        assert ended.status in (0, -signal.SIGKILL)
        assert ended.files
