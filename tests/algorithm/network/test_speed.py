"""Weights in RAM, and the optional ways to run a network faster."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from algorithm.deadline import Deadline
from algorithm.network import devices, networks, windows
from algorithm.network.devices import GIB, prepared_device
from algorithm.network.images import MemberImage
from algorithm.network.networks import Networks, own_tensors
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes, paired_mirrors, plan_passes
from algorithm.network.speed import SPEED_UPS, Speed
from algorithm.network.windows import Pass
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
    return Passes(MemberImage.of(data), plan_passes(FOLDS, axes), ready, Deadline(600), CPU)


def test_each_file_is_read_once(package: ModelPackage, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight mirrors of two folds exchange the weights sixteen times; without room they are read sixteen times, with
    the same bytes as result.
    """
    kept = passes(Networks(package)).run()
    assert reads == ["fold_0.safetensors", "fold_1.safetensors"]
    reads.clear()
    monkeypatch.setattr(networks, "LARGEST_KEPT_BYTES", 0)
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
    assert exact.kept_bytes == FOLDS * 2 * parameters(half_package)
    whole = Networks(package)
    passes(whole, axes=()).run()
    assert FOLDS * 3 * parameters(package) < whole.kept_bytes <= FOLDS * BYTES_OF_FLOAT * parameters(package)
    reads.clear()
    monkeypatch.setattr(networks, "LARGEST_KEPT_BYTES", exact.kept_bytes // FOLDS)
    one = Networks(half_package)
    passes(one, axes=(2,)).run()
    assert reads == ["fold_0.safetensors", "fold_1.safetensors", "fold_1.safetensors"]
    assert one.kept_bytes == 2 * parameters(half_package)


def test_kept_weights_outlive_their_file(half_package: ModelPackage) -> None:
    """A package unpacked to a temporary folder, which something empties: the second exchange needs no file."""
    ready = Networks(half_package)
    before = [tensor.clone() for _, tensor in own_tensors(ready.of(0, CPU))]
    ready.of(1, CPU)
    half_package.fold_files[0].write_bytes(b"")
    ready.forget()
    after = [tensor for _, tensor in own_tensors(ready.of(0, CPU))]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_mirrored_passes_are_paired_by_fold() -> None:
    """Three mirrored passes of two folds: the first two of each fold share a batch, the third stays alone."""
    plain = [Pass(0), Pass(1)]
    mirrored = [Pass(fold, axes) for axes in ((0,), (1,), (0, 1)) for fold in (0, 1)]
    assert paired_mirrors([*plain, *mirrored]) == [
        (Pass(0),),
        (Pass(1),),
        (Pass(0, (0,)), Pass(0, (1,))),
        (Pass(1, (0,)), Pass(1, (1,))),
        (Pass(0, (0, 1)),),
        (Pass(1, (0, 1)),),
    ]


@pytest.mark.parametrize("speed", [Speed(two_mirrors=True), Speed(channels_last=True), Speed.named(SPEED_UPS)], ids=str)
def test_faster_ways_give_the_same_passes_but_for_rounding(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch, speed: Speed
) -> None:
    """Each single pass, so that no mirror is taken for another; in float32, where rounding is small."""
    monkeypatch.setattr(windows, "cpu_has_bfloat16", lambda: False)
    logits: list[dict[Pass, np.ndarray]] = []
    for ready in (Networks(package), Networks(package, speed)):
        run = passes(ready)
        logits.append({})
        run.on_pass = logits[-1].__setitem__
        assert run.run().done == 16
    default, faster = logits
    assert default.keys() == faster.keys()
    for step, one in default.items():
        np.testing.assert_allclose(faster[step], one, atol=1e-4, rtol=1e-4)


def test_two_mirrors_take_half_the_calls(package: ModelPackage) -> None:
    """Per fold one pass alone, seven mirrored ones in three pairs and one alone: five calls on the only tile."""
    batches: list[int] = []
    ready = Networks(package, Speed(two_mirrors=True))
    ready.of(0, CPU).register_forward_hook(lambda _, inputs, __: batches.append(len(inputs[0])))
    passes(ready).run()
    assert sorted(batches) == [1] * 4 + [2] * 6


def test_a_pair_that_overflows_is_computed_again_one_by_one(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half precision answers infinity; in full precision all voxels hold 2."""
    monkeypatch.setattr(
        windows,
        "_forward",
        lambda _n, part, half: torch.full((len(part), 3, *part.shape[2:]), float("inf") if half else 2.0),
    )
    run = passes(Networks(package, Speed(two_mirrors=True)), axes=(1, 2)).run()
    assert run.done == 8
    assert np.unique(run.logits).tolist() == [2.0]


@pytest.mark.parametrize("benchmark", [False, True])
def test_the_card_is_reproducible_unless_cudnn_may_choose(monkeypatch: pytest.MonkeyPatch, benchmark: bool) -> None:
    """A card of 28 GiB, of which this process takes at most the half, 14 GiB."""
    shares: list[float] = []
    card = SimpleNamespace(total_memory=28 * GIB)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, _: shares.append(share))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not benchmark)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", benchmark)
    assert prepared_device("auto", benchmark=benchmark) == torch.device("cuda", 0)
    assert shares == [0.5]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (benchmark, not benchmark)
    assert devices.device_named("cpu") == CPU
