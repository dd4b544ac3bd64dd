"""How much of a patient's time is spent outside the network's forward passes, and on what."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.network.package import ModelPackage
from benchmarks.bounds import Bound
from benchmarks.watched import WatchedAnswer, WatchedRun, run_watched

MOST_SHARE: Final = 0.15


@dataclass(frozen=True)
class Outside:
    """Medians: `total_s` from `begin` to end, `parts` of it by name; the network's forward passes are one part."""

    begin: str
    total_s: float
    forward_s: float
    parts: Mapping[str, float]

    @property
    def share(self) -> float:
        """Of the total, outside the forward passes."""
        return 1 - self.forward_s / self.total_s

    @property
    def network_s_wanted(self) -> float:
        """From how many seconds in the network on the same work around it would be within the bound."""
        return (self.total_s - self.forward_s) * (1 - MOST_SHARE) / MOST_SHARE

    def bound(self) -> Bound:
        """The share against its bound."""
        note = (
            f"{self.total_s - self.forward_s:.2f} s beside {self.forward_s:.2f} s; within the bound from "
            f"{self.network_s_wanted:.1f} s in the network on"
        )
        name = f"outside the network, {self.begin}"
        return Bound(name, 100 * self.share, 100 * MOST_SHARE, "at most", "%", note)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {**self.__dict__, "share": self.share, "network_s_wanted": self.network_s_wanted}


def measure_outside(package: ModelPackage, input_dir: Path, repeats: int) -> Iterator[Outside]:
    """One fold and no mirror: whole processes, then the answers after the first of a process that stays.

    Raises:
        HecktorError: a process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = [run_watched(input_dir, Path(folder), model=package.root, passes=1) for _ in range(repeats)]
        yield of_processes(runs)
        stays = run_watched(input_dir, Path(folder), model=package.root, passes=1, answers=repeats + 1)
        yield of_answers(stays.answers[1:])


def of_processes(runs: list[WatchedRun]) -> Outside:
    """Medians over processes that gave one answer each."""
    firsts = [run.answers[0] for run in runs]
    answered = of_answers(firsts)
    begun = _median([run.before_request_s for run in runs])
    total = _median([run.seconds for run in runs])
    ended = _median([run.seconds - run.before_request_s - run.answers[0].seconds for run in runs])
    parts = {"Python and imports": begun, **answered.parts, "end of Python": ended}
    return Outside("from the process's start to its end", total, answered.forward_s, parts)


def of_answers(answers: tuple[WatchedAnswer, ...] | list[WatchedAnswer]) -> Outside:
    """Medians over answers; `segment` is split into the forward passes and what is around them."""
    stages = {name: _median([answer.stages[name] for answer in answers]) for name in answers[0].stages}
    forward = _median([answer.forward_s for answer in answers])
    stages["segment"] = _median([answer.stages["segment"] - answer.forward_s for answer in answers])
    parts = {("segment, around the network" if name == "segment" else name): s for name, s in stages.items()}
    total = _median([answer.seconds for answer in answers])
    return Outside("from request to answer in a process that stays", total, forward, {**parts, "network": forward})


def _median(values: list[float]) -> float:
    return float(np.median(values))
