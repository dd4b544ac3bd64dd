"""The evaluation of one case and of a cohort."""

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
from contract.tasks import SEGMENTATION
from evaluation.editions.profile import DEFAULT_EDITION, load_edition
from evaluation.editions.rules import SegmentationRules
from evaluation.inputs.submission import Answer
from evaluation.rows.mask import MaskPair, score_masks

COHORT: Final = "evaluation of a cohort"
READ: Final = (f"{COHORT}/SimpleITK read alone",)


def measurements(data: BenchData) -> Iterator[Measurement]:
    """One case at each size, then the cohort."""
    for size in SIZES:
        group = f"evaluation of one {size} case"
        yield Measurement(group, "SimpleITK read alone", partial(_read_pair, data, size))
        yield Measurement(group, "row", partial(_row, data, size), (f"{group}/SimpleITK read alone",))
    yield Measurement(COHORT, "SimpleITK read alone", partial(_read_all, data), repeats=PROCESS)
    for name, extra in (("process, no bootstraps", ("--bootstraps", "0")), ("process", ())):
        yield Measurement(COHORT, name, partial(_process, data, extra), READ, repeats=PROCESS)


def segmentation_rules() -> SegmentationRules:
    """The default edition's rules for masks."""
    rules = load_edition(DEFAULT_EDITION).profile(SEGMENTATION).rules
    if not isinstance(rules, SegmentationRules):
        raise TypeError("the segmentation task has other rules")
    return rules


def score_pair(reference: Path, prediction_dir: Path) -> object:
    """The evaluation's row of one pair of masks; the prediction is the only file of its folder."""
    return score_masks(MaskPair(reference, Answer("case", prediction_dir), segmentation_rules()))


def _read_pair(data: BenchData, size: str, _: Path) -> Work:
    return limits.read_with_simpleitk([data.reference(size), data.prediction(size)])


def _row(data: BenchData, size: str, scratch: Path) -> Work:
    relink(data.prediction(size), scratch / "case" / MASK_FILE_NAME)
    return partial(score_pair, data.reference(size), scratch / "case")


def _read_all(data: BenchData, _: Path) -> Work:
    return limits.read_with_simpleitk(sorted(data.evaluation.rglob("*.mha")))


def _process(data: BenchData, extra: tuple[str, ...], scratch: Path) -> Work:
    command = (
        sys.executable,
        "-m",
        "evaluation",
        "--task",
        SEGMENTATION.name,
        "--input",
        str(data.evaluation / "input"),
    )
    folders = ("--ground-truth", str(data.evaluation / "ground_truth"), "--output", str(scratch))
    return Command((*command, *folders, *extra))
