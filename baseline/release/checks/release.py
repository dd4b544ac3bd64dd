"""Check a whole release before anything is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from baseline.cache import each, keep, key_of, read_kept
from baseline.release.cases import Release, ReleaseCase
from baseline.release.checks.images import check_images
from baseline.release.problems import Problem, as_json, in_order, patients_with_errors
from contract.errors import InputError

# Raised when the checks change, so that what earlier ones found is not taken for theirs.
_CHECKS_VERSION = 3


def check_release(release: Release, kept: Path, jobs: int) -> tuple[Problem, ...]:
    """All problems of a release, those of folders and tables and those of images, in order.

    Args:
        release: as it was read.
        kept: folder for what was found in each patient's images; unchanged images are not read again.
        jobs: processes.
    """
    found: list[Problem] = list(release.problems)
    waiting = []
    for case in release.cases:
        before = read_kept(kept / f"{case.patient_id}.json", _key(case))
        if before is None:
            waiting.append(case)
        else:
            found += [Problem(**record) for record in before]
    work = partial(_check_and_keep, root=release.root, kept=kept)
    for problems in each(work, waiting, jobs, "check"):
        found += problems
    return in_order(found)


def sound_cases(release: Release, problems: Sequence[Problem], keep_going: bool) -> tuple[ReleaseCase, ...]:
    """The cases to go on with: all of them, or with `keep_going` those without an error.

    Raises:
        InputError: there are errors and `keep_going` is False, an error is not one patient's, or no case is left.
    """
    errors = sum(problem.is_error for problem in problems)
    if errors and not keep_going:
        raise InputError(release.root.name, f"{errors} errors", "none (--keep-going leaves those cases out)")
    common = [problem for problem in problems if problem.is_error and not problem.patient_id]
    if common:
        first = common[0]
        raise InputError(f"{first.file}", f"{first.found}", f"{first.expected} (no case to leave out for it)")
    left_out = set(patients_with_errors(problems))
    cases = tuple(case for case in release.cases if case.patient_id not in left_out)
    if not cases:
        raise InputError(release.root.name, "every case has an error", "one that has none")
    return cases


def _key(case: ReleaseCase) -> str:
    files = (case.ct, case.pet, case.mask, case.planning_ct, case.dose)
    return key_of(files, {"version": _CHECKS_VERSION, "ct": str(case.ct), "mask": str(case.mask)})


def _check_and_keep(case: ReleaseCase, root: Path, kept: Path) -> tuple[Problem, ...]:
    problems = check_images(case, root)
    keep(kept / f"{case.patient_id}.json", _key(case), as_json(problems))
    return problems
