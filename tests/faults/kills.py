"""Kill commands at random moments and check what they leave; `test_kills.py` runs a short form of this program.

    .venv/bin/python -m tests.faults.kills --kills 200 --seed 1 --work DIR [--only COMMAND...]

Each kill starts one command in a folder that is empty or holds the result of another run, ends its main process, and
runs it again. A third of the kills meet `train all` while its networks train; a training is killed up to
MAX_KILLS_OF_A_TRAINING times before it is completed. Kill number N depends only on the seed and N, and its result is a
line of DIR/kills.jsonl, so that an interrupted run continues. The last output is a table of kills by command and
moment; the exit status is 1 if there was a problem:

    damaged     a file that is neither the file of the killed run nor of the run before, and cannot be read
    mixed       files of both runs in one folder
    repeat      the command fails when it is repeated, or its files differ from the files of a run that was not killed
    orphan      a process that outlives the command by more than ORPHAN_S seconds
    traceback   SIGTERM ended the command with a traceback

A kill is SIGKILL, SIGTERM, or a limit on memory (RLIMIT_DATA), which has no moment. The column "status 0" counts kills
after which the command ended well: it had ended before the signal, needs less memory than the limit, or answered in
spite of the kill, as `predict` and `serve` do.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from algorithm.network.package import load_package
from tests.faults.kill_inputs import Inputs, make_inputs
from tests.faults.whole_files import is_whole, list_files

ORPHAN_S: Final = 15.0
RUN_VARIABLE: Final = "HECKTOR_KILLED_RUN"
KINDS: Final = ("SIGKILL", "SIGTERM", "memory")
MOMENTS: Final = ("start", "middle", "end", "training")
TRAIN: Final = "train"
# After so many kills a training is completed.
MAX_KILLS_OF_A_TRAINING: Final = 4
# A limit on memory is between these, uniform in its logarithm. With less, OpenBLAS, which NumPy and SciPy load, tries
# without end to allocate its buffers.
MIN_LIMIT_BYTES: Final = 128 << 20
MAX_LIMIT_BYTES: Final = 4 << 30
MAX_SECONDS: Final = 1800


@dataclass(frozen=True)
class Command:
    """A command that is killed.

    Attributes:
        name: Name in the table.
        build: Builds the arguments of Python from the inputs and the output folder.
        may_vary: Patterns of files that differ between two runs, such as logs: they only have to be readable.
        answers_early: Whether a killed run may leave other valid answers than a whole run.
        resumes: Whether an earlier run's files are continued, so that no run of other inputs comes before.
        refuses_output: Whether it refuses to run again where its output is complete. Its repetition starts in an empty
            folder, so it does not show what leftovers in the folder do.
        calls_server: Whether it is a server that is called once.
        tracebacks: Whether a worker of a library may print a traceback at SIGTERM.
    """

    name: str
    build: Callable[[Inputs, Path], list[object]]
    may_vary: tuple[str, ...] = ()
    answers_early: bool = False
    resumes: bool = False
    refuses_output: bool = False
    calls_server: bool = False
    tracebacks: bool = False


def hecktor(*arguments: object) -> list[object]:
    return ["-m", "hecktor", *arguments]


def list_commands() -> dict[str, Command]:
    """List the commands by name; their inputs are small, so that the start of Python is much of their time."""
    commands = [
        Command(
            "predict",
            lambda inputs, out: hecktor(
                *("predict", "--task", 2, "--input", inputs.case / "input", "--output", out),
                *("--model", inputs.package, "--device", "cpu"),
            ),
            answers_early=True,
        ),
        Command(
            "serve",
            lambda inputs, out: [
                *("-m", "algorithm", "--task", "rfs", "--input", inputs.case / "input", "--output", out),
                *("--model", inputs.package, "--device", "cpu", "--serve"),
            ],
            answers_early=True,
            calls_server=True,
        ),
        Command(
            "evaluate",
            lambda inputs, out: hecktor(
                *("evaluate", "--task", 1, "--teams", inputs.teams, "--ground-truth", inputs.reference),
                *("--output", out, "--bootstraps", 100),
            ),
        ),
        Command("rank", lambda inputs, out: hecktor("rank", inputs.results, "--output", out, "--latex", "--cases")),
        Command(
            "report",
            lambda inputs, out: hecktor(
                *("report", "--results", inputs.results, "--cases", "--cohort", inputs.cohort, "--output", out),
                *("--figures", out / "figures"),
            ),
        ),
        Command(
            "convert",
            lambda inputs, out: hecktor("convert", "dicom", "--input", inputs.study, "--output", out / "CHUM-001"),
            resumes=True,
            refuses_output=True,
        ),
        Command(
            "phantoms",
            lambda inputs, out: hecktor(
                *("phantoms", "--patients", 2, "--seed", inputs.seed, "--layout", "platform", "--output", out),
                *("--head-and-neck-only", "--jobs", 2),
            ),
            resumes=True,
        ),
        Command(
            "package",
            lambda inputs, out: hecktor(
                "package", "--nnunet", inputs.nnunet, "--without-heads", "--output", out / "model.tar.gz"
            ),
        ),
        Command(
            "submission",
            lambda inputs, out: hecktor(
                *("submission", "--package", inputs.package, "--model-only", "--task", 2),
                *("--phantom", "head_and_neck", "--output", out),
            ),
            may_vary=("*.json", "*.log", "*.std*", "README.md"),
        ),
        Command(
            "phase",
            lambda inputs, out: hecktor(
                *("phase", "--task", 1, "--ground-truth", inputs.reference, "--predictions", inputs.reference),
                *("--no-image", "--output", out),
            ),
            may_vary=("*.json", "*.std*", "README.md"),
        ),
        Command(
            "rehearse",
            lambda inputs, out: hecktor(
                *("rehearse", "--process", "--task", 2, "--cases", inputs.cohort, "--ground-truth", inputs.reference),
                *("--model", inputs.package, "--output", out, "--jobs", 2),
            ),
            may_vary=("rehearsal.json", "metrics.json", "edition.json", "logs/*", "evaluation/*"),
        ),
        Command(
            TRAIN,
            lambda inputs, out: hecktor(
                *("train", "all", "--release", inputs.release, "--work", out / "work"),
                *("--output", out / "package", "--spacing-mm", 9, 9, 9, "--folds", 2, "--epochs", 6),
                *("--iterations", 4, "--jobs", 1, "--device", "cpu"),
            ),
            may_vary=("*",),
            resumes=True,
            tracebacks=True,
        ),
    ]
    return {command.name: command for command in commands}


@dataclass
class Kill:
    """A kill as it was planned, and what it left.

    Attributes:
        number: Number of the kill.
        command: Name of the command.
        kind: `SIGKILL`, `SIGTERM` or `memory`.
        fraction: Moment as a fraction of the time of a whole run, or of the time of the networks' training; for
            `memory` the limit, from the smallest (0) to the largest (1).
        moment: Part of the run; `-` for `memory`.
        over_earlier: Whether the folder held the result of another run.
        status: Exit status of the killed process; None before the kill.
        problems: What was wrong afterwards.
        leftovers: Number of hidden temporary files after the repetition.
    """

    number: int
    command: str
    kind: str
    fraction: float
    moment: str
    over_earlier: bool
    status: int | None = None
    problems: list[str] = field(default_factory=list)
    leftovers: int = 0


def plan_kill(seed: int, number: int, commands: Sequence[str]) -> Kill:
    """Plan kill `number`, which depends on the seed and the number."""
    rng = random.Random(f"{seed} {number}")
    trains = TRAIN in commands and number % 3 == 0
    # The other kills meet the commands in turn.
    turn = number - number // 3 - 1 if TRAIN in commands else number
    command = TRAIN if trains else commands[turn % len(commands)]
    fraction = rng.random()
    kind = rng.choice(KINDS[:2] if trains else KINDS)
    moment = "training" if trains else "-" if kind == "memory" else MOMENTS[int(3 * fraction)]
    return Kill(number, command, kind, fraction, moment, over_earlier=rng.random() < 0.5)


@dataclass(frozen=True)
class Reference:
    """A whole run: its files by path, its seconds, and when the networks' training begins and ends."""

    files: dict[str, str]
    seconds: float
    training_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Ended:
    """End of a run: exit status (None if it hangs), stderr, seconds and processes that outlived it."""

    status: int | None
    stderr: str
    seconds: float
    orphans: tuple[str, ...]
    training_s: tuple[float, float] = (0.0, 0.0)


