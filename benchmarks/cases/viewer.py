"""Opening a case in the viewer: from the files to everything that the browser gets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.cases import limits
from benchmarks.cases.data import SIZES, BenchData
from benchmarks.harness.measurement import Measurement, Work
from evaluation.viewer.case import build_case
from evaluation.viewer.cohort import ViewerRequest, find_cohort


def measurements(data: BenchData) -> Iterator[Measurement]:
    """A case of each size with the reference and one team's mask."""
    for size in SIZES:
        group = f"opening one {size} case in the viewer"
        yield Measurement(group, "SimpleITK read alone", partial(_read, data, size))
        yield Measurement(
            group, "files for the browser", partial(_open, data, size), (f"{group}/SimpleITK read alone",)
        )


def _read(data: BenchData, size: str, _: Path) -> Work:
    return limits.read_with_simpleitk(
        [*limits.scans(data.input_dir(size)), data.reference(size), data.prediction(size)]
    )


def _open(data: BenchData, size: str, _: Path) -> Work:
    request = ViewerRequest(data.root / size, masks={"team": data.prediction(size).parent})
    return partial(build_case, find_cohort(request).cases[data.patient(size)])
