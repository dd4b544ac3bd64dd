"""The first step of training: check the release, deal the splits, write the data set, and say what was done."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from baseline.cache import key_of
from baseline.release.cases import Release, ReleaseCase, read_release
from baseline.release.checks.release import check_release, sound_cases
from baseline.release.data_set import DataSet, prepare
from baseline.release.problems import Problem, patients_with_errors, write_problems
from baseline.release.splits import kept_splits
from baseline.work import Work
from contract.files import write_json

_PACKAGES: Final = ("hecktor", "numpy", "SimpleITK", "torch", "nnunetv2")


@dataclass(frozen=True)
class PrepareOptions:
    """What decides the prepared data: the release, the network's spacing (x, y, z), the splits, what is left out."""

    release: str
    spacing_mm: tuple[float, float, float] = (3.0, 3.0, 3.0)
    folds: int = 5
    seed: int = 0
    keep_going: bool = False


@dataclass(frozen=True)
class Checked:
    """A release and all that is wrong with it, errors first."""

    release: Release
    problems: tuple[Problem, ...]
    seconds: float


def check(options: PrepareOptions, work: Work, jobs: int) -> Checked:
    """Check the release and write `problems.csv` and `problems.json`; nothing else is made yet."""
    began = time.perf_counter()
    release = read_release(Path(options.release))
    problems = check_release(release, work.checks, jobs)
    write_problems(work.root, problems)
    return Checked(release, problems, time.perf_counter() - began)


def prepare_release(options: PrepareOptions, checked: Checked, work: Work, jobs: int) -> dict[str, Any]:
    """Deal the splits and write nnU-Net's raw data set of all sound cases; returns the record `prepare.json`.

    Raises:
        InputError: the release has errors and `options.keep_going` is False; or the kept splits are of others.
    """
    began = time.perf_counter()
    cases = sound_cases(checked.release, checked.problems, options.keep_going)
    kept_splits(work.splits_json, cases, options.folds, options.seed)
    data = prepare(cases, work.folders.raw, options.spacing_mm, jobs)
    work.write_cases(cases)
    seconds = {"check": round(checked.seconds, 1), "prepare": round(time.perf_counter() - began, 1)}
    record = _record(options, checked, cases, data) | {"seconds": seconds}
    write_json(work.prepare_json, record)
    return record


def summary(record: dict[str, Any]) -> str:
    """What was prepared, in a few lines, with every case that was left out by name."""
    counts = record["counts"]
    patients = (
        f"{counts['patients']} patients of {len(counts['centres'])} centres: {counts['with_mask']} with a mask, "
        f"{counts['with_rfs']} with RFS ({counts['relapses']} relapses), {counts['with_hpv']} with HPV status "
        f"({counts['hpv_negative']} negative), {counts['with_dose']} with RT dose; {counts['written']} written now"
    )
    lines = [patients]
    if record["left_out"]:
        lines.append(f"left out for their errors: {', '.join(record['left_out'])}")
    lines += [
        f"{patient}: {share:.1%} of the reference mask within the region that inference looks at, expected all of it"
        for patient, share in record["mask_outside_region"].items()
    ]
    return "\n".join(lines)


def _record(options: PrepareOptions, checked: Checked, cases: Sequence[ReleaseCase], data: DataSet) -> dict[str, Any]:
    return {
        "options": asdict(options),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "counts": {
            "patients": len(cases),
            "centres": dict(sorted(Counter(case.centre for case in cases).items())),
            "with_mask": sum(case.mask is not None for case in cases),
            "with_rfs": sum(case.rfs_days is not None for case in cases),
            "relapses": sum(case.relapse is True for case in cases),
            "with_hpv": sum(case.hpv is not None for case in cases),
            "hpv_negative": sum(case.hpv is False for case in cases),
            "with_dose": sum(case.dose is not None for case in cases),
            "errors": sum(problem.is_error for problem in checked.problems),
            "warnings": sum(not problem.is_error for problem in checked.problems),
            "written": data.written,
        },
        "left_out": list(patients_with_errors(checked.problems)),
        "removed": list(data.removed),
        "mask_outside_region": {
            one.patient_id: one.reference_inside
            for one in data.prepared
            if one.reference_inside is not None and one.reference_inside < 1
        },
        "mended": {one.patient_id: list(one.notices) for one in data.prepared if one.notices},
        "data": key_of((), {one.patient_id: one.key for one in data.prepared}),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
