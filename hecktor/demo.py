"""`hecktor demo`: run synthetic patients through all algorithms, rank the results and write a report.

With `--containers` the container images run, otherwise plain processes with the same entry points. Each algorithm is
started once and answers all patients as a server (`invoke`), under the platform's limits.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.editions import DEFAULT_EDITION, Algorithm, Edition, load_edition
from contract.errors import HecktorError, replace_unprintable
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, whole_number
from contract.platform import METRICS_JSON
from contract.processes import count_usable_cpus
from hecktor.cli import COMMANDS, load_command

if TYPE_CHECKING:
    from evaluation.results.task import TaskResults
    from hecktor.attainable import AttainableScores

DEFAULT_SEED: Final = 1
DEFAULT_PATIENTS: Final = 16
# The CT matrix is smaller by this factor in plane, which halves the time to make and read phantoms.
CT_COARSENING: Final = 2
# Images that answer many patients, as `scripts/build --api-method invoke` names them.
IMAGE_TAG: Final = "invoke"
BASELINE: Final = "baseline"
LOGS: Final = "logs"
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class Team:
    """A team of the demonstration: the arguments of its algorithm, and a description for the screen."""

    arguments: str
    description: str


TEAMS: Final = {
    BASELINE: Team("--passes 1", "the shipped model, which was trained only on phantoms"),
    "pet-threshold": Team("--method threshold", "a mask by a PET threshold, as a comparator"),
    "clinical-only": Team("--method clinical", "a model of only the clinical variables, as a comparator"),
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
        """Return the folder of the patients."""
        return self.output / "cohort"

    def list_metrics_files(self, task: Algorithm) -> list[Path]:
        """List the `metrics.json` of each team."""
        return [self.get_task_folder(task) / team / METRICS_JSON for team in list_teams(task)]

    def get_task_folder(self, task: Algorithm) -> Path:
        """Return the folder of a task's results."""
        return self.output / f"task{task.number}"


@dataclass(frozen=True)
class TeamRun:
    """The rehearsal of one team in one task."""

    task: Algorithm
    team: str


@dataclass(frozen=True)
class StartedRun:
    """A rehearsal that runs as a process, with its log and the time of its start on the monotonic clock."""

    run: TeamRun
    process: subprocess.Popen[bytes]
    log: Path
    start_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; existing patients of the cohort are reused."""
    demo = _read_options(_build_parser().parse_args(argv))
    from algorithm.network.loaded_package import find_shipped_package  # imports scipy, which --help does not need

    with lock_output(demo.output):
        _run_steps(demo, find_shipped_package(demo.edition.name))
    return 0


def _run_steps(demo: DemoOptions, package: Path) -> None:
    """Run all steps, and print the results of each task and the folders of all files."""
    start_s = time.monotonic()
    _make_phantoms(demo)
    _rehearse_all(demo, package)
    for task in demo.edition.algorithms:
        with _log_to(demo, f"task{task.number}-rank.log"):
            _call_command("rank", *demo.list_metrics_files(task), "--output", demo.get_task_folder(task))
    # These modules load scipy, which --help does not need.
    from hecktor.attainable import read_attainable
    from reporting.analyses.sources import find_results, load_results_profile

    results = find_results(demo.output, load_results_profile(demo.output, None))
    attainable = read_attainable(demo.cohort)
    report = demo.output / "report.html"
    note = attainable.describe(results, BASELINE)
    with _log_to(demo, "report.log"):
        options = ("--cases", "--cohort", demo.cohort, "--results", demo.output, "--output", report, "--note", note)
        _call_command("report", *options)
    for task_results in results:
        _print_task(demo, task_results, attainable)
    print(f"\n{note}")
    print(f"\nDone in {time.monotonic() - start_s:.0f} s; the logs are in {demo.output / LOGS}")
    print(f"View a case:     {_format_view_command(demo)}")
    print(f"Open the report: {report.resolve().as_uri()}")


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

    The comparator is the PET threshold in tasks with a mask, and a model of the clinical variables in other tasks.
    """
    return (BASELINE, "clinical-only" if task.mask_spec is None else "pet-threshold")


def _make_phantoms(demo: DemoOptions) -> None:
    """Make the patients: every second patient is HPV negative, and at least three of eight patients have a relapse."""
    from tqdm import tqdm

    from rehearsal.phantoms.centres import CENTRES
    from rehearsal.phantoms.cohort import CohortOptions, draw_cases
    from rehearsal.phantoms.make import make_cohort

    options = CohortOptions(
        seed=demo.seed,
        centres=tuple(centre.code for centre in CENTRES),
        layout="platform",
        ct_coarsening=CT_COARSENING,
        edition=demo.edition.source,
        balanced=True,
    )
    negative = sum(not case.outcome.hpv_positive for case in draw_cases(options, demo.patients))
    _print_step(f"{demo.patients} synthetic patients, {negative} of them HPV negative: images, variables, truth")
    patients = make_cohort(options, demo.patients, demo.cohort, demo.jobs)
    list(tqdm(patients, total=demo.patients, unit="patient", disable=None, leave=False))


