"""Kill commands at random moments and check what they leave; `test_signals.py` runs a short form of this program.

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
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from algorithm.network.package import load_package
from contract.errors import HecktorError
from contract.images.volumes import read_volume
from hecktor.cli import main as hecktor_main
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from rehearsal.runners.client import request
from tests.baseline.package.nnunet_results import DATASET, SPACING, train_once
from tests.conftest import write_tiny_package
from tests.convert.studies import StudyFolder

ORPHAN_S: Final = 15.0
RUN_VARIABLE: Final = "HECKTOR_KILLED_RUN"
KINDS: Final = ("SIGKILL", "SIGTERM", "memory")
MOMENTS: Final = ("start", "middle", "end", "training")
TRAIN, SERVE = "train", "serve"
FOLDS: Final = 2
EPOCHS: Final = 3
# A kill of a training comes up to so many seconds after the beginning of an epoch.
MAX_SECONDS_OF_EPOCH: Final = 1.0
# After so many kills a training is completed.
MAX_KILLS_OF_A_TRAINING: Final = 4
# A limit on memory is between these, uniform in its logarithm. With less, OpenBLAS, which NumPy and SciPy load, tries
# without end to allocate its buffers.
MIN_LIMIT_BYTES: Final = 128 << 20
MAX_LIMIT_BYTES: Final = 4 << 30
MAX_SECONDS: Final = 1800


# Files


def list_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path, without hidden files and folders."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def is_whole(path: Path) -> bool:
    """Return whether a JSON, HTML, image, archive or PyTorch file can be read; other files count as whole."""
    name = path.name
    try:
        if name.endswith((".mha", ".nii.gz")):
            read_volume(path)
        elif name.endswith(".json"):
            json.loads(path.read_text(encoding="utf-8"))
        elif name.endswith(".html"):
            return path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        elif name.endswith((".gz", ".tgz")):
            gzip.decompress(path.read_bytes())
        elif name.endswith((".zip", ".npz", ".pth")):
            with zipfile.ZipFile(path) as members:
                return members.testzip() is None
    except (HecktorError, OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile):
        return False
    return True


# Inputs and commands


class Inputs:
    """Small inputs of all commands below a folder, of one seed; each is made when it is first used."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed

    def __getitem__(self, name: str) -> Path:
        """Return a folder of `MAKERS`, which gets its name when it is complete."""
        folder, partial = self.root / name, self.root / f"partial-{name}"
        if not folder.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            MAKERS[name](self, partial)
            partial.rename(folder)
        return folder


def make_phantoms(inputs: Inputs, folder: Path, layout: str, patients: int) -> None:
    options = CohortOptions(inputs.seed, ("CHUM", "MDA"), layout, "head_and_neck", 8, balanced=True)
    list(make_cohort(options, patients, folder, 1))


def copy_masks(inputs: Inputs, folder: Path) -> None:
    for team in ("first", "second"):
        shutil.copytree(inputs["cohort"] / "ground_truth", folder / team, ignore=shutil.ignore_patterns("*.csv"))


def evaluate(inputs: Inputs, folder: Path) -> None:
    for words in (EVALUATE, "rank {out} --output {out} --bootstraps 50"):
        assert hecktor_main([word.format(i=inputs, out=folder) for word in words.split()]) == 0


MAKERS: Final[dict[str, Callable[[Inputs, Path], object]]] = {
    "cohort": lambda inputs, folder: make_phantoms(inputs, folder, "platform", 2),
    "release": lambda inputs, folder: make_phantoms(inputs, folder, "release", 6),
    # The first patient's files.
    "case": lambda inputs, folder: shutil.copytree(min(inputs["cohort"].glob("*/input")), folder, dirs_exist_ok=True),
    "teams": copy_masks,
    "results": evaluate,
    "package": lambda _, folder: write_tiny_package(folder),
    "nnunet": lambda _, folder: train_once(folder, DATASET, SPACING),
    "study": lambda _, folder: StudyFolder(folder).add_ct_and_pet(),
}


@dataclass(frozen=True)
class Command:
    """A command that is killed.

    Attributes:
        name: Name in the table.
        words: Words after `python -m`, with the inputs (`i`) and the output folder (`out`).
        may_vary: Patterns of files that differ between two runs, such as logs: they only have to be readable.
        answers_early: Whether a killed run may leave other valid answers than a whole run.
        resumes: Whether an earlier run's files are continued, so that no run of other inputs comes before.
        refuses_output: Whether it refuses to run again where its output is complete. Its repetition starts in an empty
            folder, so it does not show what leftovers in the folder do.
    """

    name: str
    words: str
    may_vary: tuple[str, ...] = ()
    answers_early: bool = False
    resumes: bool = False
    refuses_output: bool = False


