"""The demonstration: synthetic patients through every algorithm variant and comparator to a ranking and a report.

With a container engine the images run; without one the same entry points run as plain processes.
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
from contract.errors import HecktorError
from contract.options import whole_number
from contract.platform import METRICS_JSON
from contract.tasks import HPV, RFS, SEGMENTATION, TASKS, Task
from hecktor.cli import COMMANDS, command


@dataclass(frozen=True)
class Team:
    """A name on the leaderboard, and what its algorithm image is called with."""

    name: str
    arguments: tuple[str, ...] = ()


BASELINE: Final = Team("baseline")
TEAMS: Final[dict[str, tuple[Team, ...]]] = {
    SEGMENTATION.name: (BASELINE, Team("pet-threshold", ("--method", "threshold"))),
    RFS.name: (BASELINE, Team("clinical-only", ("--method", "clinical"))),
    HPV.name: (BASELINE, Team("clinical-only", ("--method", "clinical"))),
}
# Chosen so that six patients hold every field of view, relapses, censored patients and both HPV classes.
DEFAULT_SEED: Final = 294
DEFAULT_PATIENTS: Final = 6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; what is there of the cohort already is used again."""
    arguments = _parser().parse_args(argv)
    begun = time.monotonic()
    output: Path = arguments.output
    cohort = output / "cohort"
    _step(f"{arguments.patients} synthetic patients")
    _call(
        "phantoms",
        *("--patients", arguments.patients, "--seed", arguments.seed, "--layout", "platform"),
        *("--output", cohort, "--jobs", arguments.jobs),
    )
    for task in TASKS:
        for team in TEAMS[task.name]:
            _step(f"task {task.number}, {task.title}: {team.name}")
            _rehearse(task, team, cohort, output, arguments)
        _step(f"task {task.number}: ranking")
        files = [_team_dir(output, task, team) / METRICS_JSON for team in TEAMS[task.name]]
        _call("rank", "--task", task.number, *files, "--output", output / f"task{task.number}")
    _step("report")
    report = output / "report.html"
    _call("report", "--cohort", cohort, "--results", output, "--output", report)
    _say_where(output, report, time.monotonic() - begun)
    return 0


def _rehearse(task: Task, team: Team, cohort: Path, output: Path, arguments: argparse.Namespace) -> None:
    how: list[object] = ["--process"]
    if arguments.containers:
        how = [
            *("--algorithm-image", f"hecktor-{task.name}:latest"),
            *("--evaluation-image", f"hecktor-evaluation-{task.name}:latest"),
        ]
    _call(
        "rehearse",
        *("--task", task.number, "--cases", cohort, "--ground-truth", cohort / "ground_truth"),
        *("--output", _team_dir(output, task, team), "--team", team.name, "--jobs", arguments.jobs),
        *how,
        *(["--arguments=" + " ".join(team.arguments)] if team.arguments else []),
    )


def _team_dir(output: Path, task: Task, team: Team) -> Path:
    return output / f"task{task.number}" / team.name


def _call(name: str, *arguments: object) -> None:
    status = command(name)([str(argument) for argument in arguments])
    if status != 0:
        raise HecktorError(f"hecktor {name} ended with status {status}", f"{COMMANDS[name][1]}")


def _step(title: str) -> None:
    sys.stderr.flush()
    print(f"\n== {title}", flush=True)


def _say_where(output: Path, report: Path, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. Where to look:")
    print(f"  {report}")
    for task in TASKS:
        for team in TEAMS[task.name]:
            print(f"  {_team_dir(output, task, team) / METRICS_JSON}")
        print(f"  {output / f'task{task.number}' / 'leaderboard.json'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor demo", description="From synthetic patients to a leaderboard.")
    parser.add_argument("--output", type=Path, default=Path("out/demo"))
    parser.add_argument("--patients", type=whole_number(1), default=DEFAULT_PATIENTS)
    parser.add_argument("--seed", type=whole_number(0), default=DEFAULT_SEED)
    parser.add_argument("--jobs", type=whole_number(1), default=usable_cpus(), help="cases at a time (%(default)s)")
    parser.add_argument("--containers", action="store_true", help="run the images instead of plain processes")
    return parser