def _rehearse_all(demo: DemoOptions, package: Path) -> None:
    """Let each team answer all patients and score the answers, `demo.jobs` teams at a time, the slowest team first."""
    from rehearsal.runners.monitor import end_on_signals

    _print_step("each team answers all patients, as on the platform: started once, then called for each patient")
    if not demo.containers:
        print(
            "plain processes: limits on time, disk and each process's memory hold; "
            "user, network and read-only input are not enforced",
            flush=True,
        )
    waiting = [TeamRun(task, team) for task in demo.edition.algorithms for team in list_teams(task)]
    waiting.sort(key=lambda run: run.team != BASELINE)
    # Servers that run at the same time share the CPUs.
    cpus = max(1.0, count_usable_cpus() / min(demo.jobs, len(waiting)))
    running: list[StartedRun] = []
    with end_on_signals():
        try:
            while waiting or running:
                while waiting and len(running) < demo.jobs:
                    running.append(_start_rehearsal(demo, package, waiting.pop(0), cpus))
                for started in [started for started in running if started.process.poll() is not None]:
                    running.remove(started)
                    _finish_rehearsal(started)
                time.sleep(_POLL_S)
        finally:
            for started in running:
                started.process.terminate()
            for started in running:
                started.process.wait()


def _start_rehearsal(demo: DemoOptions, package: Path, run: TeamRun, cpus: float) -> StartedRun:
    """Start `hecktor rehearse` with a team's algorithm on all patients; its output goes into a log."""
    task = run.task
    runner: tuple[object, ...] = ("--process",)
    if demo.containers:
        images = [f"{image}:{IMAGE_TAG}" for image in (task.image, task.evaluation_image)]
        runner = ("--algorithm-image", images[0], "--evaluation-image", images[1])
    arguments = [
        *("--edition", demo.edition.source, "--task", task.number, *runner, "--api-method", "invoke"),
        *("--cpus", cpus),
        *("--cases", demo.cohort, "--ground-truth", demo.cohort / "ground_truth"),
        *("--output", demo.get_task_folder(task) / run.team, "--team", run.team),
        *_list_model_options(task, run.team, package),
    ]
    log = _make_log_path(demo, f"task{task.number}-{run.team}.log")
    with log.open("w", encoding="utf-8") as stream:
        command = [sys.executable, "-m", "hecktor", "rehearse", *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
    return StartedRun(run, process, log, time.monotonic())


def _finish_rehearsal(started: StartedRun) -> None:
    """Print that a rehearsal has ended; raise `HecktorError` if it failed."""
    run, status = started.run, started.process.returncode
    if status != 0:
        sys.stderr.write(started.log.read_text(encoding="utf-8"))
        raise HecktorError(f"hecktor rehearse ended with status {status}", f"{started.log}")
    seconds = time.monotonic() - started.start_s
    print(f"task {run.task.number}: {run.team}, {TEAMS[run.team].description}: {seconds:.0f} s", flush=True)


def _list_model_options(task: Algorithm, team: str, package: Path) -> list[object]:
    """List the options for a team's arguments and model; a team that only thresholds the PET needs no model."""
    uses_package = team != "pet-threshold" or len(task.answers) > 1
    model = ["--model", package] if uses_package else []
    return [f"--arguments={TEAMS[team].arguments}", *model]


def _call_command(name: str, *arguments: object) -> None:
    """Run a subcommand of `hecktor`; raise `HecktorError` if it fails."""
    status = load_command(name)([str(argument) for argument in arguments])
    if status != 0:
        raise HecktorError(f"hecktor {name} ended with status {status}", COMMANDS[name][1])


def _make_log_path(demo: DemoOptions, name: str) -> Path:
    """Return the path of a log, and create its folder."""
    folder = demo.output / LOGS
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


@contextmanager
def _log_to(demo: DemoOptions, name: str) -> Iterator[None]:
    """Redirect the output of commands into a log; if a command fails, print the log."""
    path = _make_log_path(demo, name)
    try:
        with path.open("w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
            yield
    except Exception:
        sys.stderr.write(path.read_text(encoding="utf-8"))
        raise


def _print_step(title: str) -> None:
    sys.stderr.flush()
    print(f"\n== {title}", flush=True)


def _print_task(demo: DemoOptions, results: TaskResults, attainable: AttainableScores) -> None:
    """Print the scores of all teams with intervals, the attainable scores, the winner and the folder."""
    from reporting.report.leaderboard import describe_winner

    board = results.board
    _print_step(f"task {results.task.number}, {results.task.title}")
    width = max(len("attainable"), *map(len, board.names))
    for metric, title in board.metrics.items():
        print(f"{title}, with 95% interval")
        for entry in board.teams:
            value, low, high = entry.metrics[metric].figures
            interval = "" if low is None or high is None else f"  ({low:z.3f} to {high:z.3f})"
            print(f"  {entry.team:<{width}}  {'undefined' if value is None else f'{value:z.3f}{interval}'}")
        best = attainable.find_value(results, metric)
        if best is not None:
            print(f"  {'attainable':<{width}}  {best:.3f}")
    print(replace_unprintable(describe_winner(results)))
    folder = demo.get_task_folder(results.task)
    print(f"ranks: {folder / 'leaderboard.csv'}; answers and scores of a team: {folder / BASELINE}")


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
        help="number of teams, and of phantoms, at a time (default: %(default)s)",
    )
    add("--containers", action="store_true", help="run the container images instead of plain processes")
    add_edition_option(parser)
    return parser
