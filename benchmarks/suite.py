"""`scripts/bench`: time cases with pyperf, each in its own processes, and print one table with ratios to a peer.

The cases are one patient of each size, the evaluation compared with reading the images, and rank and report of 40
teams. `peers` times its own cases with the same functions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyperf
import SimpleITK as sitk

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from benchmarks.data import FEW_CASES, SIZES, BenchData, build_rank_command, make_data
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.volumes import find_single_image

HEADER: Final = ("measurement", "min", "median", "peak MiB", "ratio", "to", "aim")

Call = Callable[[], object]


# Resident memory of a whole body must stay below 6 GB.
MAX_MIB: Final = 6e9 / 2**20
# The aim for the evaluation is for two cores.
EVALUATION_WORKERS: Final = 2


@dataclass(frozen=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: Name, which is unique in its suite.
        work: A function that does the untimed preparation and returns the call to time, or a command line.
        peer: Name of an earlier case with which the time is compared.
        max_ratio: Aim: the ratio of times is at most this number.
        max_mib: Aim: the peak memory is at most this number of MiB.
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
    add("--quick", action="store_true", help="run each case once on small inputs, as a test")
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
            f"{case.peer} (both without the start)" if case.baseline and peer else case.peer,
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
    """Format the aims of the measured ratio and peak memory, and whether they are met."""
    aims = []
    for measured, maximum, unit in ((ratio, case.max_ratio, ""), (peak_mib, case.max_mib, " MiB")):
        if measured is not None and maximum is not None:
            aims.append(f"at most {maximum:.4g}{unit}: {'met' if measured <= maximum else '**not met**'}")
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


def main(argv: Sequence[str]) -> int:
    """Make the data, measure, and report."""
    runner, options = parse_suite_options(("-m", "benchmarks"), argv)
    data = BenchData(options.folder / "data" / ("quick" if options.quick else "full"), options.quick)
    if not options.worker:
        for line in make_data(data):
            sys.stderr.write(f"data: {line}\n")
    with tempfile.TemporaryDirectory(dir=data.root) as scratch:
        run_suite(runner, "bench", list(make_benchmarks(data, Path(scratch))))
    return 0


def make_benchmarks(data: BenchData, scratch: Path) -> Iterator[Benchmark]:
    """Yield the cases of `scripts/bench`; a peer comes before the cases that are compared with it."""
    for size in SIZES:
        name = size.replace("_", " ")
        read = f"{name}: read CT and PET with SimpleITK"
        yield Benchmark(read, partial(read_images, find_scans(data.input_dir(size))))
        title = f"{name}: algorithm, {'one pass' if data.quick else 'all passes'}"
        yield Benchmark(title, _build_algorithm_command(data, size, scratch), read, max_mib=MAX_MIB)
    # The aim excludes the start of Python, imports and workers, which takes the same time for any number of cases.
    read_few, read_many = (f"{count} cases: read all masks with SimpleITK" for count in (FEW_CASES, data.cases))
    evaluate_few = f"{FEW_CASES} cases: evaluation"
    yield Benchmark(read_few, partial(read_images, sorted(data.evaluation(FEW_CASES).rglob("*.mha"))))
    yield Benchmark(evaluate_few, _build_evaluation_command(data, FEW_CASES, scratch))
    all_masks = sorted(data.evaluation(data.cases).rglob("*.mha"))
    yield Benchmark(read_many, partial(read_images, all_masks), baseline=read_few)
    evaluation = _build_evaluation_command(data, data.cases, scratch)
    yield Benchmark(f"{data.cases} cases: evaluation", evaluation, read_many, max_ratio=0.8, baseline=evaluate_few)
    challenge = "{} teams x {} cases".format(*data.challenge)
    command = (sys.executable, "-m", "hecktor")
    yield Benchmark(f"{challenge}: rank", (*command, *build_rank_command(data, scratch / "board"), "--task", "1"))
    page = str(scratch / "report.html")
    yield Benchmark(f"{challenge}: report", (*command, "report", "--results", str(data.board), "--output", page))


def find_scans(input_dir: Path) -> tuple[Path, Path]:
    """Find the paths of a patient's CT and PET."""
    inputs = load_edition().inputs
    return find_single_image(inputs["ct"].path_under(input_dir)), find_single_image(inputs["pet"].path_under(input_dir))


def _build_algorithm_command(data: BenchData, size: str, scratch: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "algorithm", "--task", "segmentation", "--model", str(DEFAULT_PACKAGE))
    folders = ("--input", str(data.input_dir(size)), "--output", str(scratch / size), "--device", "cpu")
    return (*command, *folders, *(("--passes", "1") if data.quick else ()))


def _build_evaluation_command(data: BenchData, cases: int, scratch: Path) -> tuple[str, ...]:
    folder = data.evaluation(cases)
    return (
        *(sys.executable, "-m", "evaluation", "--task", "segmentation", "--workers", str(EVALUATION_WORKERS)),
        *("--predictions", str(folder / "predictions"), "--ground-truth", str(folder / "ground_truth")),
        *("--output", str(scratch)),
    )


def read_images(paths: Sequence[Path]) -> Call:
    """Prepare a call that reads images without checks.

    The call keeps all images, since reading into the memory of an earlier image takes half the time.
    """
    return lambda: [sitk.ReadImage(str(path)) for path in paths]
