"""A full, a lost and a slow card through whole runs of `hecktor predict`, faked on the CPU."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.cli import main
from algorithm.deadline import Deadline
from algorithm.network.loaded_package import LoadedPackage
from baseline.network.out_of_fold import OutOfFoldRun, segment_out_of_fold
from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.errors import run_main
from contract.images.volumes import read_volume
from tests.baseline.network.test_out_of_fold import CT, FOLD_OF, cohort, segment_by_own_fold  # noqa: F401 - a fixture
from tests.conftest import write_tiny_package
from tests.faults.fake_card import NAME, FakeCard

pytestmark = pytest.mark.usefixtures("root_logger")
ON_CARD, SPARED = f"{NAME} (float16, sums on cuda)", f"{NAME} (float16, sums on cpu)"


@dataclass(frozen=True)
class Outcome:
    """The record of a run, its mask, and the lines of its log."""

    record: dict[str, Any]
    mask: np.ndarray
    log: str


@pytest.fixture
def predict_on(case_folder: Any, tiny_package: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `hecktor predict` on a device over the small case."""
    case_folder.write()
    root: Path = case_folder.root

    def run(device: str, *options: str) -> Outcome:
        output = root / f"output-{device}"
        output.mkdir()
        words = ["--task", "1", "--input", str(root / "input"), "--output", str(output), "--model", str(tiny_package)]
        status = run_main(main, [*words, "--device", device, "--record", str(root / "record.json"), *options])
        log = capfd.readouterr().err
        assert status == 0, log
        mask = next(output.rglob("*.mha"))
        return Outcome(json.loads((root / "record.json").read_text()), read_volume(mask, np.uint8).array, log)

    return run


def test_a_card_that_works(card: FakeCard, predict_on: Callable[..., Outcome]) -> None:
    outcome = predict_on("cuda")
    assert (outcome.record["device"], outcome.record["passes_done"]) == (ON_CARD, 4), outcome.log
    assert outcome.record["gpu_peak_memory_mib"] == 5 * 1024
    np.testing.assert_array_equal(outcome.mask, predict_on("cpu").mask)


# The grid of the case has 8 tiles, and the package two folds with one mirror axis: four passes, 32 images.


def test_a_full_card_leaves_its_sums_to_the_ram(card: FakeCard, predict_on: Callable[..., Outcome]) -> None:
    """Tile 3 does not fit: the pass begins again with its sums in RAM, and the other three passes stay there."""
    card.full_at(3)
    outcome = predict_on("cuda")
    assert (outcome.record["device"], outcome.record["passes_done"]) == (SPARED, 4)
    assert card.images == 3 + 4 * 8
    assert f"{ON_CARD}: failed (CUDA out of memory. Tried to allocate 2.00 GiB" in outcome.log
    np.testing.assert_array_equal(outcome.mask, predict_on("cpu").mask)


def test_a_card_that_stays_full_leaves_the_case_to_the_cpu(card: FakeCard, predict_on: Callable[..., Outcome]) -> None:
    """Tile 1 fits neither way, and the card is not used again."""
    card.full_at(1, 2)
    outcome = predict_on("cuda")
    assert outcome.record["device"].startswith("cpu (")
    assert (outcome.record["passes_done"], card.images) == (4, 2)
    np.testing.assert_array_equal(outcome.mask, predict_on("cpu").mask)


def test_a_card_that_is_lost_in_the_third_pass(card: FakeCard, predict_on: Callable[..., Outcome]) -> None:
    """Two passes are kept, and the CPU makes the other two."""
    card.lost_at(2 * 8 + 4)
    outcome = predict_on("cuda")
    assert outcome.record["device"].startswith("cpu (")
    assert (outcome.record["passes_done"], card.images) == (4, 2 * 8 + 4)
    assert outcome.log.count("unspecified launch failure") >= 2
    assert "Traceback" not in outcome.log
    np.testing.assert_array_equal(outcome.mask, predict_on("cpu").mask)


def test_a_card_that_is_lost_while_the_package_loads_is_not_used_again(card: FakeCard, tiny_package: Path) -> None:
    """Server, Python and command load by the same call; afterwards every step gets the CPU, fitted features too."""
    card.lost = True
    loaded = LoadedPackage(tiny_package, "cuda")
    loaded.load()
    card.lost = False
    assert loaded.device == torch.device("cpu")
    loaded.load()
    assert loaded.device == torch.device("cpu")


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
    seen: list[tuple[bool, bool]] = []

    def lose(number: int) -> None:
        seen.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark))
        card.lost = card.lost or number >= 3
        card.answer()

    card.on_image = lose
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    segment_out_of_fold(work, cases, OutOfFoldRun(lambda: tiny_package, FOLD_OF, "networks", "cuda"))
    assert set(seen) == {(True, False)}
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)
    assert card.least_share == 1
    assert card.images == 3
    for case in cases:
        expected = segment_by_own_fold(case, work, tiny_package).mask_on(CT)
        np.testing.assert_array_equal(read_volume(work.raw_mask(case.patient_id)).array, expected)


def test_sigterm_writes_the_last_copy_of_the_sum(
    card: FakeCard, case_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM comes in the eighth of ten passes; the sum was copied after the fifth."""
    case_folder.write()
    package = write_tiny_package(tmp_path / "five", ("3d_fullres",) * 5)
    stopped = threading.Event()
    stop = Deadline.stop

    def stop_and_tell(self: Deadline) -> None:
        stop(self)
        stopped.set()

    def terminate(number: int) -> None:
        if number == 7 * 8 + 3:
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.wait(60)

    monkeypatch.setattr(Deadline, "stop", stop_and_tell)
    card.on_image = terminate
    root: Path = case_folder.root
    folders = ["--input", str(root / "input"), "--output", str(root / "output"), "--model", str(package)]
    options = ["--task", "1", "--device", "cuda", "--record", str(root / "record.json")]
    assert run_main(main, [*folders, *options]) == 0
    record = json.loads((root / "record.json").read_text())
    assert (record["passes_done"], record["passes_planned"], card.images) == (5, 10, 7 * 8 + 3)
    assert "*** EARLY END *** asked to end: the best answer so far is written" in capfd.readouterr().err
