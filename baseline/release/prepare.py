"""First steps of a training: check the release, make the splits, write the data set, record both."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from baseline.cache import Sources, cache, digest, keys_of, load_cached, map_items
from baseline.preparation import Preparation, PrepareOptions, resolve_spacing
from baseline.release.cases import Release, ReleaseCase, head_answers, outcome_counts, read_release, write_cases
from baseline.release.checks import check_images, with_suv_factors
from baseline.release.problems import as_json, in_order, patients_with_errors, write_problems
from baseline.release.splits import load_or_make_splits
from baseline.work import WorkFolders
from contract.documents import find_version
from contract.editions import AnswerSpec, Edition, load_edition
from contract.errors import InputError
from contract.io.files import write_json
from contract.release.tables import Problem
from evaluation.editions.profile import build_profile

if TYPE_CHECKING:
    from baseline.release.data_set import DataSet

# Increment when the checks change, so that cached results of earlier checks are not reused.
_CHECKS_VERSION: Final = 8
_PACKAGES: Final = ("hecktor", "numpy", "SimpleITK", "torch", "nnunetv2")


@dataclass(frozen=True)
class CheckedRelease:
    """A release and all its problems, errors first.

    `has_image_checks` is False if the images were not read because of an error that no single case has.
    """

    release: Release
    problems: tuple[Problem, ...]
    seconds: float
    has_image_checks: bool = True

    @property
    def has_errors(self) -> bool:
        return any(problem.is_error for problem in self.problems)


def check_release(options: PrepareOptions, work: WorkFolders, jobs: int) -> CheckedRelease:
    """Check the release and write `problems.csv` and `problems.json`.

    An error of the whole release, such as a missing table, ends the check before images are read, which takes minutes.
    """
    start = time.perf_counter()
    edition = options.training_edition()
    build_profile(load_edition(options.edition))  # a faulty one would end the training in its report
    release = read_release(Path(options.release), edition, options.allow_missing)
    _check_allowed(options.allow_missing, release, edition)
    if options.suv_factors is not None:
        release = with_suv_factors(release, Path(options.suv_factors))
    is_usable = not any(problem.is_error and not problem.patient_id for problem in release.problems)
    problems = find_problems(release, work, jobs, options.estimate_suv) if is_usable else in_order(release.problems)
    write_problems(work.problems_json.parent, problems)
    return CheckedRelease(release, problems, time.perf_counter() - start, is_usable)


def _check_allowed(allowed: Sequence[str], release: Release, edition: Edition) -> None:
    """Raise InputError for an allowed answer that the edition does not have, or whose outcome is known."""
    answers = {answer.name: answer for answer in head_answers(edition)}
    for name in allowed:
        if name not in answers:
            raise InputError("--allow-missing", f"found {name}", f"one of {', '.join(answers)}")
        known = sum(case.has(answers[name]) for case in release.cases)
        if known:
            raise InputError("--allow-missing", f"found {name}, which {known} patients have", "a missing outcome")


def find_problems(release: Release, work: WorkFolders, jobs: int, estimate_suv: bool = False) -> tuple[Problem, ...]:
    """All problems of folders, tables and images, in order.

    The folder `checks` caches the problems of each patient's images; unchanged images are not checked again.
    """
    problems: list[Problem] = list(release.problems)
    sources = {case.patient_id: _sources(case, release.root, estimate_suv) for case in release.cases}
    keys, waiting = keys_of(work, sources, release.given), []
    for case in release.cases:
        cached = load_cached(work.checks / f"{case.patient_id}.json", keys[case.patient_id])
        if cached is None:
            waiting.append(case)
        else:
            problems += [Problem(**record) for record in cached]
    check = partial(_check_case, root=release.root, checks=work.checks, estimate_suv=estimate_suv)
    for of_case in map_items(check, [(case, keys[case.patient_id]) for case in waiting], jobs, "check"):
        problems += of_case
    return in_order(problems)


def _sources(case: ReleaseCase, root: Path, estimate_suv: bool) -> Sources:
    """The findings from which the problems of a patient's images are made; files are named as they lie below `root`."""
    files = (*case.files, case.mask, case.planning_ct, case.dose)
    names = [None if path is None else path.relative_to(root).as_posix() for path in files]
    options = {"suv_factor": case.suv_factor, "estimate_suv": estimate_suv}
    return files, {"version": _CHECKS_VERSION, "names": names, **options}


