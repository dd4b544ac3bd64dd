"""One network trained by several processes that share each batch: nnU-Net's own way (DDP), on cards or on the CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from baseline.interruption import end_by_sigterm
from baseline.network.nnunet import Folders, Machine, train_network
from baseline.network.plans import Plan
from contract.errors import HecktorError

# Waiting without an end would miss a signal that comes just before it begins.
_LOOK_S: Final = 1.0
# To end before it is killed.
_GRACE_S: Final = 10


def train_together(folders: Folders, plan: Plan, fold: int, backbone: str, machine: Machine, seed: int) -> Path:
    """Train one network on `machine.gpus` cards or, on a CPU, in as many processes; returns the final checkpoint.

    Raises:
        HecktorError: a process was killed.
    """
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    with tempfile.TemporaryDirectory(prefix="hecktor-") as meeting:
        arguments = (f"{meeting}/group", folders, plan, fold, backbone, machine, seed)
        group = spawn(_member, args=arguments, nprocs=machine.gpus, join=False)
        try:
            while not group.join(timeout=_LOOK_S):
                pass
        except ProcessExitedException as problem:
            raise HecktorError(f"training of fold {fold} ({backbone})", f"{problem}", "all to end well") from None
        finally:
            for process in group.processes:
                process.terminate()  # nothing to one that has ended
            for process in group.processes:
                process.join(_GRACE_S)
                process.kill()
    return folders.final(fold, backbone)


def _member(
    rank: int, meeting: str, folders: Folders, plan: Plan, fold: int, backbone: str, machine: Machine, seed: int
) -> None:
    from torch import cuda, distributed

    if machine.device == "cpu":
        _allow_cpu(folders)
    else:
        cuda.set_device(rank)
    backend = "gloo" if machine.device == "cpu" else "nccl"
    end_by_sigterm()
    distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=machine.gpus)
    train_network(folders, plan, fold, backbone, machine, seed, rank)
    distributed.destroy_process_group()


def _allow_cpu(folders: Folders) -> None:
    """nnU-Net names a card to each process's DDP, which DDP refuses on a CPU; this process is all nnU-Net's."""
    folders.announce(augmentation_workers=0)
    from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module
    from torch.nn.parallel import DistributedDataParallel

    def without_card(network: Any, device_ids: Any) -> Any:  # noqa: ARG001
        return DistributedDataParallel(network)

    module.DDP = without_card
