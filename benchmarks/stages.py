"""`scripts/bench`: one patient of each size, the evaluation compared with reading, rank and report of 40 teams."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import SimpleITK as sitk

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from benchmarks.data import FEW_CASES, SIZES, BenchData, build_rank_command, make_data
from benchmarks.suite import Benchmark, Call, parse_suite_options, run_suite
from contract.editions import load_edition
from contract.images.volumes import find_single_image

# Resident memory of a whole body must stay below 6 GB.
MAX_MIB: Final = 6e9 / 2**20
# The aim of the evaluation is for two cores.
EVALUATION_WORKERS: Final = 2


def main(argv: Sequence[str]) -> int:
    """Make the data, measure, and report."""
    runner, options = parse_suite_options(("-m", "benchmarks"), argv)
    data = BenchData(options.folder / "data" / ("quick" if options.quick else "full"), options.quick)
    if not options.worker:
        for line in make_data(data):
            sys.stderr.write(f"data: {line}\n")
    with tempfile.TemporaryDirectory(dir=data.root) as scratch:
        run_suite(runner, "bench", list(cases(data, Path(scratch))))
    return 0


def cases(data: BenchData, scratch: Path) -> Iterator[Benchmark]:
    """Yield all cases; a peer comes before the cases that are compared with it."""
    for size in SIZES:
        name = size.replace("_", " ")
        read = f"{name}: read CT and PET with SimpleITK"
        yield Benchmark(read, partial(read_images, find_scans(data.input_dir(size))))
        title = f"{name}: algorithm, {'one pass' if data.quick else 'all passes'}"
        yield Benchmark(title, _build_algorithm_command(data, size, scratch), read, max_mib=MAX_MIB)
    # The start of Python, imports and workers takes the same time for any number of cases and is not part of the aim.
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

    All images stay in memory, since reading into the memory of an earlier image takes half the time.
    """
    return lambda: [sitk.ReadImage(str(path)) for path in paths]
