"""Clocks that jump, and networks that are too slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from algorithm.deadline import Deadline
from algorithm.network.passes import Progress
from tests.algorithm.edition import COMBINED
from tests.faults.conftest import TILE, CheckFault, Fault

JUMP: Final = "run {} {} [setattr(time, name, lambda: {}) for name in ('time', 'time_ns')]"


def test_a_wall_clock_that_jumps(check_fault: CheckFault) -> None:
    """Jump a day ahead in the first pass and ten years back in the second: every planned pass runs once."""
    jumps = [JUMP.format(TILE, 3, "1.9e9"), JUMP.format(TILE, 11, "1.4e9")]
    last = check_fault(Fault("jumps", COMBINED, jumps, "4 of 4 passes"))
    left_s, limit_s = last.split(", ")[-1].removesuffix(" s left").split(" s of ")
    assert float(left_s) > float(limit_s) - 200


def test_a_first_network_that_is_too_slow_is_left_out(predict_pair: Callable[..., Progress]) -> None:
    """Tiles of the U-Net take 60 s of the 90 s that 100 s leave, so that eight do not fit; SegResNet's take 1 s."""
    now_s = 0.0

    def take_time(is_unet: bool) -> None:
        nonlocal now_s
        now_s += 60.0 if is_unet else 1.0

    progress = predict_pair(take_time, Deadline(200, clock=lambda: now_s))
    assert (progress.done, progress.planned) == (2, 4)
