"""Training of one network with nnU-Net in this process, or with DDP in several processes that share each batch.

nnU-Net is imported inside functions, because the import takes seconds.
"""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from baseline.network.patches import allow_ddp_on_cpu, set_environment
from baseline.network.plans import NetworkPlan
from baseline.network.progress import raise_at_sigterm
from baseline.release.splits import derive_seed
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.errors import HecktorError
from contract.io.files import read_json, write_json

# Maximum number of augmentation processes for a GPU; more processes only take memory.
MAX_AUGMENTATION_WORKERS = 16
# Python handles signals between waits; an endless wait could miss one.
_POLL_S: Final = 1.0
# Time that a terminated process has to end before it is killed.
_GRACE_S: Final = 10
_CPU_ALLOCATOR: Final = "DefaultCPUAllocator"
_SMALLER_PLAN: Final = "or a `plan` with a smaller --memory-gb or --batch-size"
_EXPECTED_GPU_MEMORY: Final = f"a free GPU, {_SMALLER_PLAN}"
_EXPECTED_RAM: Final = f"more free RAM, fewer --jobs, {_SMALLER_PLAN}"
_COMPILER: Final = ("torch._dynamo.exc", "torch._inductor", "triton")
_EXPECTED_COMPILER: Final = "Triton and a C compiler that work together, or the same command without --compile"
_EXPECTED_DEVICE: Final = "a working device; the same command continues from the last checkpoint"


@dataclass(frozen=True)
class Machine:
    """Hardware for a training.

    Attributes:
        device: `cpu`, `cuda`, or `auto`: CUDA if there is a usable GPU.
        gpus: Number of GPUs. Each network has one GPU, or several GPUs share each batch (DDP) if there are fewer
            networks. On a CPU it is the number of processes that share each batch.
        threads: Number of processor cores in total.
        compile: Whether the network runs through `torch.compile`; only on a GPU.
        deterministic: Whether cuDNN uses reproducible algorithms instead of the fastest ones.
    """

    device: str = "auto"
    gpus: int = 1
    threads: int = 1
    compile: bool = False
    deterministic: bool = False


def train_network(
    work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int, rank: int = 0
) -> Path:
    """Train one network, or resume it from its last checkpoint; return the final checkpoint.

    With DDP each process passes its `rank`, and must have joined the process group.

    Raises:
        HecktorError: The device is out of memory or lost.
    """
    final = work.final(fold, backbone)
    if final.is_file():
        return final
    threads = max(1, machine.threads // machine.gpus)
    # On a CPU the network needs all cores; a GPU would wait for the augmentation without workers.
    workers = 0 if machine.device == "cpu" else min(threads, MAX_AUGMENTATION_WORKERS)
    set_environment(work, workers, compile_network=machine.compile)
    import torch

    from baseline.network.trainer import make_trainer_class

    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = not machine.deterministic
    torch.backends.cudnn.deterministic = machine.deterministic
    # DDP processes draw different patches; their weights are broadcast from the first process.
    own_seed = derive_seed(seed, fold, backbone, rank)
    torch.manual_seed(own_seed)
    np.random.seed(own_seed)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    if rank == 0:
        for partial in work.fold(fold, backbone).glob(".partial-*"):  # left by a process that was killed while writing
            partial.unlink()
    latest = work.fold(fold, backbone) / "checkpoint_latest.pth"
    plans = read_json(work.plans) | {"continue_training": latest.is_file()}
    dataset, device = read_json(work.raw / "dataset.json"), torch.device(machine.device)
    with redirect_stdout(io.StringIO()):  # nnU-Net prints the device
        trainer = make_trainer_class(plan.trainer)(plans, CONFIGURATIONS[backbone], fold, dataset, device)
    trainer.use_plan(plan, backbone, device)
    with explain_failures(f"fold {fold} ({backbone})"):
        if latest.is_file():
            trainer.load_checkpoint(str(latest))
        trainer.run_training()
    return final


def check_trainer(plan: NetworkPlan) -> None:
    """Check that the plan's trainer can be imported and respects the plan's options; a plan may have no trainer.

    Raises:
        HecktorError: The trainer is not found, is not a subclass of nnU-Net's trainer, or is a variant of nnU-Net that
            overrides an option of the plan.
    """
    if plan.trainer is not None:
        from baseline.network.trainer import make_trainer_class

        transforms = make_trainer_class(plan.trainer).get_training_transforms
        if plan.pet_dropout and transforms.__module__.startswith("nnunetv2."):
            problem = f"found with {plan.trainer}, which replaces the augmentation"
            raise HecktorError("--pet-dropout", problem, "one of them")


@contextmanager
def explain_failures(job: str, if_full: str | None = None, if_lost: str = _EXPECTED_DEVICE) -> Iterator[None]:
    """Raise a `HecktorError` if the device is out of memory or lost, or if torch.compile fails; pass other errors on.

    Args:
        job: Name of the job in the error.
        if_full: Expectation in the error about memory; by default more free memory of the kind that was exhausted.
        if_lost: Expectation in the error about a lost device.
    """
    from algorithm.network.devices import count_alloc_retries, first_line, is_device_failure, is_out_of_memory

    earlier_retries = count_alloc_retries()
    try:
        yield
    except HecktorError:
        raise
    except Exception as problem:
        cause = getattr(problem, "inner_exception", problem)  # torch.compile wraps other errors in its own
        reason = first_line(cause).partition(". ")[0]
        if not is_device_failure(cause):
            if not _is_compiler_error(problem):
                raise
            raise HecktorError(job, f"torch.compile failed ({reason})", _EXPECTED_COMPILER) from None
        in_ram = isinstance(cause, MemoryError) or _CPU_ALLOCATOR in str(cause)
        if in_ram or is_out_of_memory(cause, earlier_retries):
            raise HecktorError(job, reason, if_full or (_EXPECTED_RAM if in_ram else _EXPECTED_GPU_MEMORY)) from None
        raise HecktorError(job, reason, if_lost) from None


def _is_compiler_error(problem: Exception) -> bool:
    """Return whether torch.compile, or code that it generated, raised the error."""
    classes = [base.__module__ for base in type(problem).__mro__]
    frames = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(problem.__traceback__)]
    return any(name.startswith(_COMPILER) for name in classes + frames)