PREDICT: Final = "--input {i[case]} --output {out} --model {i[package]} --device cpu"
EVALUATE: Final = (
    "evaluate --task 1 --teams {i[teams]} --ground-truth {i[cohort]}/ground_truth --output {out} --bootstraps 50"
)
# The inputs are small, so that the start of Python is much of the time of a command.
_COMMANDS: Final = (
    Command("predict", f"hecktor predict --task 2 {PREDICT}", answers_early=True),
    Command(SERVE, f"algorithm --task rfs {PREDICT} --serve", answers_early=True),
    Command("evaluate", f"hecktor {EVALUATE}"),
    Command("rank", "hecktor rank {i[results]} --output {out} --latex --cases"),
    Command(
        "report",
        "hecktor report --results {i[results]} --cases --cohort {i[cohort]} --output {out} --figures {out}/figures",
    ),
    Command(
        "convert",
        "hecktor convert dicom --input {i[study]} --output {out}/CHUM-001",
        resumes=True,
        refuses_output=True,
    ),
    Command(
        "phantoms",
        "hecktor phantoms --patients 2 --seed {i.seed} --layout platform --head-and-neck-only --jobs 2 --output {out}",
        resumes=True,
    ),
    Command(
        "package",
        "hecktor package --nnunet {i[nnunet]}/results/Dataset001_Tiny/nnUNetTrainer__nnUNetPlans__3d_fullres --without-heads --output {out}/model.tar.gz",
    ),
    Command(
        "submission",
        "hecktor submission --package {i[package]} --model-only --task 2 --phantom head_and_neck --output {out}",
        may_vary=("*.json", "*.log", "*.std*", "README.md"),
    ),
    Command(
        "phase",
        "hecktor phase --task 1 --ground-truth {i[cohort]}/ground_truth --predictions {i[cohort]}/ground_truth --no-image --output {out}",
        may_vary=("*.json", "*.std*", "README.md"),
    ),
    Command(
        "rehearse",
        "hecktor rehearse --process --task 2 --cases {i[cohort]} --ground-truth {i[cohort]}/ground_truth --model {i[package]} "
        "--output {out} --jobs 2",
        may_vary=("rehearsal.json", "metrics.json", "edition.json", "logs/*", "evaluation/*"),
    ),
    Command(
        TRAIN,
        "hecktor train all --release {i[release]} --work {out}/work --output {out}/package --spacing-mm 9 9 9 "
        f"--folds {FOLDS} --epochs {EPOCHS} --iterations 1 --jobs 1 --device cpu",
        may_vary=("*",),
        resumes=True,
    ),
)
COMMANDS: Final = {command.name: command for command in _COMMANDS}


# Kills


@dataclass
class Kill:
    """A kill as it was planned, and what it left.

    Attributes:
        kind: `SIGKILL`, `SIGTERM` or `memory`.
        fraction: Moment as a fraction of the time of a whole run, or of the epochs that are left to train; for `memory`
            the limit, from the smallest (0) to the largest (1).
        moment: Part of the run; `-` for `memory`.
        over_earlier: Whether the folder held the result of another run.
        status: Exit status of the killed process; None before the kill.
        problems: What was wrong afterwards.
    """

    number: int
    command: str
    kind: str
    fraction: float
    moment: str
    over_earlier: bool
    status: int | None = None
    problems: list[str] = field(default_factory=list)


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
class Ended:
    """End of a run.

    Attributes:
        status: Exit status; None if the run hangs.
        files: Digests of the files by path.
        orphans: Processes that outlived the run.
    """

    status: int | None = None
    stderr: str = ""
    seconds: float = 0.0
    files: dict[str, str] = field(default_factory=dict)
    orphans: Sequence[str] = ()


