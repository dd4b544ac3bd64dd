"""Too little memory: of the process, of the card, and in a training."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.case.inputs import Notices
from algorithm.deadline import Deadline, NoPassFitsError
from algorithm.network import devices, networks
from algorithm.network.networks import Networks, build_network
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes, Progress
from algorithm.network.tiles import NetworkImage, Pass, list_mirrored_passes
from baseline.network import nnunet
from baseline.work import WorkFolders
from contract.errors import HecktorError
from tests.algorithm.edition import COMBINED
from tests.baseline.network.conftest import PLAN
from tests.faults.conftest import (
    GPU,
    TILE,
    CheckFault,
    Fault,
    Predict,
    Run,
    Train,
    check_card,
    ignore_library_warnings,
    make_noise,
    name_of,
)
from tests.faults.fake_card import FULL, NAME, FakeCard, run_process_of_two

CARD: Final = torch.device("cuda", 0)


# The algorithm's process


def limit_memory(run: Run) -> None:
    """Limit the process to 15 of the platform's 16 GB."""
    run.limits["RLIMIT_DATA"] = 15 * 2**30


def fail(name: str, at: str, fallbacks: list[str], problem: str = "no-memory", faults: tuple[str, ...] = ()) -> Fault:
    return Fault(name, COMBINED, [*faults, f"raise {at} {problem}"], fallbacks=fallbacks)


FAULTS: Final = [
    Fault("platform's limit", COMBINED, (), "4 of 4 passes", prepare=limit_memory),
    fail("card out of memory", f"{TILE} 3", [], "out-of-memory", (GPU,)),
    fail("for a moment", "algorithm.network.preprocessing:normalise 1", [], faults=(GPU,)),
    fail("always", "algorithm.network.preprocessing:normalise 0", ["segmentation"], faults=(GPU,)),
    fail("while reading", "algorithm.pipeline:read_case 0", ["segmentation", "t_stage", "rfs"]),
    fail("no mask", "algorithm.region.grids:restore_labels 0", ["segmentation"]),
    fail("no features", "algorithm.answers:measure_image_features 0", ["t_stage", "rfs"]),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_memory_of_the_process(check_fault: CheckFault, fault: Fault) -> None:
    check_fault(fault)


# A full card


@pytest.mark.parametrize(
    ("full_at", "device", "images", "says"),
    [
        # Tile 3 does not fit: the pass begins again with its sums in RAM, and the other three passes stay there.
        ([3], f"{NAME} (float16, sums on cpu)", 3 + 4 * 8, "sums on cuda): failed (CUDA out of memory. Tried to"),
        # Tile 1 fits neither way, and the card is not used again.
        ([1, 2], "cpu (", 2, "continuing with cpu"),
    ],
    ids=["sums do not fit", "nothing fits"],
)
def test_a_full_card(card: FakeCard, predict: Predict, full_at: list[int], device: str, images: int, says: str) -> None:
    card.full_at(*full_at)
    check_card(card, predict, device, images, says)


# As torch 2.10.0+cu128 prints them; cuDNN 9 has its own name for each kind of memory.
MESSAGES: Final = {
    "allocator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"),
    "heuristics": RuntimeError("GET was unable to find an engine to execute this computation"),
    "benchmark": RuntimeError("FIND was unable to find an engine to execute this computation"),
    "cuDNN 9, card": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "cuDNN 9, host": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    "cuDNN 8": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "runtime": RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    "driver": RuntimeError("CUDA driver error: out of memory"),
}
NOT_SUPPORTED: Final = RuntimeError(
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input."
)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_lack_of_memory_in_the_words_of_torch(message: str) -> None:
    assert devices.is_device_failure(MESSAGES[message])
    assert devices.is_out_of_memory(MESSAGES[message])


@pytest.mark.parametrize("retries", [0, 2])
def test_cudnn_without_support_lacks_memory_if_it_was_short(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """torch counts the allocations for which it had to empty its cache, over the whole life of the process."""
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda *_: {"num_alloc_retries": retries})
    assert devices.is_device_failure(NOT_SUPPORTED)
    assert devices.is_out_of_memory(NOT_SUPPORTED) == (retries > 0)
    assert not devices.is_out_of_memory(NOT_SUPPORTED, devices.count_alloc_retries())


def test_a_first_network_that_is_too_large_is_left_out(
    predict_pair: Callable[..., Progress], pair_package: Path
) -> None:
    """Memory never suffices for the U-Net, so the answer is the two passes of SegResNet."""

    def lack_memory(is_unet: bool) -> None:
        if is_unet:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    notices = Notices()
    progress = predict_pair(lack_memory, Deadline(600), notices)
    image, ready = NetworkImage.from_channels(make_noise(24)), Networks(load_package(pair_package))
    expected = Passes(image, [Pass(1), Pass(3)], ready, Deadline(600), torch.device("cpu")).make_all()
    assert (progress.done, progress.planned) == (2, 4)
    np.testing.assert_array_equal(progress.logits, expected.logits)
    (finding,) = notices.findings
    assert (finding.what, finding.found[:24]) == ("network 3d_fullres", "pass 1 of 4 left out: cp")


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """Keep the objects of other tests out of garbage collections, which would be slow."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_heap")
def test_a_failed_device_holds_neither_network_nor_image(
    card: FakeCard, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are gone when the cache is emptied, and so before the next copy is made."""
    built: list[weakref.ref[nn.Module]] = []
    held: list[tuple[int, bool]] = []

    def build(package: ModelPackage, fold: int) -> nn.Module:
        network = build_network(package, fold)
        built.append(weakref.ref(network))
        return network

    def release(_: torch.device) -> None:
        gc.collect()
        held.append((sum(reference() is not None for reference in built), run._tensor is None))

    ready = Networks(load_package(tiny_package))
    monkeypatch.setattr(networks, "build_network", build)
    monkeypatch.setattr(networks, "_release_cache", release)
    card.full_at(1, 2)
    run = Passes(NetworkImage.from_channels(make_noise()), [Pass(0)], ready, Deadline(600), CARD)
    assert run.make_all().done == 1
    assert held == [(0, True), (0, True)]


