"""Train one network with nnU-Net in this process, or with DDP in several processes that share each batch.

nnU-Net reads its folders from the environment at import, so `set_environment` comes before each import of nnU-Net.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.network.interruption import end_by_sigterm
from baseline.network.plans import NetworkPlan
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.errors import HecktorError
from contract.files import read_json

# Maximum number of augmentation processes for a GPU; more only take memory.
MOST_AUGMENTING = 16
# Seed offset between processes, far above any number of folds.
_BETWEEN_RANKS = 10_000
# Python handles signals between waits; an endless wait could miss one.
_POLL_S: Final = 1.0
# Time to end before a process is killed.
_GRACE_S: Final = 10


def set_environment(work: WorkFolders, augmentation_workers: int) -> None:
    """Set nnU-Net's environment variables; call it before the first import of nnU-Net."""
    for name, data_set in (("raw", work.raw), ("preprocessed", work.preprocessed), ("results", work.results)):
        folder = data_set.parent
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[f"nnUNet_{name}"] = str(folder)
    os.environ["nnUNet_n_proc_DA"] = str(augmentation_workers)  # noqa: SIM112 - nnU-Net's own spelling
    os.environ["nnUNet_compile"] = "f"  # noqa: SIM112


@dataclass(frozen=True)
class Machine:
    """Hardware for a training.

    Attributes:
        device: `cpu` or `cuda`.
        gpus: GPUs, or processes on a CPU, that share each batch (DDP).
        threads: processor cores in total.
    """

    device: str = "cpu"
    gpus: int = 1
    threads: int = 1


def train_network(
    work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int, rank: int = 0
) -> Path:
    """Train one network, resuming from its last checkpoint if there is one; returns the final checkpoint.

    With DDP each process passes its `rank` and has joined the process group before.

    Raises:
        HecktorError: the GPU is out of memory.
    """
    final = work.final(fold, backbone)
    if final.is_file():
        return final
    threads = max(1, machine.threads // machine.gpus)
    # On a CPU the network needs the cores; a GPU waits for augmentation.
    set_environment(work, augmentation_workers=0 if machine.device == "cpu" else min(threads, MOST_AUGMENTING))
    import torch

    from baseline.network.trainer import ShortTrainer

    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    # DDP processes draw different patches; their weights are broadcast from the first.
    torch.manual_seed(seed + fold + _BETWEEN_RANKS * rank)
    np.random.seed(seed + fold + _BETWEEN_RANKS * rank)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    if rank == 0:
        for partial in work.fold(fold, backbone).glob(".partial-*"):  # of a process that was killed while writing
            partial.unlink()
    latest = work.fold(fold, backbone) / "checkpoint_latest.pth"
    plans = read_json(work.plans) | {"continue_training": latest.is_file()}
    dataset = read_json(work.preprocessed / "dataset.json")
    device = torch.device(machine.device)
    trainer = ShortTrainer(plans, CONFIGURATIONS[backbone], fold, dataset, device)
    trainer.use_plan(plan, device)
    if latest.is_file():
        trainer.load_checkpoint(str(latest))
    try:
        trainer.run_training()
    except torch.OutOfMemoryError as problem:
        raise HecktorError(
            f"fold {fold} ({backbone})",
            str(problem).partition(". ")[0],
            "a free GPU, or a `plan` with a smaller --memory-gb or --batch-size",
        ) from None
    return final


def train_with_ddp(work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int) -> Path:
    """Train one network on `machine.gpus` GPUs, or in as many processes on a CPU; returns the final checkpoint.

    Raises:
        HecktorError: a process was killed.
    """
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    with tempfile.TemporaryDirectory(prefix="hecktor-") as folder:
        arguments = (f"{folder}/group", work, plan, fold, backbone, machine, seed)
        group = spawn(_member, args=arguments, nprocs=machine.gpus, join=False)
        try:
            while not group.join(timeout=_POLL_S):
                pass
        except ProcessExitedException as problem:
            raise HecktorError(f"training of fold {fold} ({backbone})", f"{problem}", "exit status 0") from None
        finally:
            for process in group.processes:
                process.terminate()  # no effect on one that has ended
            for process in group.processes:
                process.join(_GRACE_S)
                process.kill()
    return work.final(fold, backbone)


def _member(
    rank: int, group: str, work: WorkFolders, plan: NetworkPlan, fold: int, backbone: str, machine: Machine, seed: int
) -> None:
    from torch import cuda, distributed

    if machine.device == "cpu":
        _allow_cpu(work)
    else:
        cuda.set_device(rank)
    backend = "gloo" if machine.device == "cpu" else "nccl"
    end_by_sigterm()
    distributed.init_process_group(backend, init_method=f"file://{group}", rank=rank, world_size=machine.gpus)
    train_network(work, plan, fold, backbone, machine, seed, rank)
    distributed.destroy_process_group()


def _allow_cpu(work: WorkFolders) -> None:
    """Drop the GPU that nnU-Net passes to DDP: DDP refuses it on a CPU. This process runs nothing else."""
    set_environment(work, augmentation_workers=0)
    from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module
    from torch.nn.parallel import DistributedDataParallel

    def without_gpu(network: Any, device_ids: Any) -> Any:  # noqa: ARG001
        return DistributedDataParallel(network)

    module.DDP = without_gpu