class Harness:
    """Runs, kills and repeats commands below a folder."""

    def __init__(self, work: Path) -> None:
        self.work = work
        # Of these seeds the first two patients are comparable in their follow-up.
        self.inputs = {"new": Inputs(work / "new", 8), "old": Inputs(work / "old", 18)}
        # Kills of the training in the output folder, which is not complete yet.
        self.training_kills: list[Kill] = []

    def find_reference(self, command: Command, name: str) -> Ended:
        """Make a whole run of a command with the new or old inputs, or read the stored run."""
        folder = self.work / "references" / f"{command.name}-{name}"
        stored = folder.with_suffix(".json")
        if stored.is_file():
            return Ended(**json.loads(stored.read_text()))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ended = self.run(command, self.inputs[name], folder)
        if ended.status != 0 or ended.orphans:
            raise SystemExit(f"{command.name} without a kill: status {ended.status}, {ended.orphans}\n{ended.stderr}")
        stored.write_text(json.dumps(asdict(ended)))
        return ended

    def run(
        self,
        command: Command,
        inputs: Inputs,
        output: Path,
        stop: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
        limit: str = "",
    ) -> Ended:
        """Run a command to its end; `stop` ends it, `limit` is a shell command that limits its memory."""
        run_id, port = uuid.uuid4().hex, find_free_port()
        words = [word.format(i=inputs, out=output) for word in command.words.split()]
        if command.name == SERVE:
            words += ["--port", str(port)]
        start_s = time.monotonic()
        # A file instead of a pipe: an orphan would keep a pipe open.
        log = self.work / "stderr"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, RUN_VARIABLE: run_id, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        stopper = threading.Thread(target=stop, args=(process,), daemon=True)
        stopper.start()
        if command.name == SERVE:
            call_server(process, port)
        try:
            status = process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:  # it hangs, which ends as an orphan
            status = None
        seconds = time.monotonic() - start_s
        stopper.join(1)
        orphans = end_orphans(run_id)
        return Ended(status, log.read_text(errors="replace"), seconds, list_files(output), orphans)

    def kill(self, kill: Kill) -> None:
        """Do a planned kill, and add what it left."""
        command, output = COMMANDS[kill.command], self.work / "runs" / kill.command
        # All files of a training may vary, so that its kills while networks train need no whole run.
        reference = Ended() if kill.moment == "training" else self.find_reference(command, "new")
        kill.over_earlier = kill.over_earlier and not command.resumes
        earlier = self.find_reference(command, "old") if kill.over_earlier else Ended()
        if command.name != TRAIN or not self.training_kills:
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir(parents=True)
        if kill.over_earlier:
            shutil.copytree(self.work / "references" / f"{command.name}-old", output, dirs_exist_ok=True)
        limit = ""
        if kill.kind == "memory":
            limit_bytes = MIN_LIMIT_BYTES * (MAX_LIMIT_BYTES / MIN_LIMIT_BYTES) ** kill.fraction
            limit = f"ulimit -d {int(limit_bytes) // 1024}; "
        ended = self.run(command, self.inputs["new"], output, plan_stop(kill, reference.seconds, output), limit)
        kill.status = ended.status
        kill.problems += [f"orphan: {text}" for text in ended.orphans]
        # A worker of a library may print a traceback while it trains.
        if "Traceback" in ended.stderr and kill.kind == "SIGTERM" and command.name != TRAIN:
            kill.problems.append(f"traceback: {ended.stderr.strip().splitlines()[-1][:120]}")
        kill.problems += check_files(command, output, ended, reference, earlier)
        if command.name == TRAIN:
            self.training_kills.append(kill)
            if kill.status != 0 and len(self.training_kills) < MAX_KILLS_OF_A_TRAINING:
                return
        self.repeat(kill, reference)

    def repeat(self, kill: Kill, reference: Ended) -> None:
        """Run a killed command again and compare its files with the reference; complete a training."""
        command, output = COMMANDS[kill.command], self.work / "runs" / kill.command
        if command.refuses_output:  # What is there is whole, as was checked.
            shutil.rmtree(output)
            output.mkdir()
        again = self.run(command, self.inputs["new"], output)
        if again.status != 0:
            last = again.stderr.strip().splitlines()[-1:]
            kill.problems.append(f"repeat: status {again.status}, {''.join(last)[:200]}")
        elif command.name == TRAIN:
            load_package(output / "package")  # checks all files against the manifest
        else:
            names, expected = (Counter(map(anonymise, run.files)) for run in (again, reference))
            differing = (names - expected) + (expected - names)
            kill.problems += [f"repeat: other file {name}" for name in sorted(differing)[:3]]
            differ = [name for name, digest in again.files.items() if digest != reference.files.get(name)]
            kill.problems += [f"repeat: {name} differs" for name in differ if not is_variable(command, name)][:3]
        kill.problems += [f"orphan: {text}" for text in again.orphans]
        kill.problems += [f"damaged: {name}" for name in again.files if not is_whole(output / name)]
        if command.name == TRAIN:
            self.training_kills = []


def check_files(command: Command, output: Path, ended: Ended, reference: Ended, earlier: Ended) -> list[str]:
    """Return the problems of the visible files of a killed run."""
    problems, origins = [], set()
    for name, digest in ended.files.items():
        varies, new, old = is_variable(command, name), reference.files.get(name), earlier.files.get(name)
        if digest in (new, old):
            if new != old and not varies:
                origins.add("new" if digest == new else "old")
        elif not (varies or command.answers_early) or not is_whole(output / name):
            problems.append(f"damaged: {name}")
    if len(origins) == 2 and not command.answers_early:
        problems.append("mixed: files of two runs")
    return problems


