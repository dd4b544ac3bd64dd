"""What a card says, what is freed when it fails, its settings around a case, and what the run record says of it."""

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
from tests.conftest import but_of_toys, write_tiny_package
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
    """The run record of `hecktor predict` with the tiny package."""
    case_folder.write()

    def run(*options: str) -> dict[str, Any]:
        path = case_folder.root / "record.json"
        folders = ["--input", str(case_folder.input), "--output", str(case_folder.output)]
        status = run_main(main, [*folders, "--model", str(tiny_package), "--record", str(path), *options])
        assert status == 0, capfd.readouterr().err
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    return run


def noise(edge: int = 16) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, (2, edge, edge, edge)).astype(np.float32)


# What a full card says


@pytest.mark.parametrize("said", FULL)
def test_a_lack_of_memory_in_the_words_of_torch(said: str) -> None:
    assert devices.is_device_failure(FULL[said])
    assert devices.is_out_of_memory(FULL[said])


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


@pytest.mark.parametrize("said", ["heuristics", "cuDNN 9, card", "runtime"])
def test_a_full_card_leaves_the_pass_to_the_cpu(card: FakeCard, tiny_package: Path, said: str) -> None:
    """Both ways of using the card fail at their first tile: all passes are the CPU's."""

    def full(number: int) -> None:
        if number <= 2:
            raise FULL[said]

    card.on_image = full
    notices = Notices()
    found = Passes(
        NetworkImage.from_channels(noise()), list_mirrored_passes(2, ()), Networks(load_package(tiny_package)), Deadline(600), CARD,
        notices=notices,
    ).make_all()  # fmt: skip
    assert (found.done, found.backend[:5]) == (2, "cpu (")
    assert [finding.what for finding in notices.findings] == [
        f"{NAME} (float16, sums on cuda)",
        f"{NAME} (float16, sums on cpu)",
    ]


# A first network that cannot answer


@pytest.fixture
def pair(pair_package: Path) -> ModelPackage:
    """Folds 0 and 2 are a U-Net's, 1 and 3 SegResNet's."""
    return load_package(pair_package)


