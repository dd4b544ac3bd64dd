"""The evaluation of one case and of a cohort, and opening a case in the viewer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import limits
from benchmarks.cases.data import SIZES, BenchData, relink
from benchmarks.harness.measurement import PROCESS, Measurement, Work
from benchmarks.harness.timing import Command
from contract.platform import MASK_FILE_NAME
from evaluation.editions import DEFAULT_PROFILE
from evaluation.editions.profile import load_profile
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.metrics.rules import MaskRules
from evaluation.rows.comparison import MaskPair, compare_pair
from evaluation.viewer.case import build_case
from evaluation.viewer.cohort import ViewerRequest, find_cohort

TASK: Final = "segmentation"
COHORT: Final = "evaluation of a cohort"
READ: Final = (f"{COHORT}/SimpleITK read alone",)


def measurements(data: BenchData) -> Iterator[Measurement]:
    """One case at each size, then the cohort, then the viewer."""
    for size in SIZES:
        group = f"evaluation of one {size} case"
        yield Measurement(group, "SimpleITK read alone", partial(_read_pair, data, size))
        yield Measurement(group, "row", partial(_row, data, size), (f"{group}/SimpleITK read alone",))
    yield Measurement(COHORT, "SimpleITK read alone", partial(_read_all, data), repeats=PROCESS)
    for name, extra in (("process, no bootstraps", ("--bootstraps", "0")), ("process", ())):
        yield Measurement(COHORT, name, partial(_process, data, extra), READ, repeats=PROCESS)
    for size in SIZES:
        group = f"opening one {size} case in the viewer"
        yield Measurement(group, "SimpleITK read alone", partial(_read_case, data, size))
        yield Measurement(
            group, "files for the browser", partial(_open, data, size), (f"{group}/SimpleITK read alone",)
        )


def mask_rules() -> MaskRules:
    """The default edition's rules for masks."""
    (rules,) = (answer.rules for answer in load_profile(DEFAULT_PROFILE).task(TASK).answers.values())
    if not isinstance(rules, MaskRules):
        raise TypeError(f"{TASK} has other rules")
    return rules


def score_pair(reference: Path, prediction_dir: Path) -> object:
    """The evaluation's row of one pair of masks; the prediction is the only file of its folder."""
    return compare_pair(MaskPair(reference, SubmittedAnswer("case", prediction_dir), mask_rules()))


def _read_pair(data: BenchData, size: str, _: Path) -> Work:
    return limits.read_with_simpleitk([data.reference(size), data.prediction(size)])


def _row(data: BenchData, size: str, scratch: Path) -> Work:
    relink(data.prediction(size), scratch / "case" / MASK_FILE_NAME)
    return partial(score_pair, data.reference(size), scratch / "case")


def _read_case(data: BenchData, size: str, _: Path) -> Work:
    return limits.read_with_simpleitk(
        [*limits.scans(data.input_dir(size)), data.reference(size), data.prediction(size)]
    )


def _open(data: BenchData, size: str, _: Path) -> Work:
    request = ViewerRequest(data.root / size, masks={"team": data.prediction(size).parent})
    return partial(build_case, find_cohort(request).cases[data.patient(size)])


def _read_all(data: BenchData, _: Path) -> Work:
    return limits.read_with_simpleitk(sorted(data.evaluation.rglob("*.mha")))


def _process(data: BenchData, extra: tuple[str, ...], scratch: Path) -> Work:
    command = (
        sys.executable,
        "-m",
        "evaluation",
        "--task",
        TASK,
        "--input",
        str(data.evaluation / "input"),
    )
    folders = ("--ground-truth", str(data.evaluation / "ground_truth"), "--output", str(scratch))
    return Command((*command, *folders, *extra))
