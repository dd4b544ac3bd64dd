"""Training jobs: each job trains one network of one fold; unfinished jobs run in parallel or one after the other."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final, TextIO

from baseline.network.nnunet import Machine, train_network, train_with_ddp
from baseline.network.plans import read_plan
from baseline.network.progress import explain_interruption
from baseline.release.cases import read_cases
from baseline.release.splits import make_nnunet_splits, read_splits
from baseline.work import CONFIGURATION, CONFIGURATIONS, WorkFolders
from contract.errors import HecktorError

LOGGER = logging.getLogger("hecktor")
# Python handles signals between waits; an endless wait could miss one.
_POLL_S: Final = 0.2
# Time for the last lines of a process that has ended.
_LAST_LINES_S: Final = 2.0


@dataclass(frozen=True)
class TrainingJob:
    """One network to train: a fold, numbered as in `Splits.held_out`, and a backbone."""

    fold: int
    backbone: str

    def __str__(self) -> str:
        return f"fold {self.fold} ({self.backbone})"


def list_package_jobs(work: WorkFolders) -> list[TrainingJob]:
    """List the networks of the model package: one for each balanced fold, backbone by backbone."""
    folds = range(len(read_splits(work).folds))
    return [TrainingJob(fold, backbone) for backbone in read_plan(work).backbones for fold in folds]


def select_jobs(work: WorkFolders, fold: int | None, backbone: str | None) -> list[TrainingJob]:
    """Select the package's jobs, or the jobs of one fold (possibly a left-out centre) or of one backbone.

    Raises:
        HecktorError: The fold does not exist, or the backbone is not in the plan.
    """
    splits, plan = read_splits(work), read_plan(work)
    if fold is not None and not 0 <= fold < len(splits.held_out):
        raise HecktorError("--fold", f"found {fold}", f"0 to {len(splits.held_out) - 1} ({', '.join(splits.names)})")
    if backbone is not None and backbone not in plan.backbones:
        raise HecktorError("--backbone", f"found {backbone}", f"one of the plan's: {', '.join(plan.backbones)}")
    jobs = list_package_jobs(work) if fold is None else [TrainingJob(fold, name) for name in plan.backbones]
    return [job for job in jobs if backbone in (None, job.backbone)]


def select_unfinished_jobs(work: WorkFolders, jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """Select the jobs without a final checkpoint."""
    return [job for job in jobs if not work.final(job.fold, job.backbone).is_file()]


def list_final_checkpoints(work: WorkFolders) -> dict[str, list[Path]]:
    """List the final checkpoints of the package by configuration, fold 0 first.

    Raises:
        HecktorError: A network is not trained; the message has the command that trains it.
    """
    jobs = list_package_jobs(work)
    missing = select_unfinished_jobs(work, jobs)
    if missing:
        command = f"hecktor train fold --fold {missing[0].fold} --backbone {missing[0].backbone}"
        raise HecktorError(f"{missing[0]} has no final checkpoint; run `{command}` first")
    finals: dict[str, list[Path]] = {}
    for job in jobs:
        finals.setdefault(CONFIGURATIONS[job.backbone], []).append(work.final(job.fold, job.backbone))
    return finals


def train_jobs(work: WorkFolders, jobs: Sequence[TrainingJob], machine: Machine) -> list[Path]:
    """Train the jobs; return their final checkpoints.

    A single job is trained in this process, and so are several jobs in turn on one core. Otherwise each job has its
    own process. Finished jobs are skipped.

    Raises:
        HecktorError: A training failed, or was interrupted.
    """
    with explain_interruption():
        if len(jobs) == 1 or (machine.threads == 1 and resolve_device(machine.device) == "cpu"):
            for job in jobs if len(jobs) == 1 else select_unfinished_jobs(work, jobs):
                train_job(work, job, machine)
        else:
            train_in_processes(work, jobs, machine)
    return [work.final(job.fold, job.backbone) for job in jobs]


def train_job(work: WorkFolders, job: TrainingJob, machine: Machine) -> Path:
    """Train or resume one network; return its final checkpoint.

    Raises:
        HecktorError: There are no training or validation patients, the hardware is unsuitable, or another process
            trains the job.
    """
    splits = read_splits(work)
    with_mask = [case.patient_id for case in read_cases(work) if case.mask is not None]
    if not all(make_nnunet_splits(splits, with_mask)[job.fold].values()):
        raise HecktorError(splits.names[job.fold], "all reference masks are on one side", "some on both")
    machine = resolve_machine(machine)
    if not 1 <= machine.gpus <= (batch := _read_batch_size(work)):
        raise HecktorError("--gpus", f"found {machine.gpus}", f"1 to {batch}, the planned batch size")
    train = train_network if machine.gpus == 1 else train_with_ddp
    with _lock_job(job, work.fold(job.fold, job.backbone)):
        return train(work, read_plan(work), job.fold, job.backbone, machine, splits.seed)


@contextmanager
def _lock_job(job: TrainingJob, folder: Path) -> Iterator[None]:
    """Refuse to train a job twice at the same time, for example after a parent died or by two tasks of a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            # The lock belongs only to this process, not to its forks, and the system releases it when the process ends.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise HecktorError(str(job), "another process is training it", "one at a time") from None
        except OSError:  # a file system without locks
            LOGGER.warning("%s: the file system has no locks; do not train it twice at the same time", job)
        yield


