"""Timing of calls and commands, and their memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.harness.timing import Command, Repeats, Timing, run_command, time_calls, time_command
from contract.errors import HecktorError


def python(code: str, **options: float) -> Command:
    return Command((sys.executable, "-c", code), **options)  # type: ignore[arg-type]


def test_repeats_continue_until_enough_calls_and_seconds() -> None:
    """At least 2 calls; then on while under 1 s; never a fifth call, since 4 is the most."""
    repeats = Repeats(least=2, least_s=1.0, most=4)
    assert [repeats.another(done, 0.1 * done) for done in range(6)] == [True, True, True, True, False, False]
    assert not repeats.another(2, 1.5)


def test_statistics_of_a_timing() -> None:
    """Of 1, 2, 3, 4, 10 the median is 3; the 90th percentile lies at position 3.6, 4 + 0.6 x 6 = 7.6."""
    seconds = Timing((10.0, 1.0, 3.0, 2.0, 4.0), 100.0).to_dict()["seconds"]
    assert (seconds["min"], seconds["median"], seconds["p90"]) == (1.0, 3.0, pytest.approx(7.6))


def test_calls_are_counted_and_their_memory_measured() -> None:
    """100 MB of bytes written in a call must show on top of the memory before."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before_mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    calls: list[int] = []

    def work() -> None:
        calls.append(len(bytearray(b"\x01") * 100_000_000))

    timing = time_calls(work, Repeats(least=3))
    assert len(calls) == 4
    assert len(timing.seconds) == 3
    assert timing.peak_memory_mib > before_mib + 90


def test_a_command_is_timed_with_its_children() -> None:
    """The child of the command holds 200 MB for a second, the command itself next to nothing."""
    child = "import time; block = bytearray(b'1') * 200_000_000; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    timing = time_command(python(parent), Repeats(least=1))
    assert timing.seconds[0] > 1
    assert timing.peak_memory_mib > 190


def test_a_failing_command_is_an_error() -> None:
    with pytest.raises(HecktorError, match=r"status 3.*why"):
        time_command(python("import sys; print('why'); sys.exit(3)"), Repeats(least=1))


def test_figures_are_read_after_the_last_run() -> None:
    runs: list[int] = []
    command = Command((sys.executable, "-c", ""), figures=lambda: {"runs": float(len(runs))})
    runs.append(1)
    assert time_command(command, Repeats(least=2)).figures == {"runs": 1.0}


def test_a_command_that_exceeds_its_memory_limit_is_killed_with_its_children() -> None:
    """The child writes 300 MB and sleeps for a minute."""
    child = "import time; block = bytearray(b'1') * 300_000_000; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    run = run_command(python(parent, memory_limit_mib=200))
    assert run.killed
    assert run.status != 0
    assert run.seconds < 50
    assert run.peak_memory_mib > 200
    assert time_command(python(parent, memory_limit_mib=200), Repeats(least=1)).figures == {"killed": 1.0}


def test_forked_pages_count_once() -> None:
    """Three children share their parent's 100 MB: about 100 MB, where the sum of resident sets is over 400 MB."""
    work = (
        "import os, sys, time; block = bytearray(b'1') * 100_000_000\n"
        "for _ in range(3):\n    if os.fork() == 0: time.sleep(1.0); os._exit(0)\n"
        "time.sleep(1.0)"
    )
    assert 90 < run_command(python(work)).peak_memory_mib < 200
