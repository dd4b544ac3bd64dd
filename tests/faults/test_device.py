"""Cards that are lost, busy or absent, bugs in the middle of a case, and torch's settings on a card."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from algorithm import Predictor
from algorithm.deadline import Deadline
from algorithm.network import devices, tiles
from algorithm.network.loaded_package import LoadedPackage
from baseline.network import nnunet
from baseline.network.out_of_fold import OutOfFoldRun, segment_out_of_fold
from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.algorithm.edition import COMBINED, RFS
from tests.baseline.network.conftest import PLAN
from tests.baseline.network.test_out_of_fold import CT, FOLD_OF, cohort, segment_by_own_fold  # noqa: F401 - a fixture
from tests.conftest import CaseFolder, drop_toy_notices
from tests.faults.conftest import (
    EPOCHS,
    GPU,
    TILE,
    CheckFault,
    Fault,
    Predict,
    Train,
    check_card,
    ignore_library_warnings,
    name_of,
)
from tests.faults.fake_card import NAME, FakeCard

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)
BUG: Final = "ZeroDivisionError: a bug"
ALL: Final = ["segmentation", "t_stage", "rfs"]


# The algorithm's process


LOST: Final = [f"raise {TILE} {call} lost" for call in (3, 4, 5)]
FAULTS: Final = [
    Fault("all lost", COMBINED, [GPU, *LOST], fallbacks=["segmentation"]),
    Fault("lost while loading", COMBINED, [GPU, "raise algorithm.network.networks:_allocate 1 lost"], fallbacks=[]),
    Fault(
        "lost at once", COMBINED, ["raise algorithm.network.passes:list_backends 1 lost"], fallbacks=["segmentation"]
    ),
    Fault("no thread", COMBINED, ["raise threading:Thread.start 1 lost"], fallbacks=ALL),
    Fault("a bug in a later pass", COMBINED, [f"raise {TILE} 11 bug"], fallbacks=[]),
    Fault("a bug while localising", COMBINED, ["raise algorithm.pipeline:find_region 0 bug"], fallbacks=ALL),
    # A single answer fails before the region is known, and where every answer is measured.
    Fault("a bug before the region", RFS, ["raise algorithm.pipeline:find_region 0 bug"], BUG, 1),
    Fault("a bug in every answer", RFS, ["raise algorithm.answers:measure 0 bug"], BUG, 1),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_step_that_fails(check_fault: CheckFault, fault: Fault) -> None:
    check_fault(fault)


# A card


@pytest.mark.parametrize(
    ("lost_at", "device", "images", "says"),
    [
        (1000, f"{NAME} (float16, sums on cuda)", 4 * 8, "pass 4 of 4"),
        # Two passes are kept, and the CPU makes the other two.
        (2 * 8 + 4, "cpu (", 2 * 8 + 4, "unspecified launch failure"),
    ],
    ids=["works", "lost in the third pass"],
)
def test_a_card(card: FakeCard, predict: Predict, lost_at: int, device: str, images: int, says: str) -> None:
    card.lost_at(lost_at)
    check_card(card, predict, device, images, says)


def test_a_card_that_is_lost_while_the_package_loads_is_not_used_again(card: FakeCard, tiny_package: Path) -> None:
    """Server, Python and command load by the same call; afterwards every step gets the CPU, fitted features too."""
    card.lost = True
    loaded = LoadedPackage(tiny_package, "cuda")
    loaded.load()
    card.lost = False
    assert loaded.device == CPU
    loaded.load()
    assert loaded.device == CPU


def test_out_of_fold_masks_use_the_card_as_inference_does(
    card: FakeCard,
    cohort: tuple[list[ReleaseCase], WorkFolders],  # noqa: F811
    tiny_package: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passes use deterministic algorithms and all of the card's memory; a card that is lost in the second pass leaves
    the same masks.
    """
    cases, work = cohort
    cudnn, seen = torch.backends.cudnn, set[tuple[bool, bool]]()

    def lose(number: int) -> None:
        seen.add((cudnn.deterministic, cudnn.benchmark))
        card.lost = card.lost or number >= 3
        card.answer()

    card.on_image = lose
    monkeypatch.setattr(cudnn, "deterministic", False)
    monkeypatch.setattr(cudnn, "benchmark", True)
    segment_out_of_fold(work, cases, OutOfFoldRun(lambda: tiny_package, FOLD_OF, "networks", "cuda"))
    assert seen == {(True, False)}
    assert (cudnn.deterministic, cudnn.benchmark) == (False, True)
    assert (card.least_share, card.images) == (1, 3)
    for case in cases:
        expected = segment_by_own_fold(case, work, tiny_package).mask_on(CT)
        np.testing.assert_array_equal(read_volume(work.raw_mask(case.patient_id)).array, expected)


