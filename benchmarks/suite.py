"""Time cases with pyperf, each in its own processes, and print one table with ratios to a peer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyperf

from contract.errors import HecktorError

HEADER: Final = ("measurement", "min", "median", "peak MiB", "ratio", "to", "aim")

Call = Callable[[], object]


@dataclass(frozen=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: Name, which is unique in its suite.
        work: A function that does the untimed preparation and returns the call to time, or a command line.
        peer: Name of an earlier case with which the time is compared.
        max_ratio: Maximum ratio of times that meets the aim.
        max_mib: Maximum peak memory that meets the aim, in MiB.
        baseline: Name of an earlier case with the same work for fewer patients. Its time is mostly the start of the
            program and is subtracted before the comparison.
        other_process: Whether another process does the work, so that the memory is not measured.
    """

    name: str
    work: Callable[[], Call] | tuple[str, ...]
    peer: str = ""
    max_ratio: float | None = None
    max_mib: float | None = None
    baseline: str = ""
    other_process: bool = False


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, and peak resident memory in MiB, which is None if it was not measured."""

    seconds: tuple[float, ...]
    peak_mib: float | None

    @property
    def median_s(self) -> float:
        return float(np.median(self.seconds))


def parse_suite_options(program: Sequence[str], arguments: Sequence[str]) -> tuple[pyperf.Runner, argparse.Namespace]:
    """Parse the options of a suite: `--quick`, `--data`, `--only` and pyperf's options.

    Args:
        program: Arguments of Python that run the suite again in pyperf's processes.
        arguments: The command line.

    Returns:
        The runner of the suite and its options.
    """
    sys.argv = ["benchmarks", *arguments]
    runner = pyperf.Runner(
        values=5, processes=1, loops=1, warmups=1, add_cmdline_args=_pass_options, program_args=tuple(program)
    )
    add = runner.argparser.add_argument
    add("--quick", action="store_true", help="run each case once on small inputs, only to see it run")
    add("--data", dest="folder", type=Path, default=Path("out/bench"), help="folder for data and JSON (%(default)s)")
    add("--only", default="*", metavar="PATTERN", help="run the cases that match, such as 'rank*'")
    runner.parse_args()
    if runner.args.quick:
        runner.args.values, runner.args.warmups = 1, 0
    return runner, runner.args


def run_suite(runner: pyperf.Runner, name: str, cases: Sequence[Benchmark]) -> None:
    """Measure the chosen cases; print the table and write pyperf's JSON into the output folder.

    Raises:
        HecktorError: `--only` matches no case.
    """
    options = runner.args
    chosen = [case for case in cases if fnmatch(case.name, options.only)]
    if not chosen:
        names = ", ".join(case.name for case in cases)
        raise HecktorError("--only", f"{options.only!r}, which matches no case", f"a pattern of {names}")
    benchmarks = list(_measure(runner, chosen))
    if options.worker:
        return
    timings = {case.name: make_timing(case, benchmark) for case, benchmark in benchmarks}
    sys.stdout.write("\n".join(format_markdown([HEADER, *make_rows([case for case, _ in benchmarks], timings)])) + "\n")
    target = options.folder / f"{name}{'-quick' if options.quick else ''}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    pyperf.BenchmarkSuite([benchmark for _, benchmark in benchmarks]).dump(str(target), replace=True)
    sys.stdout.write(f"written to {target}\n")


def make_rows(cases: Sequence[Benchmark], timings: Mapping[str, Timing]) -> Iterator[tuple[str, ...]]:
    """Make the cells of each case; a ratio is empty without a peer or without a measured time."""
    case_of = {case.name: case for case in cases}
    for case in cases:
        timing = timings[case.name]
        peer = case_of.get(case.peer)
        ratio = None if peer is None else _compute_ratio(case, peer, timings)
        yield (
            case.name,
            *map(format_seconds, (min(timing.seconds), timing.median_s)),
            "" if timing.peak_mib is None else f"{timing.peak_mib:.0f}",
            "" if ratio is None else f"{ratio:.3g}",
            f"{case.peer} (of both the start subtracted)" if case.baseline and peer else case.peer,
            _format_aims(case, ratio, timing.peak_mib),
        )


def _compute_ratio(case: Benchmark, peer: Benchmark, timings: Mapping[str, Timing]) -> float | None:
    """Compute the ratio of two times minus their baselines; None if a remaining time is not positive."""
    seconds = []
    for benchmark in (case, peer):
        if benchmark.baseline and benchmark.baseline not in timings:
            return None
        baseline_s = timings[benchmark.baseline].median_s if benchmark.baseline else 0.0
        seconds.append(timings[benchmark.name].median_s - baseline_s)
    return seconds[0] / seconds[1] if min(seconds) > 0 else None


def _format_aims(case: Benchmark, ratio: float | None, peak_mib: float | None) -> str:
    """Format the aims of the measured ratio and peak memory, and whether they are held."""
    aims = []
    for measured, maximum, unit in ((ratio, case.max_ratio, ""), (peak_mib, case.max_mib, " MiB")):
        if measured is not None and maximum is not None:
            aims.append(f"at most {maximum:.4g}{unit}: {'held' if measured <= maximum else '**not held**'}")
    return ", ".join(aims)


def make_timing(case: Benchmark, benchmark: pyperf.Benchmark) -> Timing:
    """Make seconds and peak memory of a measured case; the memory of a command includes its children."""
    runs = [run.get_metadata() for run in benchmark.get_runs()]
    peaks = [run[name] for run in runs for name in ("command_max_rss", "mem_max_rss") if name in run]
    has_memory = bool(peaks) and not case.other_process
    return Timing(tuple(benchmark.get_values()), max(peaks) / 2**20 if has_memory else None)


def format_markdown(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Format a header and rows as a padded Markdown table."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def format_seconds(seconds: float) -> str:
    """Format three figures with a unit, such as `12.3 s` or `4.56 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _measure(runner: pyperf.Runner, cases: Sequence[Benchmark]) -> Iterator[tuple[Benchmark, pyperf.Benchmark]]:
    for case in cases:
        if isinstance(case.work, tuple):
            benchmark = runner.bench_command(case.name, list(case.work))
        else:
            benchmark = runner.bench_time_func(case.name, partial(_time, case.work, {}))
        if benchmark is not None:
            yield case, benchmark


def _time(prepare: Callable[[], Call], cache: dict[str, Call], loops: int) -> float:
    """Measure the seconds of `loops` calls; the preparation is done once in a process and kept in `cache`."""
    if not cache:
        cache["call"] = prepare()
    call = cache["call"]
    start_s = perf_counter()
    for _ in range(loops):
        call()
    return perf_counter() - start_s


def _pass_options(command: list[str], options: Any) -> None:
    """Add a suite's own options to the command line of pyperf's workers."""
    command += ["--data", str(options.folder), "--only", options.only, *(["--quick"] if options.quick else [])]
    command += ["--inherit-environ", "OMP_NUM_THREADS,PYTHONPATH,HECKTOR_PYTHON"]
