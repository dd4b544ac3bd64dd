"""Bounds hold or do not, and say so; long scans keep their anatomy; the T4's prediction is arithmetic."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from benchmarks.bounds import Bound, bounds_table, gigabytes
from benchmarks.long_scans import folded, stretched
from benchmarks.outside_network import of_answers, of_processes
from benchmarks.slice_growth import Growth, growth_bounds
from benchmarks.timing import Timing, run_command, tree_memory_mib, tree_memory_once_mib
from benchmarks.watched import WatchedAnswer, WatchedRun
from benchmarks.whole_patient import PeerRun, WholePatient
from contract.images.geometry import Geometry
from contract.images.volumes import Volume


@pytest.mark.parametrize(
    ("measured", "kind", "held"),
    [
        (2.9, "at least", False),
        (3.0, "at least", True),
        (3.1, "at most", False),
        (3.0, "at most", True),
        (math.nan, "at most", False),
        (math.nan, "at least", False),
    ],
)
def test_a_bound_of_three(measured: float, kind: str, held: bool) -> None:
    """The limit itself holds, what is no number does not."""
    bound = Bound("what", measured, 3.0, kind)  # type: ignore[arg-type]
    assert bound.held is held
    assert bound.as_json()["held"] is held
    assert ("**not held**" in bounds_table([bound])) is not held


def test_a_table_shows_measure_limit_and_verdict() -> None:
    """1,430.51 MiB are 1.5 x 10^9 bytes."""
    bound = Bound("peak memory", gigabytes(1430.51), 3.0, "at most", "GB", "seen once")
    last = [cell.strip() for cell in bounds_table([bound]).splitlines()[-1].split("|")[1:-1]]
    assert last == ["peak memory", "1.5 GB", "at most 3 GB", "held; seen once"]


def test_the_peer_counts_at_its_best() -> None:
    """Ours 10 s and 1,000 MiB; the peer 40 s and 1,500 MiB, or 35 s and 4,000 MiB: 3.5 times as fast, 2/3 of 1,500."""
    peers = (PeerRun("alone", 40.0, 1500.0, killed=False), PeerRun("many", 35.0, 4000.0, killed=False))
    speed, memory = WholePatient("whole_body", Timing((9.0, 10.0, 12.0), 1000.0, 0.0), peers, {}).bounds()
    assert (speed.measured, speed.limit, speed.held) == (3.5, 3.0, True)
    assert (memory.measured, memory.held) == (pytest.approx(2 / 3), False)
    assert "many" in speed.note
    assert "alone" in memory.note


def test_a_killed_peer_is_said_to_be() -> None:
    peer = PeerRun("alone", 40.0, 20500.0, killed=True)
    speed, memory, absolute = WholePatient("head_and_neck", Timing((50.0,), 1000.0, 0.0), (peer,), {}).bounds()
    assert "killed" in speed.note
    assert not speed.held  # 0.8 times as fast, where at least 1 is wanted
    assert memory.held
    assert absolute.measured == pytest.approx(1.048576)


def test_time_outside_the_network_is_what_is_left() -> None:
    """Answers of 2 s with 1.5 s in the network: 25% outside. The process adds 1 s before and 0.5 s after: 2 of 3.5 s.

    0.5 s are 15% of 0.5 / 0.15 s, of which 0.85 x 0.5 / 0.15 = 2.833 s are the network's.
    """
    given = WatchedAnswer(2.0, 1.5, 12, {"read": 0.3, "segment": 1.6, "write": 0.1})
    resident = of_answers([given, given])
    assert resident.share == pytest.approx(0.25)
    assert resident.network_s_wanted == pytest.approx(2.8333, abs=1e-4)
    assert resident.parts["segment, around the network"] == pytest.approx(0.1)
    assert sum(resident.parts.values()) == pytest.approx(2.0)
    process = of_processes([WatchedRun(3.5, 1.0, (given,), 700.0)])
    assert process.share == pytest.approx(2 / 3.5)
    assert sum(process.parts.values()) == pytest.approx(3.5)
    assert not process.bound().held


def growth(slices: int, network_s: float, read_s: float) -> Growth:
    return Growth(slices, slices, slices * 1000, 48, network_s, read_s, read_s / 1.2, 5.0, 2000.0)


def test_growth_is_judged_between_the_fewest_and_the_most_slices() -> None:
    """The network takes 1.1 times as long, reading ten times as long for ten times the voxels."""
    bounds = list(growth_bounds([growth(100, 1.0, 0.2), growth(300, 9.0, 9.0), growth(1000, 1.1, 2.0)]))
    assert [bound.held for bound in bounds] == [True, True, True, True]
    assert [bound.measured for bound in bounds[:3]] == pytest.approx([1.1, 1.0, 1.2])
    slow = list(growth_bounds([growth(100, 1.0, 0.2), growth(1000, 1.3, 2.6)]))
    assert [bound.held for bound in slow] == [False, False, True, True]


def test_slices_beyond_the_body_go_back_and_forth() -> None:
    """A body of 500 mm: 60 mm beyond its end lies what is 440 mm deep, 160 mm beyond what is 460 mm deep."""
    depths = np.array([0.0, 250.0, 500.0, 560.0, 600.0, 660.0, 700.0, 720.0])
    np.testing.assert_allclose(folded(depths, 500.0), [0, 250, 500, 440, 400, 460, 500, 480])


def test_a_stretched_scan_keeps_its_top_and_its_millimetres() -> None:
    """Slice n of 201 holds n and lies at n x 5 mm; 500 slices of 2.5 mm reach from 1,000 mm down to -247.5 mm.

    The top slice is number 200. The one at 500 mm is number 100. The lowest, 1,247.5 mm below the top, is 247.5 mm
    beyond the end, twice there and back: 47.5 mm above it, slice 9.5, which is rounded to an even number of steps
    from the top.
    """
    array = np.broadcast_to(np.arange(201, dtype=np.int16)[:, None, None], (201, 2, 2))
    volume = Volume(np.ascontiguousarray(array), Geometry((2, 2, 201), (1.0, 1.0, 5.0), (0.0, 0.0, 0.0)))
    longer = stretched(volume, 500, 2.5)
    assert longer.geometry.size == (2, 2, 500)
    z_mm = longer.geometry.origin_mm[2] + 2.5 * np.arange(500)
    assert (z_mm[0], z_mm[-1]) == (-247.5, 1000.0)
    inside = z_mm >= 0
    assert np.abs(longer.array[inside, 0, 0] * 5.0 - z_mm[inside]).max() <= 2.5
    assert longer.array[-1, 0, 0] == 200
    assert longer.array[0, 0, 0] in (9, 10)


def test_a_command_that_takes_too_much_memory_is_killed_with_its_children() -> None:
    """The child writes 300 MB and then would sleep for a minute."""
    child = "import time; block = bytearray(b'1') * 300_000_000; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    done = run_command((sys.executable, "-c", parent), most_memory_mib=200)
    assert done.killed
    assert done.status != 0
    assert done.seconds < 50
    assert done.peak_memory_mib > 200


def test_forked_pages_count_once() -> None:
    """Three children share their parent's 100 MB: about 100 MB once, over 300 MB if each counts."""
    work = (
        "import os, sys, time; block = bytearray(b'1') * 100_000_000\n"
        "for _ in range(3):\n    if os.fork() == 0: time.sleep(1.0); os._exit(0)\n"
        "time.sleep(1.0)"
    )
    once = run_command((sys.executable, "-c", work), memory_mib=tree_memory_once_mib)
    each = run_command((sys.executable, "-c", work), memory_mib=tree_memory_mib)
    assert 90 < once.peak_memory_mib < 200
    assert each.peak_memory_mib > 300