@pytest.mark.parametrize("failures", [2, 3])
def test_an_image_without_memory_turns_to_the_next_device(card: FakeCard, tiny_package: Path, failures: int) -> None:
    """After two failures the CPU computes; after three no pass is left, and the PET threshold answers."""
    attempts = itertools.count()

    def channels() -> np.ndarray:
        if next(attempts) < failures:
            raise MemoryError
        return make_noise()

    image, ready = NetworkImage((16, 16, 16), channels), Networks(load_package(tiny_package))
    passes = Passes(image, [Pass(0)], ready, Deadline(600), CARD)
    if failures == 2:
        assert passes.make_all().backend.startswith("cpu (")
    else:
        with pytest.raises(NoPassFitsError):
            passes.make_all()


@pytest.mark.usefixtures("frozen_heap")
@pytest.mark.parametrize(("room_for", "loaded"), [(3, 3), (2, 2 + 1 + 4), (1, 1 + 1 + 5)])
def test_all_networks_stay_on_the_card_or_one_at_a_time(
    card: FakeCard, three_folds: Path, monkeypatch: pytest.MonkeyPatch, room_for: int, loaded: int
) -> None:
    """Three folds run twice. With room for two, the third does not fit: it is loaded again, and so is each network of
    the passes that follow.
    """
    alive: weakref.WeakSet[nn.Module] = weakref.WeakSet()
    loads: list[str] = []
    real = networks.load_weights

    def load(network: nn.Module, path: Path) -> None:
        gc.collect()
        alive.add(network)
        loads.append(path.name)
        if len(alive) > room_for:
            raise torch.OutOfMemoryError("CUDA out of memory")
        real(network, path)

    monkeypatch.setattr(networks, "load_weights", load)
    image, ready = NetworkImage.from_channels(make_noise()), Networks(load_package(three_folds))
    progress = Passes(image, list_mirrored_passes(3, (2,)), ready, Deadline(600), CARD).make_all()
    assert (progress.done, progress.backend) == (6, f"{NAME} (float16, sums on {'cuda' if room_for == 3 else 'cpu'})")
    assert len(loads) == loaded


# Trainings


@ignore_library_warnings
@pytest.mark.slow
def test_a_full_card_ends_a_training_in_one_line(
    card: FakeCard, work: WorkFolders, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs bring one image for training and one for validation. The third does not fit, and the checkpoint of the
    first epoch stays; it does not fit when the training resumes either. With more room, on a slow card, the training
    ends.
    """
    from baseline.network import trainer  # the processes of other tests need not import nnU-Net

    monkeypatch.setattr(trainer, "SAVE_EVERY", 1)
    card.full_at(card.images + 3)
    status, lines = train()
    expected = "a free GPU, or a `plan` with a smaller --memory-gb or --batch-size"
    assert (status, lines[-1]) == (1, f"error: fold 0 (unet): {FULL.partition('. ')[0]}, expected {expected}")
    assert not any("Traceback" in line for line in lines)
    assert torch.load(work.fold(0) / "checkpoint_latest.pth", weights_only=False)["current_epoch"] == 1

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(FULL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "load", full)
        assert train() == (1, [lines[-1]])
    card.slow(0.1)
    assert train()[0] == 0


@ignore_library_warnings
@pytest.mark.slow
def test_one_full_card_of_two_ends_a_training_in_one_line(work: WorkFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnunet, "_run_ddp_process", run_process_of_two)
    machine = nnunet.Machine("cpu", gpus=2, threads=2)
    with pytest.raises(HecktorError, match=r"^fold 0 \(unet\): CUDA out of memory"):
        nnunet.train_with_ddp(work, PLAN, 0, "unet", machine, seed=3)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            RuntimeError("DefaultCPUAllocator: not enough memory. Buy new RAM!"),
            "DefaultCPUAllocator: not enough memory",
        ),
        (MemoryError(), "MemoryError"),
    ],
)
def test_exhausted_memory_of_the_machine(problem: Exception, message: str) -> None:
    """A free GPU would not help."""
    expected = "more free RAM, fewer --jobs, or a `plan` with a smaller --memory-gb or --batch-size"
    with pytest.raises(HecktorError) as refusal, nnunet.explain_failures("fold 0 (unet)"):
        raise problem
    assert (refusal.value.found, refusal.value.expected) == (message, expected)
