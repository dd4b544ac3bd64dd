"""Ratios of the table, and a suite that runs in pyperf's processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyperf
import pytest

from benchmarks.suite import HEADER, Benchmark, Timing, format_markdown, format_seconds, make_rows


def test_ratios_of_medians() -> None:
    """Medians 4 and 2 s: ratio 2."""
    timings = {"peer": Timing((2.0, 2.0), 10.0), "ours": Timing((1.0, 4.0, 5.0), 30.0)}
    reference, measured = Benchmark("peer", ("true",)), Benchmark("ours", ("true",), "peer", max_ratio=2.0)
    peer, ours = make_rows([reference, measured], timings)
    assert ours == ("ours", "1 s", "4 s", "30", "2", "peer", "at most 2: met")
    assert peer[3:] == ("10", "", "", "")
    *_, row = make_rows([reference, replace(measured, max_ratio=1.9)], timings)
    assert row[-1] == "at most 1.9: **not met**"


def test_the_start_is_subtracted_of_both() -> None:
    """Ours takes 5 s with 2 s for the start; the peer 5 s and 1 s: (5 - 2) / (5 - 1) = 0.75."""
    cases = [
        Benchmark("few read", ("true",)),
        Benchmark("few ours", ("true",)),
        Benchmark("read", ("true",), baseline="few read"),
        Benchmark("ours", ("true",), "read", max_ratio=0.8, baseline="few ours"),
    ]
    seconds = {"few read": 1.0, "few ours": 2.0, "read": 5.0, "ours": 5.0}
    *_, row = make_rows(cases, {name: Timing((value,), None) for name, value in seconds.items()})
    assert row[4:] == ("0.75", "read (both without the start)", "at most 0.8: met")
    *_, row = make_rows(
        cases[1:], {name: Timing((value,), None) for name, value in seconds.items() if name != "few read"}
    )
    assert row[4:] == ("", "read (both without the start)", "")


def test_memory_has_an_aim() -> None:
    case = Benchmark("ours", ("true",), max_mib=100)
    (row,) = make_rows([case], {"ours": Timing((1.0,), 101.0)})
    assert row[-1] == "at most 100 MiB: **not met**"


def test_without_the_peer_there_is_no_ratio() -> None:
    (row,) = make_rows([Benchmark("ours", ("true",), "peer", max_ratio=2.0)], {"ours": Timing((1.0,), None)})
    assert row == ("ours", "1 s", "1 s", "", "", "peer", "")


@pytest.mark.parametrize(("seconds", "text"), [(12.34, "12.3 s"), (0.00456, "4.56 ms")])
def test_shown_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_markdown_pads_its_columns() -> None:
    assert list(format_markdown([("a", "bb"), ("ccc", "d")])) == ["| a   | bb |", "|-----|----|", "| ccc | d  |"]


PROGRAM = """
import sys, time
from benchmarks.suite import Benchmark, run_suite, parse_suite_options
runner, options = parse_suite_options(sys.argv[:1], sys.argv[1:])
sleep = Benchmark("sleep", lambda: (lambda: time.sleep(0.05)))
run_suite(runner, "test", [sleep, Benchmark("command", (sys.executable, "-c", "pass"), "sleep"), Benchmark("other", ("false",))])
"""


def test_a_suite_runs_the_chosen_cases_in_their_own_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["--quick", "--data", str(tmp_path), "--only", "[sc]*"]
    command = [sys.executable, str(tmp_path / "program.py"), *options]
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": root, "PATH": "/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert HEADER[0] in done.stdout
    benchmarks = pyperf.BenchmarkSuite.load(str(tmp_path / "test-quick.json"))
    assert benchmarks.get_benchmark_names() == ["sleep", "command"]
    assert benchmarks.get_benchmark("sleep").median() >= 0.05


def test_a_pattern_that_matches_no_case_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), "--data", str(tmp_path), "--only", "sleeps"]
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": "/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "'sleeps', which matches no case, expected a pattern of sleep, command, other" in done.stderr
    assert not list(tmp_path.glob("*.json"))
