"""`hecktor demo`: run synthetic patients through all algorithms, rank the results and write a report.

With `--containers` the container images run, otherwise plain processes with the same entry points.
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
from hecktor.cli import COMMANDS, load_command

# With this seed the patients include each field of view, relapses, censored patients and several classes of stages.
DEFAULT_SEED: Final = 174
DEFAULT_PATIENTS: Final = 12


@dataclass(frozen=True)
class Team:
    """A team of the demonstration: the arguments of its algorithm, and a description for the log."""

    arguments: str
    description: str


TEAMS: Final = {
    "baseline": Team("", "the shipped model, which was trained only on phantoms"),
    "pet-threshold": Team("--method threshold", "a mask by a PET threshold, as a comparator"),
    "clinical-only": Team("--method clinical", "a model of the clinical variables only, as a comparator"),
}


@dataclass(frozen=True)
class DemoOptions:
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

    def list_metrics_files(self, task: Algorithm) -> list[Path]:
        """List the `metrics.json` of each team."""
        return [self.task_dir(task) / team / METRICS_JSON for team in list_teams(task)]

    def task_dir(self, task: Algorithm) -> Path:
        return self.output / f"task{task.number}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; existing patients of the cohort are reused."""
    demo = _read_options(_build_parser().parse_args(argv))
    from algorithm.network.loaded_package import find_shipped_package  # imports scipy, which --help does not need

    with lock_output(demo.output):
        _run_steps(demo, find_shipped_package(demo.edition.name))
    return 0


def _run_steps(demo: DemoOptions, package: Path) -> None:
    """Run all steps and print the paths of their results."""
    start_s = time.monotonic()
    _make_phantoms(demo)
    for task in demo.edition.algorithms:
        for team in list_teams(task):
            description = f"{team}, {TEAMS[team].description}; each patient runs as on the platform"
            _print_step(f"task {task.number}, {task.title}: {description}")
            _rehearse(demo, task, team, package)
        _rank(demo, task)
    _print_step("a page with all rankings, metrics and pictures")
    report = demo.output / "report.html"
    _call_command("report", "--cases", "--cohort", demo.cohort, "--results", demo.output, "--output", report)
    _print_results(demo, report, time.monotonic() - start_s)


def _read_options(arguments: argparse.Namespace) -> DemoOptions:
    """Read the options; the default of the output folder depends on the edition."""
    edition = load_edition(arguments.edition)
    folder = "demo" if edition.source == DEFAULT_EDITION else f"demo-{edition.name}"
    return DemoOptions(
        edition=edition,
        output=arguments.output or Path("out") / folder,
        patients=arguments.patients,
        seed=arguments.seed,
        jobs=arguments.jobs,
        containers=arguments.containers,
    )


def list_teams(task: Algorithm) -> tuple[str, ...]:
    """List the teams of a task: the baseline and a comparator.

    The comparator of a task with a mask is the PET threshold, of other tasks a model of the clinical variables.
    """
    return ("baseline", "clinical-only" if task.mask_spec is None else "pet-threshold")


def _make_phantoms(demo: DemoOptions) -> None:
    _print_step(f"{demo.patients} synthetic patients: CT, PET, clinical variables, and the truth")
    _call_command(
        "phantoms",
        *("--patients", demo.patients, "--seed", demo.seed, "--layout", "platform"),
        *("--output", demo.cohort, "--jobs", demo.jobs, "--edition", demo.edition.source),
    )


def _rehearse(demo: DemoOptions, task: Algorithm, team: str, package: Path) -> None:
    """Run the algorithm of a team on all patients and score its answers."""
    runner: tuple[object, ...] = ("--process",)
    if demo.containers:
        runner = ("--algorithm-image", f"{task.image}:latest", "--evaluation-image", f"{task.evaluation_image}:latest")
    _call_command(
        "rehearse",
        *("--edition", demo.edition.source, "--task", task.number, *runner),
        *("--cases", demo.cohort, "--ground-truth", demo.cohort / "ground_truth"),
        *("--output", demo.task_dir(task) / team, "--team", team, "--jobs", demo.jobs),
        *_list_model_options(task, team, package),
        *([f"--arguments={TEAMS[team].arguments}"] if TEAMS[team].arguments else []),
    )


def _list_model_options(task: Algorithm, team: str, package: Path) -> tuple[object, ...]:
    """List the options for the shipped package; a team that only thresholds the PET needs no package."""
    is_used = team != "pet-threshold" or len(task.answers) > 1
    return ("--model", package) if is_used else ()


def _rank(demo: DemoOptions, task: Algorithm) -> None:
    _print_step(f"task {task.number}: rank both teams by the edition's rules, with the stability of the ranks")
    _call_command("rank", *demo.list_metrics_files(task), "--output", demo.task_dir(task))


def _call_command(name: str, *arguments: object) -> None:
    """Run a subcommand of `hecktor`; raise `HecktorError` if it fails."""
    status = load_command(name)([str(argument) for argument in arguments])
    if status != 0:
        raise HecktorError(f"hecktor {name} ended with status {status}", COMMANDS[name][1])


def _print_step(title: str) -> None:
    sys.stderr.flush()
    print(f"\n== {title}", flush=True)


def _print_results(demo: DemoOptions, report: Path, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. Results:")
    for task in demo.edition.algorithms:
        for path in (*demo.list_metrics_files(task), demo.task_dir(task) / "leaderboard.json"):
            print(f"  {path}")
    print(f"\nView a case:   {_format_view_command(demo)}")
    print(f"Open this page:     {report.resolve().as_uri()}")


def _format_view_command(demo: DemoOptions) -> str:
    """Format the command that opens the viewer, with the full path of the program, which may not be on the PATH."""
    program = Path(sys.executable).with_name("hecktor")
    words = (program, "view", "--cohort", demo.cohort, "--results", demo.output)
    return shlex.join(map(str, words))


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor demo", description="Run synthetic patients through all steps to a leaderboard and a report."
    )
    add = parser.add_argument
    output_help = "folder for the results (default: out/demo, or out/demo-EDITION for another edition)"
    add("--output", type=Path, help=output_help)
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
