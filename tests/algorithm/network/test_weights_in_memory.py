"""Weights in RAM, and the settings of a card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from algorithm.deadline import Deadline
from algorithm.network import networks
from algorithm.network.networks import Networks, own_tensors
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, list_mirrored_passes
from tests.conftest import write_manifest

CPU = torch.device("cpu")
FOLDS = 2
BYTES_OF_FLOAT = 4


@pytest.fixture
def package(tiny_package: Path) -> ModelPackage:
    return load_package(tiny_package)


@pytest.fixture
def half_package(tiny_package: Path, tmp_path: Path) -> ModelPackage:
    """The tiny package with weights in float16, as `hecktor train` and `hecktor package` write them."""
    root = Path(shutil.copytree(tiny_package, tmp_path / "half"))
    for path in root.glob("*.safetensors"):
        weights = {name: tensor.half() for name, tensor in load_file(str(path)).items()}
        path.unlink()
        save_file(weights, str(path))
    write_manifest(root, configuration="3d_fullres")
    return load_package(root)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the weights files in the order in which they are read."""
    names: list[str] = []
    real = networks.load_weights

    def counted(network: Any, path: Path) -> dict[str, torch.Tensor]:
        names.append(path.name)
        return real(network, path)

    monkeypatch.setattr(networks, "load_weights", counted)
    return names


def passes(ready: Networks, axes: tuple[int, ...] = (0, 1, 2)) -> Passes:
    data = np.random.default_rng(0).normal(0, 1, (2, 16, 16, 16)).astype(np.float32)
    return Passes(NetworkImage.of(data), list_mirrored_passes(FOLDS, axes), ready, Deadline(600), CPU)


def test_each_file_is_read_once(package: ModelPackage, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight mirrors of two folds exchange the weights sixteen times; without room they are read sixteen times, with
    the same bytes as result.
    """
    kept = passes(Networks(package)).run()
    assert reads == ["fold_0.safetensors", "fold_1.safetensors"]
    reads.clear()
    monkeypatch.setattr(networks, "LARGEST_CACHE_BYTES", 0)
    read = passes(Networks(package)).run()
    assert len(reads) == kept.done == read.done == 16
    np.testing.assert_array_equal(kept.total, read.total)


def parameters(package: ModelPackage) -> int:
    return sum(tensor.numel() for _, tensor in own_tensors(networks.build_network(package)))


def test_memory_is_counted_and_bounded(
    package: ModelPackage, half_package: ModelPackage, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights in float32 are not exact in float16 and keep 4 bytes each (but for those that are exact, such as
    zeros of a bias); weights in float16 keep 2. With room for one fold the other one is read for each of its passes.
    """
    exact = Networks(half_package)
    passes(exact, axes=()).run()
    assert exact.cached_bytes == FOLDS * 2 * parameters(half_package)
    whole = Networks(package)
    passes(whole, axes=()).run()
    assert FOLDS * 3 * parameters(package) < whole.cached_bytes <= FOLDS * BYTES_OF_FLOAT * parameters(package)
    reads.clear()
    monkeypatch.setattr(networks, "LARGEST_CACHE_BYTES", exact.cached_bytes // FOLDS)
    one = Networks(half_package)
    passes(one, axes=(2,)).run()
    assert reads == ["fold_0.safetensors", "fold_1.safetensors", "fold_1.safetensors"]
    assert one.cached_bytes == 2 * parameters(half_package)


def test_kept_weights_outlive_their_file(half_package: ModelPackage) -> None:
    """A package unpacked to a temporary folder, which something empties: the second exchange needs no file."""
    ready = Networks(half_package)
    before = [tensor.clone() for _, tensor in own_tensors(ready.of(0, CPU))]
    ready.of(1, CPU)
    half_package.fold_files[0].write_bytes(b"")
    ready.forget(CPU)
    after = [tensor for _, tensor in own_tensors(ready.of(0, CPU))]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