def _check_case(item: tuple[ReleaseCase, str], root: Path, checks: Path, estimate_suv: bool) -> tuple[Problem, ...]:
    case, key = item
    problems = check_images(case, root, estimate_suv)
    cache(checks / f"{case.patient_id}.json", key, as_json(problems))
    return problems


def sound_cases(release: Release, problems: Sequence[Problem], keep_going: bool) -> tuple[ReleaseCase, ...]:
    """Cases to train on: all of them, or with `keep_going` those without an error."""
    errors = sum(problem.is_error for problem in problems)
    if errors and not keep_going:
        raise InputError(
            release.root.name, f"{errors} error{'s' * (errors > 1)}", "none (--keep-going excludes those cases)"
        )
    common = next((problem for problem in problems if problem.is_error and not problem.patient_id), None)
    if common is not None:
        raise InputError(common.file, common.found, f"{common.expected} (no single case can be excluded for it)")
    excluded = set(patients_with_errors(problems))
    cases = tuple(case for case in release.cases if case.patient_id not in excluded)
    if not cases:
        raise InputError(release.root.name, "every case has an error", "at least one sound case")
    return cases


def prepare_release(options: PrepareOptions, checked: CheckedRelease, work: WorkFolders, jobs: int) -> Preparation:
    """Make the splits and write nnU-Net's raw data set of all sound cases; returns the content of `prepare.json`.

    Raises:
        InputError: the release has errors and `options.keep_going` is False, or the stored splits are of others.
        HecktorError: another spacing than that of the prepared images, and a plan has trained networks.
    """
    from baseline.release.data_set import write_data_set

    start = time.perf_counter()
    spacing_mm = resolve_spacing(work, options)
    options = replace(options, spacing_mm=spacing_mm, release=str(Path(options.release).absolute()))
    answers = head_answers(options.training_edition())
    cases = sound_cases(checked.release, checked.problems, options.keep_going)
    load_or_make_splits(work.splits_json, cases, answers, options.folds, options.seed)
    data = write_data_set(cases, work, spacing_mm, jobs)
    write_cases(work, cases)
    seconds = {"check": round(checked.seconds, 1), "prepare": round(time.perf_counter() - start, 1)}
    preparation = _preparation(options, checked, cases, answers, data).model_copy(update={"seconds": seconds})
    write_json(work.prepare_json, preparation.model_dump(mode="json"))
    return preparation


def summary(preparation: Preparation) -> str:
    """A few lines for the console: counts, excluded cases by name, masks outside the segmented region."""
    numbers = preparation.counts.items()
    counts = {name.replace("_", " "): value for name, value in numbers if isinstance(value, int)}
    centres = preparation.counts["centres"]
    lines = [
        f"{counts.pop('patients')} patients of {len(centres) if isinstance(centres, dict) else 0} centres: "
        + ", ".join(f"{value} {name}" for name, value in counts.items())
    ]
    if preparation.left_out:
        lines.append(f"excluded because of errors: {', '.join(preparation.left_out)}")
    lines += [
        f"{patient}: {share:.1%} of the reference mask lies in the region that inference segments, expected all of it"
        for patient, share in preparation.mask_outside_region.items()
    ]
    return "\n".join(lines)


def _preparation(
    options: PrepareOptions,
    checked: CheckedRelease,
    cases: Sequence[ReleaseCase],
    answers: Sequence[AnswerSpec],
    data: DataSet,
) -> Preparation:
    versions = {name: find_version(name, "not installed") for name in _PACKAGES}
    from baseline.release.data_set import smallest_lesions

    return Preparation(
        options=options,
        versions={"python": platform.python_version(), **versions},
        counts={
            "patients": len(cases),
            "centres": dict(sorted(Counter(case.centre for case in cases).items())),
            "with_mask": sum(case.mask is not None for case in cases),
            **{name: count for answer in answers for name, count in outcome_counts(answer, cases).items()},
            "with_dose": sum(case.dose is not None for case in cases),
            "errors": sum(problem.is_error for problem in checked.problems),
            "warnings": sum(not problem.is_error for problem in checked.problems),
            "written": data.written,
        },
        left_out=patients_with_errors(checked.problems),
        removed=data.removed,
        mask_outside_region={
            one.patient_id: one.reference_inside
            for one in data.prepared
            if one.reference_inside is not None and one.reference_inside < 1
        },
        corrections={one.patient_id: one.notices for one in data.prepared if one.notices},
        smallest_lesions=smallest_lesions(data.prepared),
        data=digest({one.patient_id: one.key for one in data.prepared}),
        own_edition=load_edition(options.edition).content,
    )
