"""`hecktor demo`: synthetic patients through all algorithms, their rankings and a report.

With `--containers` the images run, otherwise plain processes with the same entry points.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.editions import DEFAULT_EDITION, Algorithm, Edition, load_edition
from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, whole_number
from contract.platform import METRICS_JSON
from contract.processes import count_usable_cpus
from hecktor.cli import COMMANDS, command

# With this seed the patients include each field of view, relapses, censored patients and several classes of stages.
DEFAULT_SEED: Final = 174
DEFAULT_PATIENTS: Final = 12
# Arguments to the algorithm of each team, and what it is.
TEAMS: Final = {"baseline": "", "pet-threshold": "--method threshold", "clinical-only": "--method clinical"}
_IS: Final = {
    "baseline": "the shipped model, which was trained on phantoms alone",
    "pet-threshold": "a mask by a PET threshold, as a comparator",
    "clinical-only": "a model of the clinical variables alone, as a comparator",
}


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; existing patients of the cohort are reused."""
    demo = _demo(_parser().parse_args(argv))
    from algorithm.network.resident import find_shipped_package  # imports scipy, which --help does not need

    with lock_output(demo.output):
        _run(demo, find_shipped_package(demo.edition.name))
    return 0


def _run(demo: Demo, package: Path) -> None:
    """Run all steps and print where their results are."""
    begun = time.monotonic()
    _make_phantoms(demo)
    for task in demo.edition.algorithms:
        for team in teams(task):
            _step(f"task {task.number}, {task.title}: {team}, {_IS[team]}; each patient runs as on the platform")
            _rehearse(demo, task, team, package)
        _rank(demo, task)
    _step("a page with all rankings, metrics and pictures")
    report = demo.output / "report.html"
    _call("report", "--cases", "--cohort", demo.cohort, "--results", demo.output, "--output", report)
    _print_results(demo, report, time.monotonic() - begun)


def _demo(arguments: argparse.Namespace) -> Demo:
    """The demonstration with the defaults of its edition."""
    edition = load_edition(arguments.edition)
    folder = "demo" if edition.source == DEFAULT_EDITION else f"demo-{edition.name}"
    return Demo(
        edition=edition,
        output=arguments.output or Path("out") / folder,
        patients=arguments.patients,
        seed=arguments.seed,
        jobs=arguments.jobs,
        containers=arguments.containers,
    )


def teams(task: Algorithm) -> tuple[str, ...]:
    """The baseline and a comparator: the PET threshold for a mask, clinical variables only for other answers."""
    return ("baseline", "clinical-only" if task.mask_spec is None else "pet-threshold")


def _make_phantoms(demo: Demo) -> None:
    _step(f"{demo.patients} synthetic patients: CT, PET, clinical variables, and the truth")
    _call(
        "phantoms",
        *("--patients", demo.patients, "--seed", demo.seed, "--layout", "platform"),
        *("--output", demo.cohort, "--jobs", demo.jobs, "--edition", demo.edition.source),
    )


def _rehearse(demo: Demo, task: Algorithm, team: str, package: Path) -> None:
    how: tuple[object, ...] = ("--process",)
    if demo.containers:
        how = ("--algorithm-image", f"{task.image}:latest", "--evaluation-image", f"{task.evaluation_image}:latest")
    _call(
        "rehearse",
        *("--edition", demo.edition.source, "--task", task.number, *how),
        *("--cases", demo.cohort, "--ground-truth", demo.cohort / "ground_truth"),
        *("--output", demo.task_dir(task) / team, "--team", team, "--jobs", demo.jobs),
        *_model(task, team, package),
        *([f"--arguments={TEAMS[team]}"] if TEAMS[team] else []),
    )


def _model(task: Algorithm, team: str, package: Path) -> tuple[object, ...]:
    """The shipped package by name, as an entrant gives a package; a PET threshold alone answers with a mask."""
    is_used = team != "pet-threshold" or len(task.answers) > 1
    return ("--model", package) if is_used else ()


def _rank(demo: Demo, task: Algorithm) -> None:
    _step(f"task {task.number}: rank both teams by the edition's rules, with the stability of the ranks")
    _call("rank", *demo.metrics(task), "--output", demo.task_dir(task))


def _call(name: str, *arguments: object) -> None:
    status = command(name)([str(argument) for argument in arguments])
    if status != 0:
        raise HecktorError(f"hecktor {name} ended with status {status}", COMMANDS[name][1])


def _step(title: str) -> None:
    sys.stderr.flush()
    print(f"\n== {title}", flush=True)


def _print_results(demo: Demo, report: Path, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. Results:")
    for task in demo.edition.algorithms:
        print(*(f"  {path}" for path in (*demo.metrics(task), demo.task_dir(task) / "leaderboard.json")), sep="\n")
    print(f"\nView a case:   {_view_command(demo)}")
    print(f"Open this page:     {report.resolve().as_uri()}")


def _view_command(demo: Demo) -> str:
    """The command that opens the viewer, with the program of this Python, which may not be on the PATH."""
    program = Path(sys.executable).with_name("hecktor")
    words = (program, "view", "--cohort", demo.cohort, "--results", demo.output)
    return shlex.join(map(str, words))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor demo", description="Run synthetic patients through all steps to a leaderboard and a report."
    )
    add = parser.add_argument
    output = "folder for the results (default: out/demo, or out/demo-EDITION for another edition)"
    add("--output", type=Path, help=output)
    add("--patients", type=whole_number(1), default=DEFAULT_PATIENTS, help="number of patients (default: %(default)s)")
    add("--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the cohort (default: %(default)s)")
    add(
        "--jobs",
        type=whole_number(1),
        default=count_usable_cpus(),
        help="number of cases at a time (default: %(default)s)",
    )
    add("--containers", action="store_true", help="run the container images instead of plain processes")
    add_edition_option(parser)
    return parser
