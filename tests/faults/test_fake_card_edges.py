"""Messages of a full card, memory that is freed when a card fails, settings around a case, and notices of the run
record.
"""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from algorithm import Predictor
from algorithm.case.inputs import Notices
from algorithm.cli import main
from algorithm.deadline import Deadline, NoPassFitsError
from algorithm.network import devices, networks, tiles
from algorithm.network.networks import Networks, build_network
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, Pass, list_mirrored_passes
from contract.errors import run_main
from tests.conftest import drop_toy_notices, write_tiny_package
from tests.faults.fake_card import NAME, FakeCard

pytestmark = pytest.mark.usefixtures("root_logger")
CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)
MIB = 2**20
# As torch 2.10.0+cu128 prints them; cuDNN 9 has its own name for each kind of memory.
FULL = {
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
NOT_SUPPORTED = RuntimeError(
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input."
)


@pytest.fixture
def record(case_folder: Any, tiny_package: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return the run record of `hecktor predict` with the tiny package."""
    case_folder.write()

    def run(*options: str) -> dict[str, Any]:
        path = case_folder.root / "record.json"
        folders = ["--input", str(case_folder.input), "--output", str(case_folder.output)]
        status = run_main(main, [*folders, "--model", str(tiny_package), "--record", str(path), *options])
        assert status == 0, capfd.readouterr().err
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    return run


def noise(edge: int = 16) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, (2, edge, edge, edge)).astype(np.float32)


# What a full card says


@pytest.mark.parametrize("message", FULL)
def test_a_lack_of_memory_in_the_words_of_torch(message: str) -> None:
    assert devices.is_device_failure(FULL[message])
    assert devices.is_out_of_memory(FULL[message])


@pytest.mark.parametrize("retries", [0, 2])
def test_cudnn_without_support_lacks_memory_if_it_was_short(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """torch counts the allocations for which it had to empty its cache."""
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda *_: {"num_alloc_retries": retries})
    assert devices.is_device_failure(NOT_SUPPORTED)
    assert devices.is_out_of_memory(NOT_SUPPORTED) == (retries > 0)
    # torch counts over the whole life of the process: retries of earlier work say nothing about this failure.
    assert not devices.is_out_of_memory(NOT_SUPPORTED, devices.count_alloc_retries())


# A first network that cannot answer


@pytest.fixture
def pair(pair_package: Path) -> ModelPackage:
    """Load a package whose folds 0 and 2 are a U-Net's and whose folds 1 and 3 are a SegResNet's."""
    return load_package(pair_package)


def test_a_first_network_that_is_too_large_is_left_out(pair: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory never suffices for the U-Net, so the answer is the two passes of SegResNet."""
    real = tiles._compute_tile_logits

    def tile(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
        if part.shape[2:] == (16, 16, 16):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return real(network, part, axes, half=half)

    monkeypatch.setattr(tiles, "_compute_tile_logits", tile)
    image, notices = NetworkImage.from_channels(noise(24)), Notices()
    progress = Passes(
        image, list_mirrored_passes(4, ()), Networks(pair), Deadline(600), CPU, notices=notices
    ).make_all()
    expected = Passes(image, [Pass(1), Pass(3)], Networks(pair), Deadline(600), CPU).make_all()
    assert (progress.done, progress.planned) == (2, 4)
    np.testing.assert_array_equal(progress.logits, expected.logits)
    (finding,) = notices.findings
    assert (finding.what, finding.found[:24]) == ("network 3d_fullres", "pass 1 of 4 left out: cp")


def test_a_first_network_that_is_too_slow_is_left_out(pair: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of the U-Net take 60 s of the 90 s that 100 s leave, so that eight do not fit; SegResNet's take 1 s."""
    now_s = [0.0]
    real = tiles._compute_tile_logits

    def tile(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
        now_s[0] += 60.0 if part.shape[2:] == (16, 16, 16) else 1.0
        return real(network, part, axes, half=half)

    monkeypatch.setattr(tiles, "_compute_tile_logits", tile)
    deadline = Deadline(200, clock=lambda: now_s[0])
    progress = Passes(
        NetworkImage.from_channels(noise(24)), list_mirrored_passes(4, ()), Networks(pair), deadline, CPU
    ).make_all()
    assert (progress.done, progress.planned) == (2, 4)


# What recovery frees


def test_a_failed_device_holds_neither_network_nor_image(
    card: FakeCard, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are gone when the cache is emptied, and so before the next copy is made."""
    built: list[weakref.ref[nn.Module]] = []
    held: list[tuple[int, int]] = []
    ready = Networks(load_package(tiny_package))

    def build(package: ModelPackage, fold: int) -> nn.Module:
        network = build_network(package, fold)
        built.append(weakref.ref(network))
        return network

    def release(_: torch.device) -> None:
        gc.collect()
        held.append((sum(reference() is not None for reference in built), run._tensor is None))

    monkeypatch.setattr(networks, "build_network", build)
    monkeypatch.setattr(networks, "_release_cache", release)
    card.full_at(1, 2)
    run = Passes(NetworkImage.from_channels(noise()), [Pass(0)], ready, Deadline(600), CARD)
    assert run.make_all().done == 1
    assert held == [(0, True), (0, True)]


def image_without_memory(failures: int) -> NetworkImage:
    """Make an image whose first attempts lack memory."""
    attempts = itertools.count()

    def channels() -> np.ndarray:
        if next(attempts) < failures:
            raise MemoryError
        return noise()

    return NetworkImage((16, 16, 16), channels)


def test_an_image_without_memory_turns_to_the_next_device(card: FakeCard, tiny_package: Path) -> None:
    """After two failures the CPU computes; after three no pass is left, and the PET threshold answers."""
    ready = Networks(load_package(tiny_package))
    assert Passes(image_without_memory(2), [Pass(0)], ready, Deadline(600), CARD).make_all().backend.startswith("cpu (")
    with pytest.raises(NoPassFitsError):
        Passes(image_without_memory(3), [Pass(0)], ready, Deadline(600), CARD).make_all()


# Networks on the card


@pytest.mark.parametrize(("room_for", "loaded"), [(5, 5), (3, 3 + 1 + 7), (1, 1 + 1 + 9)])
def test_all_networks_stay_on_the_card_or_one_at_a_time(
    card: FakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_for: int, loaded: int
) -> None:
    """Five folds run twice. With room for three, the fourth does not fit: it is loaded again, and so is each network of
    the passes that follow.
    """
    ready = Networks(load_package(write_tiny_package(tmp_path / "five", ("3d_fullres",) * 5)))
    alive: weakref.WeakSet[nn.Module] = weakref.WeakSet()
    loads: list[str] = []

    def load(network: nn.Module, path: Path) -> None:
        gc.collect()
        alive.add(network)
        loads.append(path.name)
        if len(alive) > room_for:
            raise torch.OutOfMemoryError("CUDA out of memory")
        real(network, path)

    real = networks.load_weights
    monkeypatch.setattr(networks, "load_weights", load)
    image = NetworkImage.from_channels(noise())
    progress = Passes(image, list_mirrored_passes(5, (2,)), ready, Deadline(600), CARD).make_all()
    assert (progress.done, progress.backend) == (10, f"{NAME} (float16, sums on {'cuda' if room_for == 5 else 'cpu'})")
    assert len(loads) == loaded


# Settings around a case


def test_settings_of_a_case_end_with_it(
    card: FakeCard, record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the command a case gets 14 of 16 GiB and reproducible algorithms; the earlier settings come back."""
    cudnn, seen = torch.backends.cudnn, list[tuple[float, bool, bool]]()
    card.on_image = lambda _: seen.append((card.share, cudnn.benchmark, cudnn.deterministic))
    monkeypatch.setattr(cudnn, "benchmark", True)
    monkeypatch.setattr(cudnn, "deterministic", False)
    monkeypatch.setattr(devices, "count_usable_cpus", lambda: 1)
    threads = torch.get_num_threads()
    assert record("--task", "1", "--device", "cuda")["passes_done"] == 4
    assert set(seen) == {(14 / 16, False, True)}
    assert (card.share, cudnn.benchmark, cudnn.deterministic) == (1, True, False)
    assert torch.get_num_threads() == threads


def test_a_notebook_has_all_of_the_card(card: FakeCard, case_folder: Any, tiny_package: Path) -> None:
    case_folder.write()
    prediction = Predictor(tiny_package, device="cuda").predict(case_folder.input)
    assert prediction.record.passes_done == 4
    assert card.least_share == 1


def test_overlapping_cases_restore_once(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases overlap if a case that ended early still computes when the next one begins."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    first, second = (devices.use_inference_settings(CARD, limited=True) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (card.share, torch.backends.cudnn.benchmark) == (14 / 16, False)
    second.__exit__(None, None, None)
    assert (card.share, torch.backends.cudnn.benchmark) == (1, True)


# Half precision


@pytest.mark.parametrize(
    ("avx512_bf16", "amx", "expected"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_bfloat16_is_for_cpus_that_multiply_it(
    monkeypatch: pytest.MonkeyPatch, avx512_bf16: bool, amx: bool, expected: bool
) -> None:
    """oneDNN says yes on any AVX-512, also where it takes 1.3 to 1.6 times as long as float32."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert tiles.cpu_has_bfloat16() is expected
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert tiles.cpu_has_bfloat16() is amx


def test_a_network_in_float32_is_recorded_as_such(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: True)
    names = [str(backend) for backend in tiles.list_backends(CARD, 0, half=False)]
    assert names == [f"{NAME} (float32, sums on cuda)", f"{NAME} (float32, sums on cpu)", "cpu (float32)"]
    assert str(tiles.list_backends(CPU, 0)[0]) == "cpu (bfloat16)"


# What the record says


def test_auto_without_a_card_says_so(record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an image that was built for a card gives the notice, and only if the CPU was not asked for."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert drop_toy_notices(record("--task", "1", "--device", "cpu")["notices"]) == []
    (notice,) = drop_toy_notices(record("--task", "1", "--device", "auto")["notices"])
    assert (notice["what"], notice["action"]) == ("device auto", "the CPU is used")
