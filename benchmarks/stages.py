"""`scripts/bench`: one patient of each size, the evaluation against reading, and rank and report of 40 teams."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import SimpleITK as sitk

from algorithm.network.resident import DEFAULT_PACKAGE
from benchmarks.data import SIZES, BenchData, make_data, rank_command, relink
from benchmarks.suite import Benchmark, Call, run_suite, suite_options
from contract.editions import DEFAULT_EDITION, load_edition
from contract.images.volumes import find_single_image
from contract.platform import MASK_FILE_NAME
from evaluation.editions.profile import load_profile
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.metrics.rules import MaskRules
from evaluation.rows.comparison import MaskPair, compare_pair


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
        yield Benchmark(f"{name}: read CT and PET with SimpleITK", partial(read_images, scans(data.input_dir(size))))
        passes = "one pass" if data.quick else "all passes"
        read = f"{name}: read CT and PET with SimpleITK"
        yield Benchmark(f"{name}: algorithm, {passes}", _algorithm(data, size, scratch), read)
        pair = (data.reference(size), data.prediction(size))
        yield Benchmark(f"{name}: read two masks with SimpleITK", partial(read_images, pair))
        yield Benchmark(
            f"{name}: row of the evaluation", partial(_row, data, size), f"{name}: read two masks with SimpleITK"
        )
    masks = f"{data.cases} cases: read all masks with SimpleITK"
    yield Benchmark(masks, partial(read_images, sorted(data.evaluation.rglob("*.mha"))))
    yield Benchmark(f"{data.cases} cases: evaluation", _evaluation(data, scratch), masks, most=0.8)
    challenge, command = "{} teams x {} cases".format(*data.challenge), (sys.executable, "-m", "hecktor")
    yield Benchmark(f"{challenge}: rank", (*command, *rank_command(data, scratch / "board"), "--task", "1"))
    page = str(scratch / "report.html")
    yield Benchmark(f"{challenge}: report", (*command, "report", "--results", str(data.board), "--output", page))


def mask_rules() -> MaskRules:
    """The default edition's rules for masks."""
    (rules,) = (answer.rules for answer in load_profile(DEFAULT_EDITION).task("segmentation").answers.values())
    if not isinstance(rules, MaskRules):
        raise TypeError("segmentation has other rules")
    return rules


def score_pair(reference: Path, prediction_dir: Path) -> object:
    """The evaluation's row of one pair of masks; the prediction is the only file of its folder."""
    return compare_pair(MaskPair(reference, SubmittedAnswer("case", prediction_dir), mask_rules()))


def scans(input_dir: Path) -> tuple[Path, Path]:
    """Paths of a patient's CT and PET."""
    inputs = load_edition().inputs
    return find_single_image(inputs["ct"].path_under(input_dir)), find_single_image(inputs["pet"].path_under(input_dir))


def _algorithm(data: BenchData, size: str, scratch: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "algorithm", "--task", "segmentation", "--model", str(DEFAULT_PACKAGE))
    folders = ("--input", str(data.input_dir(size)), "--output", str(scratch / size), "--device", "cpu")
    return (*command, *folders, *(("--passes", "1") if data.quick else ()))


def _evaluation(data: BenchData, scratch: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "evaluation", "--task", "segmentation")
    folders = (data.evaluation / "predictions", data.evaluation / "ground_truth", scratch)
    options = zip(("--predictions", "--ground-truth", "--output"), map(str, folders), strict=True)
    return (*command, *(word for pair in options for word in pair))


def read_images(paths: Sequence[Path]) -> Call:
    """Read images without any check."""
    return lambda: [sitk.ReadImage(str(path)) for path in paths]


def _row(data: BenchData, size: str) -> Call:
    folder = data.root / size / "submitted"
    relink(data.prediction(size), folder / MASK_FILE_NAME)
    return partial(score_pair, data.reference(size), folder)
