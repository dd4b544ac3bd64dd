"""Time cases with pyperf, each in processes of its own, and print one table with ratios to a peer or limit."""

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
        name: unique in its suite.
        work: a function that does the untimed preparation and returns the call to time, or a command line.
        against: name of an earlier case, a peer or a physical limit, to which the time is compared.
        most: largest ratio of times that meets the aim.
        most_mib: largest peak memory that meets the aim, in MiB.
        less: name of an earlier case that does the same for fewer patients. Its time, most of it for the start, is
            subtracted before this one is compared.
        other_process: another process does the work, so the memory is not measured.
    """

    name: str
    work: Callable[[], Call] | tuple[str, ...]
    against: str = ""
    most: float | None = None
    most_mib: float | None = None
    less: str = ""
    other_process: bool = False


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat and peak resident memory in MiB, None if it was not measured."""

    seconds: tuple[float, ...]
    peak_mib: float | None

    @property
    def median_s(self) -> float:
        return float(np.median(self.seconds))


def suite_options(program: Sequence[str], arguments: Sequence[str]) -> tuple[pyperf.Runner, argparse.Namespace]:
    """The runner of a suite and its options: `--quick`, `--data`, `--only` and those of pyperf.

    `program` has the arguments of Python that run the suite again in pyperf's processes.
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
    """Measure the chosen cases; print the table and write pyperf's JSON below the output folder.

    Raises HecktorError if `--only` matches no case.
    """
    options = runner.args
    chosen = [case for case in cases if fnmatch(case.name, options.only)]
    if not chosen:
        names = ", ".join(case.name for case in cases)
        raise HecktorError("--only", f"{options.only!r}, which matches no case", f"a pattern of {names}")
    benchmarks = list(_measure(runner, chosen))
    if options.worker:
        return
    timings = {case.name: timing_of(case, benchmark) for case, benchmark in benchmarks}
    sys.stdout.write("\n".join(markdown([HEADER, *table([case for case, _ in benchmarks], timings)])) + "\n")
    target = options.folder / f"{name}{'-quick' if options.quick else ''}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    pyperf.BenchmarkSuite([benchmark for _, benchmark in benchmarks]).dump(str(target), replace=True)
    sys.stdout.write(f"written to {target}\n")


def table(cases: Sequence[Benchmark], timings: Mapping[str, Timing]) -> Iterator[tuple[str, ...]]:
    """The cells of each case; a ratio is empty without a peer or if one of its times was not measured."""
    by_name = {case.name: case for case in cases}
    for case in cases:
        timing, peer = timings[case.name], by_name.get(case.against)
        ratio = None if peer is None else _ratio(case, peer, timings)
        yield (
            case.name,
            *map(shown_seconds, (min(timing.seconds), timing.median_s)),
            "" if timing.peak_mib is None else f"{timing.peak_mib:.0f}",
            "" if ratio is None else f"{ratio:.3g}",
            f"{case.against} (of both the start subtracted)" if case.less and peer else case.against,
            _aims(case, ratio, timing.peak_mib),
        )


def _ratio(case: Benchmark, peer: Benchmark, timings: Mapping[str, Timing]) -> float | None:
    """The ratio of two times, each without that of the same for fewer patients; None if the rest is below the noise."""
    if any(one.less and one.less not in timings for one in (case, peer)):
        return None
    ours, theirs = (
        timings[one.name].median_s - (timings[one.less].median_s if one.less else 0.0) for one in (case, peer)
    )
    return ours / theirs if min(ours, theirs) > 0 else None


def _aims(case: Benchmark, ratio: float | None, peak_mib: float | None) -> str:
    """The aims of the measured ratio and peak memory, each with held or not held."""
    aims = []
    for measured, most, unit in ((ratio, case.most, ""), (peak_mib, case.most_mib, " MiB")):
        if measured is not None and most is not None:
            aims.append(f"at most {most:.4g}{unit}: {'held' if measured <= most else '**not held**'}")
    return ", ".join(aims)


def timing_of(case: Benchmark, benchmark: pyperf.Benchmark) -> Timing:
    """Seconds and peak memory of a measured case; the memory of a command includes its children."""
    runs = [run.get_metadata() for run in benchmark.get_runs()]
    peaks = [run[name] for run in runs for name in ("command_max_rss", "mem_max_rss") if name in run]
    measured = bool(peaks) and not case.other_process
    return Timing(tuple(benchmark.get_values()), max(peaks) / 2**20 if measured else None)


def markdown(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """A header and rows as a padded Markdown table."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def shown_seconds(seconds: float) -> str:
    """Three figures with a unit: `12.3 s`, `4.56 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _measure(runner: pyperf.Runner, cases: Sequence[Benchmark]) -> Iterator[tuple[Benchmark, pyperf.Benchmark]]:
    for case in cases:
        if isinstance(case.work, tuple):
            benchmark = runner.bench_command(case.name, list(case.work))
        else:
            benchmark = runner.bench_time_func(case.name, partial(_time, case.work, {}))
        if benchmark is not None:
            yield case, benchmark


def _time(prepare: Callable[[], Call], prepared: dict[str, Call], loops: int) -> float:
    """Seconds of `loops` calls; the preparation is done once in a process."""
    if not prepared:
        prepared["call"] = prepare()
    begun = perf_counter()
    for _ in range(loops):
        prepared["call"]()
    return perf_counter() - begun


def _pass_options(command: list[str], options: Any) -> None:
    """Add a suite's own options to the command line of pyperf's workers."""
    command += ["--data", str(options.folder), "--only", options.only, *(["--quick"] if options.quick else [])]
    command += ["--inherit-environ", "OMP_NUM_THREADS,PYTHONPATH,HECKTOR_PYTHON"]
