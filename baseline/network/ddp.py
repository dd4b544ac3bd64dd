"""Train one network in several processes that share each batch: nnU-Net's DDP, on GPUs or on the CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from baseline.network.interruption import end_by_sigterm
from baseline.network.nnunet import Machine, set_environment, train_network
from baseline.network.plans import NetworkPlan
from baseline.work import WorkFolders
from contract.errors import HecktorError

# Python handles signals between waits; an endless wait could miss one.
_POLL_S: Final = 1.0
# Time to end before a process is killed.
_GRACE_S: Final = 10


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
