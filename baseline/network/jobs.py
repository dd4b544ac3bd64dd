"""Trainings as jobs: each network of each fold by itself, all that remain side by side or one after the other."""

from __future__ import annotations

import fcntl
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from baseline.network.ddp import train_together
from baseline.network.nnunet import Machine, train_network
from baseline.network.plans import CONFIGURATION
from baseline.release.splits import as_nnunet_splits
from baseline.work import Work
from contract.errors import HecktorError

LOGGER = logging.getLogger("hecktor")
# Waiting without an end would miss a signal that comes just before it begins: Python would only see it afterwards.
_LOOK_S: Final = 0.2


@dataclass(frozen=True)
class Job:
    """One network to train: a fold, numbered as in `Splits.held_out`, and a backbone."""

    fold: int
    backbone: str

    def __str__(self) -> str:
        return f"fold {self.fold} ({self.backbone})"


def shipped_jobs(work: Work) -> list[Job]:
    """The networks that make the package: those of the balanced folds, backbone by backbone."""
    return [Job(fold, backbone) for backbone in work.plan().backbones for fold in range(len(work.splits().folds))]


def chosen_jobs(work: Work, fold: int | None, backbone: str | None) -> list[Job]:
    """The shipped jobs, or those of one fold (a centre left out, too) or of one backbone.

    Raises:
        HecktorError: no such fold, or a backbone that is not in the plan.
    """
    splits, plan = work.splits(), work.plan()
    if fold is not None and not 0 <= fold < len(splits.held_out):
        raise HecktorError("--fold", f"found {fold}", f"0 to {len(splits.held_out) - 1} ({', '.join(splits.names)})")
    if backbone is not None and backbone not in plan.backbones:
        raise HecktorError("--backbone", f"found {backbone}", f"one of the plan's: {', '.join(plan.backbones)}")
    jobs = shipped_jobs(work) if fold is None else [Job(fold, name) for name in plan.backbones]
    return [job for job in jobs if backbone in (None, job.backbone)]


def remaining(work: Work, jobs: Sequence[Job]) -> list[Job]:
    """Those that have no final checkpoint."""
    return [job for job in jobs if not work.folders.final(job.fold, job.backbone).is_file()]


def train_job(work: Work, job: Job, machine: Machine) -> Path:
    """Train one network to its end, or take up where it stopped; returns its final checkpoint.

    Raises:
        HecktorError: there is nobody to train on or to validate on, the machine is not as said, or another process is
            at it.
    """
    splits, plan = work.splits(), work.plan()
    with_mask = [case.patient_id for case in work.cases() if case.mask is not None]
    if not all(as_nnunet_splits(splits, with_mask)[job.fold].values()):
        raise HecktorError(f"{splits.names[job.fold]}", "all reference masks are on one side", "some on both")
    check_device(machine)
    batch = work.plans()["configurations"][CONFIGURATION]["batch_size"]
    if not 1 <= machine.gpus <= batch:
        raise HecktorError("--gpus", f"found {machine.gpus}", f"1 to {batch}, the planned batch to be shared")
    train = train_network if machine.gpus == 1 else train_together
    with _alone(job, work.folders.fold(job.fold, job.backbone)):
        return train(work.folders, plan, job.fold, job.backbone, machine, splits.seed)


@contextmanager
def _alone(job: Job, folder: Path) -> Iterator[None]:
    """Nobody else trains the job: a process that outlived its parent, or a cluster's second task.

    Raises:
        HecktorError: somebody does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            # Held by this process alone, not by those it forks, and gone with it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise HecktorError(f"{job}", "another process is training it", "one at a time") from None
        except OSError:  # a file system without locks
            LOGGER.warning("*** WARNING *** %s: the file system cannot lock; train it only once at a time", job)
        yield


def train_apart(work: Work, jobs: Sequence[Job], machine: Machine) -> None:
    """Train those that remain, each in processes of its own: side by side on a CPU, one after the other on cards.

    Raises:
        HecktorError: one of them failed, which it has told itself.
    """
    waiting = remaining(work, jobs)
    at_once = max(1, min(len(waiting), machine.threads // machine.gpus)) if machine.device == "cpu" else 1
    for first in range(0, len(waiting), at_once):
        begun = waiting[first : first + at_once]
        threads = max(1, machine.threads // len(begun))
        running = [subprocess.Popen(_command(work, job, machine, threads)) for job in begun]
        try:
            for job, process in zip(begun, running, strict=True):
                while process.poll() is None:
                    time.sleep(_LOOK_S)
                if process.returncode != 0:
                    raise HecktorError(f"training of {job} ended with status {process.returncode}, expected 0")
        finally:
            for process in running:
                if process.poll() is None:  # another one failed, or the user gave up
                    process.terminate()
                    process.wait()


def _command(work: Work, job: Job, machine: Machine, threads: int) -> list[str]:
    command = [sys.executable, "-m", "baseline", "fold", "--work", str(work.root), "--device", machine.device]
    command += ["--gpus", str(machine.gpus), "--jobs", str(threads)]
    return [*command, "--fold", str(job.fold), "--backbone", job.backbone]


def check_device(machine: Machine) -> None:
    """Whether the cards are there.

    Raises:
        HecktorError: there are none, or fewer than asked for.
    """
    from torch import cuda

    if machine.device == "cuda" and not cuda.is_available():
        raise HecktorError(
            "--device", "found cuda and no card that PyTorch can use", "cpu, or a .venv of `scripts/setup --cuda`"
        )
    if machine.device == "cuda" and machine.gpus > cuda.device_count():
        raise HecktorError("--gpus", f"found {machine.gpus}", f"at most {cuda.device_count()}, as many as there are")
