"""The algorithm in a process of its own that also notes what the network's forward passes take.

Starts and ends as `python -m algorithm` does and runs the same code, with a clock around each forward pass of the
network. After the first answer it may give more, as a process does that stays between cases.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithm.answering import Termination, answer
from algorithm.budget import process_age_s
from algorithm.heads.methods import METHODS
from algorithm.network.package import DEFAULT_PACKAGE
from algorithm.network.resident import Resident
from algorithm.pipeline import Request
from algorithm.stages import peak_memory_mib
from benchmarks.timing import run_command
from contract.errors import HecktorError, run_main
from contract.files import read_json, write_json
from contract.tasks import task_named

if TYPE_CHECKING:
    import torch

    from algorithm.network.networks import Networks


@dataclass(frozen=True)
class WatchedAnswer:
    """One answer: seconds from request to answer, in the network's forward passes, and by stage."""

    seconds: float
    forward_s: float
    forwards: int
    stages: dict[str, float]


@dataclass(frozen=True)
class WatchedRun:
    """A process that gave `answers`: its seconds from start to end, and the largest resident set it had."""

    seconds: float
    before_request_s: float
    answers: tuple[WatchedAnswer, ...]
    peak_memory_mib: float

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self)


class ForwardClock:
    """Seconds and number of a network's forward passes; a forward pass on a CPU has ended when it returns."""

    def __init__(self) -> None:
        self.seconds, self.count, self._begun = 0.0, 0, 0.0

    def watch(self, network: torch.nn.Module) -> None:
        """Time every forward pass of `network` from now on."""
        network.register_forward_pre_hook(self._begin)
        network.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._begun = time.perf_counter()

    def _end(self, *_: Any) -> None:
        self.seconds += time.perf_counter() - self._begun
        self.count += 1


class WatchedResident(Resident):
    """A resident whose networks carry the clock."""

    def __init__(self, model_dir: Path, clock: ForwardClock) -> None:
        super().__init__(model_dir, "cpu")
        self._clock = clock

    @cached_property
    def networks(self) -> Networks:
        """As the plain resident's; one network serves all folds."""
        from algorithm.network.networks import Networks

        networks = Networks(self.package)
        self._clock.watch(networks.of(0, self.device))
        return networks


def run_watched(
    input_dir: Path, output_dir: Path, *, model: Path = DEFAULT_PACKAGE, passes: int | None = None, answers: int = 1
) -> WatchedRun:
    """Answer the segmentation task `answers` times in a new process, on the CPU, within the task's time limit.

    Raises:
        HecktorError: the process failed.
    """
    report = output_dir / "watched.json"
    command = [sys.executable, "-m", "benchmarks.watched", "--input", str(input_dir), "--output", str(output_dir)]
    command += ["--model", str(model), "--answers", str(answers), "--report", str(report)]
    command += [] if passes is None else ["--passes", str(passes)]
    done = run_command(command)
    if done.status:
        raise HecktorError(f"{input_dir}: the algorithm ended with status {done.status}: {done.said[-2000:]}")
    found = read_json(report)
    given = tuple(WatchedAnswer(**content) for content in found["answers"])
    return WatchedRun(done.seconds, found["before_request_s"], given, found["peak_memory_mib"])


def main(argv: Sequence[str] | None = None) -> int:
    """Answer, and write the report."""
    options = _parser().parse_args(argv)
    before_request_s = process_age_s()
    task = task_named("segmentation")
    clock = ForwardClock()
    resident = WatchedResident(options.model, clock)
    answers = []
    for _ in range(options.answers):
        begun, forward_s, forwards = time.perf_counter(), clock.seconds, clock.count
        request = Request(
            task=task,
            method=METHODS["baseline"],
            input_dir=options.input,
            output_dir=options.output,
            model_dir=options.model,
            device="cpu",
            time_limit_s=task.time_limit_s,
            strict=False,
            most_passes=options.passes,
        )
        stages = answer(request, resident, Termination())
        answers.append(
            WatchedAnswer(
                time.perf_counter() - begun, clock.seconds - forward_s, clock.count - forwards, dict(stages.seconds)
            )
        )
    report = {
        "before_request_s": before_request_s,
        "answers": [asdict(given) for given in answers],
        "peak_memory_mib": peak_memory_mib(),
    }
    write_json(options.report, report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.watched")
    for name in ("input", "output", "model", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--passes", type=int)
    parser.add_argument("--answers", type=int, default=1)
    return parser


if __name__ == "__main__":
    status = run_main(main)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # as the algorithm itself ends