def test_a_first_network_that_is_too_large_is_left_out(pair: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The U-Net lacks memory wherever it runs: SegResNet's two passes are the answer, as if it were alone."""
    real = tiles._tile_logits

    def tile(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
        if part.shape[2:] == (16, 16, 16):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return real(network, part, axes, half=half)

    monkeypatch.setattr(tiles, "_tile_logits", tile)
    image, notices = NetworkImage.from_channels(noise(24)), Notices()
    found = Passes(image, list_mirrored_passes(4, ()), Networks(pair), Deadline(600), CPU, notices=notices).make_all()
    alone = Passes(image, [Pass(1), Pass(3)], Networks(pair), Deadline(600), CPU).make_all()
    assert (found.done, found.planned) == (2, 4)
    np.testing.assert_array_equal(found.logits, alone.logits)
    (finding,) = notices.findings
    assert (finding.what, finding.found[:24]) == ("network 3d_fullres", "pass 1 of 4 left out: cp")


def test_a_first_network_that_is_too_slow_is_left_out(pair: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of the U-Net takes 60 s of the 90 s that 100 s leave, so that its eight do not fit; SegResNet's take 1 s."""
    now_s = [0.0]
    real = tiles._tile_logits

    def tile(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
        now_s[0] += 60.0 if part.shape[2:] == (16, 16, 16) else 1.0
        return real(network, part, axes, half=half)

    monkeypatch.setattr(tiles, "_tile_logits", tile)
    deadline = Deadline(200, clock=lambda: now_s[0])
    found = Passes(
        NetworkImage.from_channels(noise(24)), list_mirrored_passes(4, ()), Networks(pair), deadline, CPU
    ).make_all()
    assert (found.done, found.planned) == (2, 4)


# What recovery frees


def test_a_failed_device_holds_neither_network_nor_image(
    card: FakeCard, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its cache is emptied, and so before the next copy is made."""
    built: list[weakref.ref[nn.Module]] = []
    held: list[tuple[int, int]] = []
    ready = Networks(load_package(tiny_package))

    def build(package: ModelPackage, fold: int) -> nn.Module:
        network = build_network(package, fold)
        built.append(weakref.ref(network))
        return network

    def release(_: torch.device) -> None:
        gc.collect()
        held.append((sum(one() is not None for one in built), run._tensor is None))

    monkeypatch.setattr(networks, "build_network", build)
    monkeypatch.setattr(networks, "_release_cache", release)
    card.full_at(1, 2)
    run = Passes(NetworkImage.from_channels(noise()), [Pass(0)], ready, Deadline(600), CARD)
    assert run.make_all().done == 1
    assert held == [(0, True), (0, True)]


def image_without_memory(failures: int) -> NetworkImage:
    """An image whose first attempts lack memory."""
    attempts = itertools.count()

    def channels() -> np.ndarray:
        if next(attempts) < failures:
            raise MemoryError
        return noise()

    return NetworkImage((16, 16, 16), channels)


def test_an_image_without_memory_turns_to_the_next_device(card: FakeCard, tiny_package: Path) -> None:
    """Twice leaves the CPU; three times is a case without a pass, which the PET threshold answers."""
    ready = Networks(load_package(tiny_package))
    assert Passes(image_without_memory(2), [Pass(0)], ready, Deadline(600), CARD).make_all().backend.startswith("cpu (")
    with pytest.raises(NoPassFitsError):
        Passes(image_without_memory(3), [Pass(0)], ready, Deadline(600), CARD).make_all()


# Networks on the card


@pytest.mark.parametrize(("room_for", "loaded"), [(5, 5), (3, 3 + 1 + 7), (1, 1 + 1 + 9)])
def test_all_networks_stay_on_the_card_or_one_at_a_time(
    card: FakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_for: int, loaded: int
) -> None:
    """Five folds, twice. With room for three the fourth one does not fit: it is loaded again, and so is each network
    of the passes that follow.
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
    found = Passes(image, list_mirrored_passes(5, (2,)), ready, Deadline(600), CARD).make_all()
    assert (found.done, found.backend) == (10, f"{NAME} (float16, sums on {'cuda' if room_for == 5 else 'cpu'})")
    assert len(loads) == loaded


# Settings around a case


def test_settings_of_a_case_end_with_it(
    card: FakeCard, record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """14 of 16 GiB and reproducible algorithms in the command, whatever was set before."""
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
    found = Predictor(tiny_package, device="cuda").predict(case_folder.input)
    assert found.record.passes_done == 4
    assert card.least_share == 1


def test_overlapping_cases_restore_once(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that ended early may still compute when the next one begins."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    first, second = (devices.as_inference(CARD, limited=True) for _ in range(2))
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
    ways = [str(one) for one in tiles.backends(CARD, 0, half=False)]
    assert ways == [f"{NAME} (float32, sums on cuda)", f"{NAME} (float32, sums on cpu)", "cpu (float32)"]
    assert str(tiles.backends(CPU, 0)[0]) == "cpu (bfloat16)"


# What the record says


def test_auto_without_a_card_says_so(record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """In an image that was built for a card, and only where nobody asked for the CPU."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert but_of_toys(record("--task", "1", "--device", "cpu")["notices"]) == []
    (notice,) = but_of_toys(record("--task", "1", "--device", "auto")["notices"])
    assert (notice["what"], notice["action"]) == ("device auto", "the CPU computes")


def test_rfs_by_the_pet_threshold_is_a_fallback(
    case_folder: Any, tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network without memory: its head answers from the mask of the threshold."""

    def full(*_: Any, **__: Any) -> torch.Tensor:
        raise MemoryError

    monkeypatch.setattr(tiles, "_tile_logits", full)
    case_folder.write()
    record = Predictor(tiny_package, task="rfs", device="cpu").predict(case_folder.input).record
    assert record.segmented_by == "PET threshold"
    assert record.fallbacks == ("rfs",)
    assert dict(record.fallback_by) == {"rfs": "PET threshold"}
