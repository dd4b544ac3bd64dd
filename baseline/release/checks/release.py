"""Check a whole release before any training data are written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from baseline.cache import cache, each, key_of, load_cached
from baseline.release.cases import Release, ReleaseCase
from baseline.release.checks.images import check_images
from baseline.release.problems import Problem, as_json, in_order, patients_with_errors
from contract.errors import InputError

# Increment when the checks change, so that cached results of earlier checks are not reused.
_CHECKS_VERSION = 3


def find_problems(release: Release, checks: Path, jobs: int) -> tuple[Problem, ...]:
    """All problems of folders, tables and images, in order.

    Args:
        release: as returned by `read_release`.
        checks: folder that caches the problems of each patient's images; unchanged images are not read again.
        jobs: processes.
    """
    problems: list[Problem] = list(release.problems)
    waiting = []
    for case in release.cases:
        cached = load_cached(checks / f"{case.patient_id}.json", _key(case))
        if cached is None:
            waiting.append(case)
        else:
            problems += [Problem(**record) for record in cached]
    work = partial(_check_case, root=release.root, checks=checks)
    for of_case in each(work, waiting, jobs, "check"):
        problems += of_case
    return in_order(problems)


def sound_cases(release: Release, problems: Sequence[Problem], keep_going: bool) -> tuple[ReleaseCase, ...]:
    """Cases to train on: all of them, or with `keep_going` those without an error.

    Raises:
        InputError: there are errors and `keep_going` is False, an error concerns no single patient, or no case is left.
    """
    errors = sum(problem.is_error for problem in problems)
    if errors and not keep_going:
        raise InputError(release.root.name, f"{errors} errors", "none (--keep-going excludes those cases)")
    common = next((problem for problem in problems if problem.is_error and not problem.patient_id), None)
    if common is not None:
        raise InputError(common.file, common.found, f"{common.expected} (no single case can be excluded for it)")
    excluded = set(patients_with_errors(problems))
    cases = tuple(case for case in release.cases if case.patient_id not in excluded)
    if not cases:
        raise InputError(release.root.name, "every case has an error", "at least one sound case")
    return cases


def _key(case: ReleaseCase) -> str:
    files = (case.ct, case.pet, case.mask, case.planning_ct, case.dose)
    return key_of(files, {"version": _CHECKS_VERSION, "ct": str(case.ct), "mask": str(case.mask)})


def _check_case(case: ReleaseCase, root: Path, checks: Path) -> tuple[Problem, ...]:
    problems = check_images(case, root)
    cache(checks / f"{case.patient_id}.json", _key(case), as_json(problems))
    return problems
