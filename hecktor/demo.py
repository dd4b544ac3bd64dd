"""`hecktor demo`: synthetic patients through all algorithms, their rankings and a report.

With `--containers` the images run, otherwise plain processes with the same entry points.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.cpus import usable_cpus
from contract.editions import DEFAULT_EDITION, Algorithm, Edition, load_edition
from contract.errors import HecktorError
from contract.options import add_edition_option, whole_number
from contract.platform import METRICS_JSON
from hecktor.cli import COMMANDS, command

# With this seed six patients include each field of view, relapses, censored patients and both HPV classes.
DEFAULT_SEED: Final = 152
DEFAULT_PATIENTS: Final = 6
# Arguments to the algorithm of each team.
TEAMS: Final = {"baseline": "", "pet-threshold": "--method threshold", "clinical-only": "--method clinical"}


@dataclass(frozen=True)
class Demo:
    """Options of the demonstration."""

    edition: Edition
    output: Path
    patients: int
    seed: int
    jobs: int
    containers: bool

    @property
    def cohort(self) -> Path:
        return self.output / "cohort"

    def metrics(self, task: Algorithm) -> list[Path]:
        """The `metrics.json` of each team."""
        return [self.task_dir(task) / team / METRICS_JSON for team in teams(task)]

    def task_dir(self, task: Algorithm) -> Path:
        return self.output / f"task{task.number}"

    def edition_option(self, name_or_path: str) -> tuple[str, ...]:
        """`--edition` with this name or path for an edition other than the default."""
        return () if self.edition.source == DEFAULT_EDITION else ("--edition", name_or_path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; existing patients of the cohort are reused."""
    arguments = _parser().parse_args(argv)
    demo = Demo(**{**vars(arguments), "edition": load_edition(arguments.edition)})
    begun = time.monotonic()
    _make_phantoms(demo)
    for task in demo.edition.algorithms:
        for team in teams(task):
            _step(f"task {task.number}, {task.title}: {team}")
            _rehearse(demo, task, team)
        _rank(demo, task)
    _step("report")
    report = demo.output / "report.html"
    edition = demo.edition_option(demo.edition.source)
    _call("report", "--cohort", demo.cohort, "--results", demo.output, "--output", report, *edition)
    _print_results(demo, report, time.monotonic() - begun)
    return 0


def teams(task: Algorithm) -> tuple[str, ...]:
    """The baseline and a comparator: the PET threshold for a mask, clinical variables only for other answers."""
    return ("baseline", "clinical-only" if task.mask is None else "pet-threshold")


def _make_phantoms(demo: Demo) -> None:
    _step(f"{demo.patients} synthetic patients")
    _call(
        "phantoms",
        *("--patients", demo.patients, "--seed", demo.seed, "--layout", "platform"),
        *("--output", demo.cohort, "--jobs", demo.jobs, *demo.edition_option(demo.edition.source)),
    )


def _rehearse(demo: Demo, task: Algorithm, team: str) -> None:
    how: tuple[object, ...] = ("--process",)
    if demo.containers:
        algorithm, evaluation = f"hecktor-{task.name}:latest", f"hecktor-evaluation-{task.name}:latest"
        how = ("--algorithm-image", algorithm, "--evaluation-image", evaluation)
    _call(
        "rehearse",
        *("--task", task.number, "--cases", demo.cohort, "--ground-truth", demo.cohort / "ground_truth"),
        *("--output", demo.task_dir(task) / team, "--team", team, "--jobs", demo.jobs),
        *(*how, *demo.edition_option(demo.edition.source)),
        *([f"--arguments={TEAMS[team]}"] if TEAMS[team] else []),
    )


def _rank(demo: Demo, task: Algorithm) -> None:
    _step(f"task {task.number}: ranking")
    profile = demo.edition_option(demo.edition.evaluation_profile)
    _call("rank", "--task", task.name, *demo.metrics(task), "--output", demo.task_dir(task), *profile)


def _call(name: str, *arguments: object) -> None:
    status = command(name)([str(argument) for argument in arguments])
    if status != 0:
        raise HecktorError(f"hecktor {name} ended with status {status}", COMMANDS[name][1])


def _step(title: str) -> None:
    sys.stderr.flush()
    print(f"\n== {title}", flush=True)


def _print_results(demo: Demo, report: Path, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. Results:")
    print(f"  {report}")
    for task in demo.edition.algorithms:
        print(*(f"  {path}" for path in (*demo.metrics(task), demo.task_dir(task) / "leaderboard.json")), sep="\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor demo", description="Run synthetic patients through all steps to a leaderboard and a report."
    )
    add = parser.add_argument
    add("--output", type=Path, default=Path("out/demo"), help="folder for the results (default: %(default)s)")
    add("--patients", type=whole_number(1), default=DEFAULT_PATIENTS, help="number of patients (default: %(default)s)")
    add("--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the cohort (default: %(default)s)")
    add("--jobs", type=whole_number(1), default=usable_cpus(), help="number of cases at a time (default: %(default)s)")
    add("--containers", action="store_true", help="run the container images instead of plain processes")
    add_edition_option(parser)
    return parser