def is_variable(command: Command, name: str) -> bool:
    """Return whether a file may differ between two runs, as also the files with random names do."""
    return anonymise(name) != name or any(fnmatch(name, pattern) for pattern in command.may_vary)


def anonymise(name: str) -> str:
    """Replace the random names of a rehearsal's jobs."""
    return "/".join("ID" if len(part) >= 36 and part.count("-") >= 4 else part for part in name.split("/"))


def plan_stop(kill: Kill, seconds: float, output: Path) -> Callable[[subprocess.Popen[bytes]], None]:
    """Return the function that sends the signal; a kill by memory sends nothing.

    Args:
        kill: The kill.
        seconds: Time of a whole run.
        output: Output folder of a training.
    """

    def wait(process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> None:
        while process.poll() is None and not is_over():
            time.sleep(0.03)

    def stop(process: subprocess.Popen[bytes]) -> None:
        delay_s = kill.fraction * seconds
        if kill.moment == "training":
            logs, epochs = count_epochs(output)
            target = epochs + kill.fraction * (FOLDS * EPOCHS - epochs)
            # A training that continues writes a new log, and may repeat epochs.
            wait(process, lambda: count_epochs(output) >= (logs + 1, int(target)))
            wait(process, lambda: count_epochs(output)[1] >= int(target))
            delay_s = target % 1 * MAX_SECONDS_OF_EPOCH
        end_s = time.monotonic() + delay_s
        wait(process, lambda: time.monotonic() >= end_s)
        with suppress(ProcessLookupError):
            process.send_signal(signal.Signals[kill.kind])

    return (lambda _: None) if kill.kind == "memory" else stop


def count_epochs(output: Path) -> tuple[int, int]:
    """Return how many logs the networks' training has written, and how many epochs of all folds have begun."""
    logs = list(output.glob("work/**/fold_*/training_log*"))
    begun = {
        (log.parent, epoch) for log in logs for epoch in re.findall(r"Epoch (\d+)", log.read_text(errors="replace"))
    }
    return len(logs), len(begun)


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def call_server(process: subprocess.Popen[bytes], port: int) -> None:
    """Call a server once when it is ready, then end it; do nothing after its end."""
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
    for folder in Path("/proc").glob("[0-9]*"):
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
        counts.update([kill.moment, kill.kind])
        counts["status 0"] += kill.status == 0
        counts["problems"] += bool(kill.problems)
    columns = (*MOMENTS, *KINDS, "status 0", "problems")
    rows = dict(sorted(rows.items())) | {"all": sum(rows.values(), Counter())}
    lines = [f"{'command':<12}" + "".join(f"{column:>11}" for column in columns)]
    lines += [f"{name:<12}" + "".join(f"{counts[column]:>11}" for column in columns) for name, counts in rows.items()]
    return "\n".join(lines)


def read_kills(path: Path) -> dict[int, Kill]:
    """Read the kills of earlier runs by number, the last line of each; a half-written last line is left out."""
    kills = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValueError):
            kill = Kill(**json.loads(line))
            kills[kill.number] = kill
    return kills


def run_kills(kills: int, seed: int, work: Path, only: Sequence[str]) -> list[Kill]:
    """Do all kills that are not in `kills.jsonl` yet, and return all of them."""
    work.mkdir(parents=True, exist_ok=True)
    names, path = sorted(set(only) or COMMANDS), work / "kills.jsonl"
    done, harness = read_kills(path), Harness(work)

    def log(kill: Kill, text: str) -> None:
        done[kill.number] = kill
        with path.open("a") as lines:
            lines.write(json.dumps(asdict(kill)) + "\n")
        print(f"{kill.number}: {kill.command} {text}: {'; '.join(kill.problems) or 'nothing wrong'}", flush=True)

    for number in range(kills):
        kill = plan_kill(seed, number, names)
        if number in done:
            if (done[number].command, done[number].fraction) != (kill.command, kill.fraction):
                raise SystemExit(f"{path}: found kills of another --seed or --only, expected another --work")
            continue
        harness.kill(kill)
        where = f"{kill.moment} {kill.fraction:.2f}{' over an earlier run' * kill.over_earlier}"
        log(kill, f"{kill.kind} {where}, status {kill.status}")
    if harness.training_kills:
        kill = harness.training_kills[-1]
        harness.repeat(kill, Ended())
        log(kill, "completed")
    return [done[number] for number in range(kills)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the kills and print the table; return 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="number of kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of commands and moments (default: %(default)s)")
    parser.add_argument("--work", type=Path, required=True, help="folder of inputs, runs and kills.jsonl")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(COMMANDS), help="only these commands")
    options = parser.parse_args(argv)
    kills = run_kills(options.kills, options.seed, options.work.resolve(), options.only)
    print(format_table(kills))
    return int(any(kill.problems for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
