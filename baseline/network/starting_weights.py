"""Weights of another training, from which a training starts; read as data, without running code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DistributedDataParallel

from algorithm.network.networks import own_tensors
from algorithm.network.package import load_package
from baseline.network.checkpoint import read_checkpoint
from contract.archives import SUFFIX, unpack
from contract.errors import HecktorError, InputError

Weights = Mapping[str, torch.Tensor]


def load_starting_weights(network: nn.Module, path: Path, fold: int, output_layers: str) -> None:
    """Copy all weights but those of the output layers, as nnU-Net's `load_pretrained_weights` does.

    nnU-Net's own function would run code from the file. Networks of a package that fit are taken in turn, fold by fold.

    Args:
        network: of the training, perhaps compiled or shared by several processes.
        path: a checkpoint of nnU-Net or a model package.
        fold: number of the fold.
        output_layers: part of the names of output layers, which start at random.

    Raises:
        HecktorError: the file cannot be read as data, or a layer is missing or of another shape.
    """
    bare = network.module if isinstance(network, DistributedDataParallel) else network
    bare = bare._orig_mod if isinstance(bare, OptimizedModule) else bare
    own = {name: tensor for name, tensor in own_tensors(bare) if output_layers not in name}
    with _candidates(path) as candidates:
        faults = [_fault(own, weights) for weights in candidates]
        fitting = [weights for weights, fault in zip(candidates, faults, strict=True) if fault is None]
        if not fitting:
            raise HecktorError("--starting-weights", f"{path.name}: {faults[0]}", "weights of the same network")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(fitting[fold % len(fitting)][name])


@contextmanager
def _candidates(path: Path) -> Iterator[list[Weights]]:
    """The weights of a checkpoint, or of each network of a package."""
    if path.is_file() and not path.name.endswith(SUFFIX):
        yield [read_checkpoint(path).weights]
        return
    if not path.exists():
        raise InputError(str(path), "not found", "a checkpoint of nnU-Net (.pth) or a model package")
    with tempfile.TemporaryDirectory(prefix="hecktor-") as scratch:
        root = path
        if path.is_file():
            root = Path(scratch) / "package"
            unpack(path, root)
        yield [load_file(str(file)) for file in load_package(root).fold_files]


def _fault(own: Weights, weights: Weights) -> str | None:
    """The first layer that is missing or of another shape; None if all fit."""
    for name, tensor in own.items():
        if name not in weights:
            return f"no {name}"
        if weights[name].shape != tensor.shape:
            return f"{name} of shape {tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
    return None