def train_in_processes(work: WorkFolders, jobs: Sequence[TrainingJob], machine: Machine) -> None:
    """Train unfinished jobs in parallel, each in its own process.

    Each job has one GPU. If fewer jobs wait than GPUs are free, a job has several GPUs (DDP), at most as many as a
    batch has patches. On a CPU the jobs share the cores. A waiting job begins as soon as another job ends. The first
    failure ends all jobs.

    Raises:
        HecktorError: A process failed; the process has printed the reason.
    """
    waiting, machine = select_unfinished_jobs(work, jobs), resolve_machine(machine)
    free = _list_slots(machine, len(waiting))
    max_slots = 1 if machine.device == "cpu" else _read_batch_size(work)
    threads = max(1, machine.threads // len(free))
    running: list[_RunningJob] = []
    try:  # an interruption while the processes start ends the processes that have started
        while waiting or running:
            while waiting and free:
                count = min(max(1, len(free) // len(waiting)), max_slots)
                running.append(_start_job(work, waiting.pop(0), machine, free[:count], threads * count))
                running[-1].console.extend(_forward_output(running[-1].job, running[-1].process))
                free = free[count:]
            for ended in [job for job in running if job.process.poll() is not None]:
                for thread in ended.console:
                    thread.join(timeout=_LAST_LINES_S)  # a child of the process may keep the pipe
                status = ended.process.returncode
                if status != 0:
                    raise HecktorError(f"training of {ended.job} ended with status {status}, expected 0")
                running.remove(ended)
                free = [*free, *ended.slots]
            time.sleep(_POLL_S if running else 0)
    finally:
        for job in running:
            if job.process.poll() is None:  # another job failed, or the user interrupted
                job.process.terminate()
                job.process.wait()


@dataclass(frozen=True)
class _RunningJob:
    """A training in its own process, with its GPUs and the threads that forward its output."""

    job: TrainingJob
    process: subprocess.Popen[bytes]
    slots: Sequence[str]
    console: list[threading.Thread] = field(default_factory=list)


def _list_slots(machine: Machine, jobs: int) -> list[str]:
    """List the slots for parallel jobs: the names of GPUs as in CUDA_VISIBLE_DEVICES, or on a CPU empty names."""
    if machine.device == "cpu":
        return [""] * max(1, min(jobs, machine.threads // machine.gpus))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.replace(" ", "").split(",") if visible else [str(number) for number in range(machine.gpus)]
    return names[: machine.gpus]


def _read_batch_size(work: WorkFolders) -> int:
    return int(work.read(work.plans)["configurations"][CONFIGURATION]["batch_size"])


def _start_job(
    work: WorkFolders, job: TrainingJob, machine: Machine, slots: Sequence[str], threads: int
) -> _RunningJob:
    environment = None
    if machine.device != "cpu":
        machine = replace(machine, gpus=len(slots))
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(slots)}
    command = _make_command(work, job, machine, threads)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    return _RunningJob(job, process, slots)


def _forward_output(job: TrainingJob, process: subprocess.Popen[bytes]) -> list[threading.Thread]:
    """Copy the output of a training to the console, each line with the job's name."""
    pairs = ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    threads = [threading.Thread(target=_copy_lines, args=(job, *pair), daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


def _copy_lines(job: TrainingJob, source: IO[bytes], console: TextIO) -> None:
    with io.TextIOWrapper(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:  # a step of a progress bar, which ends with \r, is a line, too
            if text := line.rstrip():
                console.write(f"{text}\n" if text.startswith(str(job)) else f"{job}: {text}\n")
                console.flush()


def _make_command(work: WorkFolders, job: TrainingJob, machine: Machine, threads: int) -> list[str]:
    command = [sys.executable, "-m", "baseline", "fold", "--work", str(work.root)]
    command += ["--device", machine.device, "--gpus", str(machine.gpus), "--jobs", str(threads)]
    command += [f"--{name}" for name in ("compile", "deterministic") if getattr(machine, name)]
    return [*command, "--fold", str(job.fold), "--backbone", job.backbone]


def resolve_machine(machine: Machine) -> Machine:
    """Choose the machine's device, and check that the GPUs exist and that the options agree.

    Raises:
        HecktorError: There is no GPU or there are too few, or `--compile` is used without a GPU or with
            `--deterministic`.
    """
    from torch import cuda

    machine = replace(machine, device=resolve_device(machine.device))
    if machine.compile and machine.device == "cpu":
        raise HecktorError("--compile", "found on the CPU", "a GPU and --device cuda")
    if machine.compile and machine.deterministic:
        raise HecktorError("--compile", "found with --deterministic", "one of them")
    if machine.device == "cuda" and not cuda.is_available():
        raise HecktorError(
            "--device", "found cuda and no GPU that PyTorch can use", "cpu, or a .venv of `scripts/setup --cuda`"
        )
    if machine.device == "cuda" and machine.gpus > cuda.device_count():
        raise HecktorError("--gpus", f"found {machine.gpus}", f"at most {cuda.device_count()}")
    return machine


def resolve_device(name: str) -> str:
    """Resolve `auto` to `cuda` if there is a usable GPU, otherwise to `cpu`; return other names unchanged."""
    from torch import cuda

    return name if name != "auto" else "cuda" if cuda.is_available() else "cpu"
