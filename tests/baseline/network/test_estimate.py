"""Hours and disk of a training, before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baseline.network.estimate import as_text, estimate, unfinished_part
from baseline.network.nnunet import Machine
from baseline.network.plans import PRESETS
from baseline.work import WorkFolders
from contract.files import write_text
from tests.baseline.prepared import planned_work

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
    plan = PRESETS[preset].changed(**changes)
    found = estimate(plan, 680, 5 * len(plan.backbones), machine).hours
    assert found == (None if hours is None else pytest.approx(hours))


def test_disk_by_hand() -> None:
    """160 patients at 3 mm are what was measured, 0.762 and 0.463 GB; at 1 mm 27 times as much; 5 x 0.5 GB."""
    short = estimate(PRESETS["short"], 160, 5, CUDA)
    assert (short.raw_gb, short.preprocessed_gb) == pytest.approx((0.762, 0.463))
    full = estimate(PRESETS["nnunet"], 160, 5, CUDA)
    assert (full.raw_gb, full.preprocessed_gb) == pytest.approx((27 * 0.762, 27 * 0.463))
    assert full.disk_gb == pytest.approx(27 * 1.225 + 2.5)


def test_the_text(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path / "not" / "yet")
    assert "weeks for each network on a CPU; expected --device cuda" in as_text(
        PRESETS["nnunet"], 9, 5, Machine("cpu"), work
    )
    text = as_text(PRESETS["resenc-l"], 10**7, 5, CUDA, work)
    assert "about 175 h on one A100, more than a week\n" in text
    assert "GB are free, too little" in text
    assert "  all other steps about 69444.4 h\n" in text  # 25 s a patient
    assert "  training about 2.7 h by figures" in as_text(PRESETS["short"], 9, 5, Machine("cpu", threads=1), work)
    short = PRESETS["short"].changed(epochs=1)
    assert "  training under 0.1 h by figures" in as_text(short, 9, 5, Machine("cpu", threads=5), work)
    assert "  training about 45 h on one A100\n" in as_text(PRESETS["nnunet"], 9, 5, CUDA, work)


def test_finished_parts_do_not_count_again(tmp_path: Path) -> None:
    """Two of the five networks are trained: 3 x 9 h are left, and 3 x 0.5 GB of checkpoints; the images are complete."""
    plan = PRESETS["nnunet"].changed(spacing_mm=(2.0, 2.0, 4.0))
    work = planned_work(tmp_path, plan=plan)
    for fold in (0, 3):
        write_text(work.final(fold), "network")
    left = unfinished_part(plan, 10**6, 5, CUDA, work)
    assert (left.networks, left.hours) == (3, pytest.approx(27.0))
    assert (left.raw_gb, left.preprocessed_gb, left.checkpoints_gb) == pytest.approx((0.0, 0.0, 1.5))
    text = as_text(plan, 10**6, 5, CUDA, work)
    assert text.startswith(f"estimate for {10**6} patients, 3 unfinished networks of 1000 epochs:")
    assert "disk 1.5 GB: prepared images 0, preprocessed 0, checkpoints 1.5;" in text
    work.plan_json.unlink()
    assert unfinished_part(plan, 10**6, 5, CUDA, work).preprocessed_gb > 0