class Harness:
    """Runs, kills and repeats commands below a folder."""

    def __init__(self, work: Path) -> None:
        self.work = work
        # Of these seeds the first two patients are comparable in their follow-up.
        self.new = make_inputs(work / "new", 8)
        # Kills of the training in the output folder, which is not complete yet.
        self.training_kills: list[Kill] = []

    def find_reference(self, command: Command, inputs: Inputs, name: str) -> Reference:
        """Make a whole run of a command, or read the stored one."""
        folder = self.work / "references" / f"{command.name}-{name}"
        stored = folder.with_suffix(".json")
        if stored.is_file():
            content = json.loads(stored.read_text())
            return Reference(**{**content, "training_s": tuple(content["training_s"])})
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ended = self.run(command, inputs, folder)
        if ended.status != 0 or ended.orphans:
            raise SystemExit(f"{command.name} without a kill: status {ended.status}, {ended.orphans}\n{ended.stderr}")
        reference = Reference(list_files(folder), ended.seconds, ended.training_s)
        stored.write_text(json.dumps(asdict(reference)))
        return reference

    def run(
        self,
        command: Command,
        inputs: Inputs,
        output: Path,
        stop: Callable[[subprocess.Popen[str]], None] = lambda _: None,
        limit_bytes: int | None = None,
    ) -> Ended:
        """Run a command to its end; `stop` ends it, `limit_bytes` limits its memory."""
        run_id = uuid.uuid4().hex
        arguments = [str(argument) for argument in command.build(inputs, output)]
        port = find_free_port()
        if command.calls_server:
            arguments += ["--port", str(port)]
        limit = "" if limit_bytes is None else f"ulimit -d {limit_bytes // 1024}; "
        start_s = time.monotonic()
        # A file instead of a pipe: an orphan would keep a pipe open.
        log = self.work / "stderr"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                text=True,
                env={**os.environ, RUN_VARIABLE: run_id, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        training = TrainingWatch(output, start_s) if command.name == TRAIN else None
        stopper = threading.Thread(target=stop, args=(process,), daemon=True)
        stopper.start()
        if command.calls_server:
            call_server(process, port)
        try:
            status = process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:  # it hangs, which ends as an orphan
            status = None
        seconds = time.monotonic() - start_s
        stopper.join(1)
        spans = training.end() if training is not None else (0.0, 0.0)
        return Ended(status, log.read_text(errors="replace"), seconds, end_orphans(run_id), spans)

    def kill(self, kill: Kill, command: Command) -> None:
        """Do a planned kill, and add what it left."""
        reference = self.find_reference(command, self.new, "new")
        kill.over_earlier = kill.over_earlier and not command.resumes
        earlier = None
        if kill.over_earlier:
            earlier = self.find_reference(command, make_inputs(self.work / "old", 18), "old")
        output = self.find_output(command)
        if command.name != TRAIN or not self.training_kills:
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir(parents=True)
        if kill.over_earlier:
            shutil.copytree(self.work / "references" / f"{command.name}-old", output, dirs_exist_ok=True)
        stop = plan_stop(kill, reference, output)
        limit = None
        if kill.kind == "memory":
            limit = int(MIN_LIMIT_BYTES * (MAX_LIMIT_BYTES / MIN_LIMIT_BYTES) ** kill.fraction)
        ended = self.run(command, self.new, output, stop, limit)
        kill.status = ended.status
        kill.problems += [f"orphan: {text}" for text in ended.orphans]
        if "Traceback" in ended.stderr and kill.kind == "SIGTERM" and not command.tracebacks:
            kill.problems.append(f"traceback: {ended.stderr.strip().splitlines()[-1][:120]}")
        kill.problems += self.check_files(command, output, reference, earlier)
        if command.name == TRAIN:
            self.training_kills.append(kill)
            if kill.status != 0 and len(self.training_kills) < MAX_KILLS_OF_A_TRAINING:
                return
        self.repeat(kill, command)

    def find_output(self, command: Command) -> Path:
        return self.work / "runs" / command.name

    def check_files(self, command: Command, output: Path, reference: Reference, earlier: Reference | None) -> list[str]:
        """Return the problems of the visible files of a killed run."""
        problems = []
        old_files = {} if earlier is None else earlier.files
        origins = set()
        for name, digest in list_files(output).items():
            if old_files.get(name) != reference.files.get(name) and not is_variable(command, name):
                if digest == reference.files.get(name):
                    origins.add("new")
                    continue
                if digest == old_files.get(name):
                    origins.add("old")
                    continue
            elif digest == reference.files.get(name):
                continue
            varies = command.answers_early or is_variable(command, name)
            if not varies or not is_whole(output / name):
                problems.append(f"damaged: {name}")
        if origins == {"new", "old"} and not command.answers_early:
            problems.append("mixed: files of two runs")
        return problems

    def repeat(self, kill: Kill, command: Command) -> None:
        """Run a killed command again and compare its files with the reference; complete a training."""
        reference, output = self.find_reference(command, self.new, "new"), self.find_output(command)
        if command.name == TRAIN:
            self.training_kills = []
        if command.refuses_output:  # What is there is whole, as was checked.
            shutil.rmtree(output)
            output.mkdir()
        again = self.run(command, self.new, output)
        if again.status != 0:
            last = again.stderr.strip().splitlines()[-1:]
            kill.problems.append(f"repeat: status {again.status}, {''.join(last)[:200]}")
            return
        kill.problems += [f"orphan: {text}" for text in again.orphans]
        files = list_files(output)
        names = Counter(anonymise(name) for name in files)
        expected = Counter(anonymise(name) for name in reference.files)
        if command.name != TRAIN and names != expected:
            kill.problems.append(f"repeat: other files {sorted((names - expected) + (expected - names))[:3]}")
        differ = [name for name, digest in files.items() if not is_variable(command, name)]
        differ = [name for name in differ if files[name] != reference.files.get(name)]
        kill.problems += [f"repeat: {name} differs" for name in differ[:3]]
        kill.problems += [f"damaged: {name}" for name in files if not is_whole(output / name)]
        if command.name == TRAIN:
            load_package(output / "package")  # checks all files against the manifest
        kill.leftovers = sum(path.name.startswith(".") for path in output.rglob("*"))


def is_variable(command: Command, name: str) -> bool:
    """Return whether a file may differ between two runs, as also the files with random names do."""
    return anonymise(name) != name or any(fnmatch(name, pattern) for pattern in command.may_vary)


def anonymise(name: str) -> str:
    """Replace the random names of a rehearsal's jobs."""
    return "/".join("ID" if len(part) >= 36 and part.count("-") >= 4 else part for part in name.split("/"))


def plan_stop(kill: Kill, reference: Reference, output: Path) -> Callable[[subprocess.Popen[str]], None]:
    """Return the function that sends the signal; a kill by memory sends nothing."""
    if kill.kind == "memory":
        return lambda _: None
    number = signal.Signals[kill.kind]
    start_s, end_s = reference.training_s if kill.moment == "training" else (0.0, reference.seconds)

    def stop(process: subprocess.Popen[str]) -> None:
        if kill.moment == "training":
            while process.poll() is None and not find_training(output, finished=False):
                time.sleep(0.05)
        deadline_s = time.monotonic() + kill.fraction * (end_s - start_s)
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            process.send_signal(number)

    return stop


def find_training(output: Path, *, finished: bool) -> bool:
    """Return whether a network trains, or whether all networks are trained."""
    folds = [path for path in output.glob("work/**/fold_[01]") if path.is_dir()]
    done = [path for path in folds if (path / "checkpoint_final.pth").is_file()]
    return len(done) == 2 if finished else len(done) < 2 and any(any(path.glob("training_log*")) for path in folds)


class TrainingWatch:
    """Notes when the first network begins to train and when the last one ends, in seconds from the start."""

    def __init__(self, output: Path, start_s: float) -> None:
        self._output = output
        self._start_s = start_s
        self._times: dict[str, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(0.1):
            for name, finished in (("begin", False), ("end", True)):
                if name not in self._times and find_training(self._output, finished=finished):
                    self._times[name] = time.monotonic() - self._start_s

    def end(self) -> tuple[float, float]:
        self._is_over.set()
        self._thread.join()
        begin = self._times.get("begin", 0.0)
        return begin, self._times.get("end", begin)


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def call_server(process: subprocess.Popen[str], port: int) -> None:
    """Call a server once when it is ready, then end it; do nothing after its end."""
    from rehearsal.runners.client import request

    while process.poll() is None:
        if request("GET", "/health", port, 10)["status"] == 200:
            request("POST", "/invoke", port, MAX_SECONDS)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            return
        time.sleep(0.2)


def end_orphans(run_id: str) -> tuple[str, ...]:
    """Wait for the end of a run's other processes; kill and return those that outlive it."""
    deadline_s = time.monotonic() + ORPHAN_S
    while (orphans := find_processes(run_id)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for number in orphans:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return tuple(orphans.values())


def find_processes(run_id: str) -> dict[int, str]:
    """Find the command lines of the processes that have the run's variable."""
    processes = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if f"{RUN_VARIABLE}={run_id}".encode() in (folder / "environ").read_bytes():
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        processes[int(folder.name)] = words[:160]
    return processes


def format_table(kills: Iterable[Kill]) -> str:
    """Format the kills by command and moment, and the problems."""
    rows: dict[str, Counter[str]] = {}
    for kill in kills:
        counts = rows.setdefault(kill.command, Counter())
        counts[kill.moment] += 1
        counts[kill.kind] += 1
        counts["status 0"] += kill.status == 0
        counts["problems"] += bool(kill.problems)
        counts["leftovers"] += bool(kill.leftovers)
    columns = (*MOMENTS, *KINDS, "status 0", "problems", "leftovers")
    lines = [f"{'command':<12}" + "".join(f"{column:>11}" for column in columns)]
    totals: Counter[str] = Counter()
    for name, counts in sorted(rows.items()):
        lines.append(f"{name:<12}" + "".join(f"{counts[column]:>11}" for column in columns))
        totals.update(counts)
    lines.append(f"{'all':<12}" + "".join(f"{totals[column]:>11}" for column in columns))
    return "\n".join(lines)


def read_kills(path: Path) -> dict[int, Kill]:
    """Read the kills of earlier runs by number, the last line of each; a half-written last line is left out."""
    kills = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValueError):
            kill = Kill(**json.loads(line))
            kills[kill.number] = kill
    return kills


def log_kill(path: Path, kill: Kill) -> None:
    """Append a kill to the log."""
    with path.open("a") as log:
        log.write(json.dumps(asdict(kill)) + "\n")


def run_kills(kills: int, seed: int, work: Path, only: Sequence[str]) -> list[Kill]:
    """Do all kills that are not in `kills.jsonl` yet, and return all of them."""
    work.mkdir(parents=True, exist_ok=True)
    commands = {name: command for name, command in list_commands().items() if not only or name in only}
    path = work / "kills.jsonl"
    done = read_kills(path)
    harness = Harness(work)
    for number in range(kills):
        kill = plan_kill(seed, number, sorted(commands))
        if number in done:
            if (done[number].command, done[number].fraction) != (kill.command, kill.fraction):
                raise SystemExit(f"{path}: found kills of another --seed or --only, expected another --work")
            continue
        harness.kill(kill, commands[kill.command])
        done[number] = kill
        log_kill(path, kill)
        text = "; ".join(kill.problems) or "nothing wrong"
        where = f"{kill.moment} {kill.fraction:.2f}{' over an earlier run' * kill.over_earlier}"
        print(f"{number}: {kill.command} {kill.kind} {where}, status {kill.status}: {text}", flush=True)
    if harness.training_kills:
        kill = harness.training_kills[-1]
        harness.repeat(kill, commands[TRAIN])
        log_kill(path, kill)
        print(f"{kill.number}: {TRAIN} completed: {'; '.join(kill.problems) or 'nothing wrong'}", flush=True)
    return [done[number] for number in range(kills)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kills and print the table; return 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="number of kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of commands and moments (default: %(default)s)")
    parser.add_argument("--work", type=Path, required=True, help="folder of inputs, runs and kills.jsonl")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(list_commands()), help="only these commands")
    options = parser.parse_args(argv)
    kills = run_kills(options.kills, options.seed, options.work.resolve(), options.only)
    print(format_table(kills))
    return int(any(kill.problems for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
