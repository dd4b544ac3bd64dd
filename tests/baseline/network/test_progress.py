"""Tests of the lines about a training's progress and of its end by Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from baseline import cli, steps
from baseline.network.progress import format_duration, format_epoch, read_epoch_seconds
from contract.errors import HecktorError
from tests.signals import reset_signals


class Log:
    """Log of nnU-Net's trainer after twelve epochs: the first took an hour, the others a minute."""

    def __init__(self) -> None:
        seconds = [3600.0, *[60.0] * 11]
        self.values: dict[str, list[Any]] = {
            "epoch_start_timestamps": [0.0] * 12,
            "epoch_end_timestamps": seconds,
            "train_losses": [1.0, -0.25],
            "val_losses": [1.0, -0.125],
            "dice_per_class_or_region": [[0.0, 0.0], [0.7124, float("nan")]],
        }

    def get_value(self, name: str, step: int | None) -> Any:
        return self.values[name] if step is None else self.values[name][step]


def test_the_line_by_hand() -> None:
    """8 of 20 epochs are left at the median of the latest ten epochs, one minute: 8 minutes."""
    seconds = read_epoch_seconds(Log())
    assert sum(seconds) == 3600 + 11 * 60
    assert format_epoch("fold 3 (unet)", 20, Log(), seconds) == (
        "fold 3 (unet): epoch 12 of 20, loss -0.250, validation -0.125, pseudo-Dice GTVp 0.712, GTVn nan; 8 min 00 s left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.7, "1 min 00 s"), (245, "4 min 05 s"), (3600, "1 h 00 min"), (12_000, "3 h 20 min"),
     (86_399, "1 d 00 h"), (183_600, "2 d 03 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


PATHS = {"PYTHONPATH": ":".join(sys.path)}
# A pool's shutdown waits forever if Ctrl-C interrupted a worker in the middle of an answer.
POOL = """
import os, signal, time
from baseline.network.progress import exit_at_interrupt

with exit_at_interrupt("made anew"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    finally:
        time.sleep(600)
"""


def test_ctrl_c_ends_a_pool_that_would_never_end(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    command = [sys.executable, tmp_path / "pool.py"]
    done = subprocess.run(
        reset_signals(command), capture_output=True, text=True, env=os.environ | PATHS, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted: made anew"


def test_ctrl_c_in_any_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    (tmp_path / "cases.json").touch()
    monkeypatch.setattr(steps, "measure_out_of_fold", interrupt)
    with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved; run the same command again"):
        cli.main(["heads", "--work", str(tmp_path)])