def train_with_ddp(work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int) -> Path:
    """Train one network on `machine.gpus` GPUs, or in that many processes on a CPU; return the final checkpoint.

    Raises:
        HecktorError: A process was killed, or its GPU is out of memory or lost.
    """
    from torch.multiprocessing.spawn import ProcessException, ProcessExitedException, spawn

    with tempfile.TemporaryDirectory(prefix="hecktor-") as folder:
        arguments = (f"{folder}/group", work, plan, fold, backbone, machine, seed)
        group = spawn(_run_ddp_process, args=arguments, nprocs=machine.gpus, join=False)
        try:
            while not group.join(timeout=_POLL_S):
                pass
        except ProcessException as problem:
            # Another process may have ended first, because it lost the process that failed.
            if (error_file := _error_path(f"{folder}/group")).is_file():
                raise HecktorError(*read_json(error_file)) from None
            if not isinstance(problem, ProcessExitedException):
                raise
            raise HecktorError(f"training of fold {fold} ({backbone})", f"{problem}", "exit status 0") from None
        finally:
            for process in group.processes:
                process.terminate()  # no effect on a process that has ended
            for process in group.processes:
                process.join(_GRACE_S)
                process.kill()
    return work.final(fold, backbone)


def _run_ddp_process(
    rank: int, group: str, work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int
) -> None:
    from torch import cuda, distributed

    if machine.device == "cpu":
        allow_ddp_on_cpu()
    backend = "gloo" if machine.device == "cpu" else "nccl"
    raise_at_sigterm()
    try:
        with explain_failures(f"fold {fold} ({backbone})"):
            if machine.device != "cpu":
                cuda.set_device(rank)  # fails if another process uses the GPU exclusively
            distributed.init_process_group(backend, init_method=f"file://{group}", rank=rank, world_size=machine.gpus)
            train_network(work, plan, fold, backbone, machine, seed, rank)
    except HecktorError as problem:
        if not _error_path(group).is_file():  # the first failure is the cause of later failures
            write_json(_error_path(group), [problem.what, problem.found, problem.expected])
        sys.exit(1)
    distributed.destroy_process_group()


def _error_path(group: str) -> Path:
    """Return the path of the file with the fields of a process's `HecktorError`."""
    return Path(f"{group}-refusal.json")
