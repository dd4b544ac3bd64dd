"""Runs of `predict` that the network must answer, and Dice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.device.job import CARD_GIB
from benchmarks.device.patients import MARGIN_S, PASSES, PredictRun, dice

CARD = "NVIDIA T4 (float16, sums on cuda)"


def make_run(mask: Path, **changes: Any) -> PredictRun:
    plain = {
        "segmented_by": "network",
        "device": CARD,
        "passes_done": 7,
        "passes_planned": 40,
        "seconds": {"read": 0.3, "segment": 12.0},
        "left_s": 500.0,
        "peak_memory_mib": 800.0,
        "gpu_peak_memory_mib": None,
    }
    return PredictRun(changes.pop("status", 0), 13.0, plain | changes, mask, "last line")


@pytest.mark.parametrize(
    ("changes", "device", "fails"),
    [
        ({}, "cuda", False),
        ({"device": "cpu (bfloat16)"}, "cuda", True),  # the CPU answered in place of the card
        ({"device": "cpu (bfloat16)"}, "cpu", False),
        ({}, "cpu", True),
        ({"device": None, "segmented_by": "PET threshold"}, "cuda", True),
        ({"device": None, "segmented_by": "PET threshold"}, "cpu", True),
        ({"status": 1}, "cuda", True),
    ],
)
def test_failures_of_a_run(changes: dict[str, Any], device: str, fails: bool, tmp_path: Path) -> None:
    mask = tmp_path / "mask.mha"
    mask.touch()
    assert bool(make_run(mask, **changes).find_failures(device)) is fails
    assert make_run(tmp_path / "none", **changes).find_failures(device)


def test_figures_of_a_run_record(tmp_path: Path) -> None:
    figures = make_run(tmp_path, gpu_peak_memory_mib=512.0).figures()
    assert (figures["segment (s)"], figures[PASSES], figures[MARGIN_S], figures[CARD_GIB]) == (12.0, 7, 500.0, 0.5)
    assert CARD_GIB not in make_run(tmp_path).figures()


def test_dice() -> None:
    """With two and three voxels and one in common: 2 x 1 / 5."""
    first, second = np.array([1, 1, 0, 0, 0], bool), np.array([0, 1, 1, 1, 0], bool)
    assert dice(first, second) == pytest.approx(0.4)
    assert dice(first & False, second & False) is None