def test_sigterm_writes_the_last_copy_of_the_sum(
    card: FakeCard, predict: Predict, three_folds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes in the sixth of six passes; the sum was copied after the fifth."""
    stopped = threading.Event()
    stop = Deadline.stop

    def stop_and_tell(self: Deadline) -> None:
        stop(self)
        stopped.set()

    def terminate(number: int) -> None:
        if number == 5 * 8 + 3:
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.wait(60)

    monkeypatch.setattr(Deadline, "stop", stop_and_tell)
    card.on_image = terminate
    prediction = predict("cuda", package=three_folds)
    assert (prediction.record["passes_done"], prediction.record["passes_planned"], card.images) == (5, 6, 5 * 8 + 3)
    assert "*** EARLY END *** asked to end: the best answer so far is written" in prediction.log


# Settings


def test_settings_of_a_case_end_with_it(card: FakeCard, predict: Predict, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the command a case gets 14 of 16 GiB and reproducible algorithms; the earlier settings come back."""
    cudnn, seen = torch.backends.cudnn, set[tuple[float, bool, bool]]()
    card.on_image = lambda _: seen.add((card.share, cudnn.benchmark, cudnn.deterministic))
    monkeypatch.setattr(cudnn, "benchmark", True)
    monkeypatch.setattr(cudnn, "deterministic", False)
    monkeypatch.setattr(devices, "count_usable_cpus", lambda: 1)
    threads = torch.get_num_threads()
    assert predict("cuda").record["gpu_peak_memory_mib"] == 5 * 1024
    assert seen == {(14 / 16, False, True)}
    assert (card.share, cudnn.benchmark, cudnn.deterministic) == (1, True, False)
    assert torch.get_num_threads() == threads


def test_a_notebook_has_all_of_the_card(card: FakeCard, case_folder: CaseFolder, tiny_package: Path) -> None:
    prediction = Predictor(tiny_package, device="cuda").predict(case_folder.write().input)
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


def test_auto_without_a_card_says_so(predict: Predict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an image that was built for a card gives the notice, and only if the CPU was not asked for."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert drop_toy_notices(predict("cpu").record["notices"]) == []
    (notice,) = drop_toy_notices(predict("auto").record["notices"])
    assert (notice["what"], notice["action"]) == ("device auto", "the CPU is used")


# Trainings


def load_final_weights(work: WorkFolders) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(work.final(0), weights_only=False)["network_weights"]
    return weights


@ignore_library_warnings
@pytest.mark.slow
def test_the_seed_reproduces_a_training_with_workers(card: FakeCard, work: WorkFolders, train: Train) -> None:
    """Two trainings with two augmentation processes give the same weights, bit by bit."""
    status, lines = train()
    assert status == 0, lines
    first = load_final_weights(work)
    assert card.images >= 2 * EPOCHS
    work.final(0).unlink()
    assert train("--deterministic")[0] == 0
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert all(torch.equal(first[name], tensor) for name, tensor in load_final_weights(work).items())


@ignore_library_warnings
@pytest.mark.slow
def test_a_network_is_compiled_only_if_asked(
    card: FakeCard, work: WorkFolders, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `torch.compile` the CPU runs the graphs one operation at a time. Checkpoints hold the network's own names."""
    compiled: list[str] = []
    compile_network = torch.compile

    def compile_simply(network: Any) -> Any:
        compiled.append(type(network).__name__)
        return compile_network(network, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_simply)
    status, lines = train("--compile")
    assert status == 0, lines
    assert compiled == ["PlainConvUNet", "MemoryEfficientSoftDiceLoss"]  # nnU-Net compiles its Dice too
    assert not any("WARNING" in line for line in lines)
    assert not any(name.startswith("_orig_mod") for name in load_final_weights(work))
    assert os.environ["nnUNet_compile"] == "t"  # noqa: SIM112
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
    assert card.images >= 2 * EPOCHS


@ignore_library_warnings
def test_a_lost_card_ends_a_training_in_one_line(card: FakeCard, train: Train) -> None:
    card.lost_at(card.images + 2)
    status, lines = train()
    expected = "a working device; the same command continues from the last checkpoint"
    line = f"error: fold 0 (unet): CUDA error: unspecified launch failure, expected {expected}"
    assert (status, lines[-1]) == (1, line)
    assert not any("Traceback" in line for line in lines)


@ignore_library_warnings
def test_a_busy_card_of_several_ends_a_training_in_one_line(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process uses the card exclusively, the process of this training tells its parent."""

    def busy(_: int) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be")

    monkeypatch.setattr(torch.cuda, "set_device", busy)
    monkeypatch.setattr(nnunet, "raise_at_sigterm", lambda: None)
    group = str(tmp_path / "group")
    with pytest.raises(SystemExit, match="1"):
        nnunet._run_ddp_process(0, group, work, PLAN, 0, "unet", nnunet.Machine("cuda", gpus=2), 3)
    assert read_json(nnunet._error_path(group)) == [
        "fold 0 (unet)",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "a working device; the same command continues from the last checkpoint",
    ]
