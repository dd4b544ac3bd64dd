"""`scripts/bench`: one patient of each size, the evaluation against reading, and rank and report of 40 teams."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import SimpleITK as sitk

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from benchmarks.data import FEW_CASES, SIZES, BenchData, make_data, rank_command
from benchmarks.suite import Benchmark, Call, run_suite, suite_options
from contract.editions import load_edition
from contract.images.volumes import find_single_image

# Bound of a whole body's resident memory, in MiB: 6 GB.
WHOLE_BODY_MIB: Final = 6e9 / 2**20
# The aim below is for two cores.
EVALUATION_WORKERS: Final = 2


def main(argv: Sequence[str]) -> int:
    """Make the data, measure, report."""
    runner, options = suite_options(("-m", "benchmarks"), argv)
    data = BenchData(options.folder / "data" / ("quick" if options.quick else "full"), options.quick)
    if not options.worker:
        for line in make_data(data):
            sys.stderr.write(f"data: {line}\n")
    with tempfile.TemporaryDirectory(dir=data.root) as scratch:
        run_suite(runner, "bench", list(cases(data, Path(scratch))))
    return 0


def cases(data: BenchData, scratch: Path) -> Iterator[Benchmark]:
    """All cases; a peer or limit comes before what is compared to it."""
    for size in SIZES:
        name = size.replace("_", " ")
        read = f"{name}: read CT and PET with SimpleITK"
        yield Benchmark(read, partial(read_images, scans(data.input_dir(size))))
        title = f"{name}: algorithm, {'one pass' if data.quick else 'all passes'}"
        yield Benchmark(title, _algorithm(data, size, scratch), read, most_mib=WHOLE_BODY_MIB)
    # Starting Python, the imports and the workers cost the same for any number of cases and are no part of the aim.
    few, many = (f"{count} cases: read all masks with SimpleITK" for count in (FEW_CASES, data.cases))
    scored = f"{FEW_CASES} cases: evaluation"
    yield Benchmark(few, partial(read_images, sorted(data.evaluation(FEW_CASES).rglob("*.mha"))))
    yield Benchmark(scored, _evaluation(data, FEW_CASES, scratch))
    yield Benchmark(many, partial(read_images, sorted(data.evaluation(data.cases).rglob("*.mha"))), less=few)
    evaluation = _evaluation(data, data.cases, scratch)
    yield Benchmark(f"{data.cases} cases: evaluation", evaluation, many, most=0.8, less=scored)
    challenge, command = "{} teams x {} cases".format(*data.challenge), (sys.executable, "-m", "hecktor")
    yield Benchmark(f"{challenge}: rank", (*command, *rank_command(data, scratch / "board"), "--task", "1"))
    page = str(scratch / "report.html")
    yield Benchmark(f"{challenge}: report", (*command, "report", "--results", str(data.board), "--output", page))


def scans(input_dir: Path) -> tuple[Path, Path]:
    """Paths of a patient's CT and PET."""
    inputs = load_edition().inputs
    return find_single_image(inputs["ct"].path_under(input_dir)), find_single_image(inputs["pet"].path_under(input_dir))


def _algorithm(data: BenchData, size: str, scratch: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "algorithm", "--task", "segmentation", "--model", str(DEFAULT_PACKAGE))
    folders = ("--input", str(data.input_dir(size)), "--output", str(scratch / size), "--device", "cpu")
    return (*command, *folders, *(("--passes", "1") if data.quick else ()))


def _evaluation(data: BenchData, cases: int, scratch: Path) -> tuple[str, ...]:
    folder = data.evaluation(cases)
    return (
        *(sys.executable, "-m", "evaluation", "--task", "segmentation", "--workers", str(EVALUATION_WORKERS)),
        *("--predictions", str(folder / "predictions"), "--ground-truth", str(folder / "ground_truth")),
        *("--output", str(scratch)),
    )


def read_images(paths: Sequence[Path]) -> Call:
    """Read images without any check, each into memory of its own: in that of an earlier one it takes half the time."""
    return lambda: [sitk.ReadImage(str(path)) for path in paths]
