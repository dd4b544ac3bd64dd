"""Hours and disk of a training, before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baseline.network.nnunet import Machine
from baseline.network.plans import PRESETS
from baseline.network.training.estimate import as_text, estimate

CUDA = Machine("cuda", threads=8)


@pytest.mark.parametrize(
    ("preset", "changes", "machine", "hours"),
    [
        ("nnunet", {}, CUDA, 45.0),
        ("resenc-l", {}, CUDA, 175.0),
        ("resenc-m", {"epochs": 500}, CUDA, 30.0),
        ("nnunet", {"backbones": ("unet", "segresnet")}, replace(CUDA, gpus=2), 45.0),
        ("nnunet", {}, Machine("cpu", threads=8), None),
        ("short", {}, Machine("cpu", threads=2), 1.6),
    ],
)
def test_hours_by_hand(preset: str, changes: dict[str, object], machine: Machine, hours: float | None) -> None:
    """9 h a fold: five folds take 45; 35 x 5 = 175; half the epochs of 12 x 5 = 30; twice the networks on two cards.
    Five networks of 32 minutes, two at a time: three rounds, 1.6 h.
    """
    found = estimate(replace(PRESETS[preset], **changes), 680, 5, machine).hours  # type: ignore[arg-type]
    assert found == (None if hours is None else pytest.approx(hours))


def test_disk_by_hand() -> None:
    """160 patients at 3 mm are what was measured, 0.762 and 0.463 GB; at 1 mm 27 times as much; 5 x 0.5 GB."""
    short = estimate(PRESETS["short"], 160, 5, CUDA)
    assert (short.raw_gb, short.preprocessed_gb) == pytest.approx((0.762, 0.463))
    full = estimate(PRESETS["nnunet"], 160, 5, CUDA)
    assert (full.raw_gb, full.preprocessed_gb) == pytest.approx((27 * 0.762, 27 * 0.463))
    assert full.disk_gb == pytest.approx(27 * 1.225 + 2.5)


def test_the_text(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    assert "weeks for each network; expected --device cuda" in as_text(PRESETS["nnunet"], 9, 5, Machine(), folder)
    text = as_text(PRESETS["resenc-l"], 10**7, 5, CUDA, folder)
    assert "about 175 h on one A100, more than a week" in text
    assert "*** WARNING *** too little" in text
