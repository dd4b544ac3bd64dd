"""Weights of another training, from which a training starts; read as data, without running code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import nn

from algorithm.network.networks import own_tensors
from algorithm.network.package import load_package
from baseline.network.checkpoint import read_checkpoint
from contract.archives import SUFFIX, unpack
from contract.errors import HecktorError, InputError

# Prefixes of wrappers: DDP, torch.compile, and a network with channels computed from the CT.
_WRAPPERS: Final = ("module.", "_orig_mod.", "network.")

Weights = Mapping[str, torch.Tensor]


def load_starting_weights(
    network: nn.Module, path: Path, fold: int, show: Callable[[str], object] = lambda _: None
) -> None:
    """Copy all weights of a checkpoint or package that fit into `network`; `show` names each one that does not.

    Of a package the network that fits best is used, for `fold` another one than for the fold before if several fit
    equally.

    Raises:
        HecktorError: the file cannot be read as data, or nothing in it fits.
    """
    own = dict(own_tensors(network))
    with _candidates(path) as candidates:
        counts = [len(_fitting(own, weights)) for weights in candidates]
        equal = [weights for weights, count in zip(candidates, counts, strict=True) if count == max(counts)]
        weights = equal[fold % len(equal)]
        fitting = _fitting(own, weights)
        if not fitting:
            raise HecktorError("--starting-weights", f"no layer of {path.name} fits", "weights of a similar network")
        with torch.no_grad():
            for name, tensor in fitting.items():
                own[name].copy_(tensor)
        show(f"starting weights: {len(fitting)} of {len(own)} tensors from {path.name}")
        for line in _left_out(own, network, weights, fitting):
            show(f"starting weights: {line}")


@contextmanager
def _candidates(path: Path) -> Iterator[list[Weights]]:
    """The weights of a checkpoint, or of each network of a package, named without wrappers."""
    if path.is_file() and not path.name.endswith(SUFFIX):
        yield [_unwrapped(read_checkpoint(path).weights)]
        return
    if not path.exists():
        raise InputError(str(path), "not found", "a checkpoint of nnU-Net (.pth) or a model package")
    with tempfile.TemporaryDirectory(prefix="hecktor-") as scratch:
        root = path
        if path.is_file():
            root = Path(scratch) / "package"
            unpack(path, root)
        yield [_unwrapped(load_file(str(file))) for file in load_package(root).fold_files]


def _unwrapped(weights: Weights) -> Weights:
    return {_bare(name): tensor for name, tensor in weights.items()}


def _bare(name: str) -> str:
    for prefix in _WRAPPERS:
        name = name.removeprefix(prefix)
    return name


def _fitting(own: Weights, weights: Weights) -> dict[str, torch.Tensor]:
    given = ((name, weights.get(_bare(name))) for name in own)
    return {name: tensor for name, tensor in given if tensor is not None and tensor.shape == own[name].shape}


def _left_out(own: Weights, network: nn.Module, weights: Weights, fitting: Weights) -> Iterator[str]:
    for name in own.keys() - fitting.keys():
        found = weights.get(_bare(name))
        shapes = None if found is None else f"shape {tuple(found.shape)}, expected {tuple(own[name].shape)}"
        yield f"{_bare(name)} starts at random: {shapes or 'not in the file'}"
    # nnU-Net's decoder lists the encoder's tensors under a second name.
    known = {_bare(name) for name in network.state_dict()}
    for name in weights.keys() - known:
        yield f"{name} of the file is not in the network"
