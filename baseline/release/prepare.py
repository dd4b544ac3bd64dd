"""First steps of a training: check the release, report its problems, make the splits, and write the data set."""

from __future__ import annotations

import platform
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from baseline.cache import Sources, compute_digest, compute_keys, load_cached, map_items, store_cached
from baseline.release.cases import Release, ReleaseCase, count_outcomes, list_head_specs, read_release, write_cases
from baseline.release.checks import check_images, with_suv_factors
from baseline.release.splits import load_or_make_splits
from baseline.work import Preparation, PrepareOptions, WorkFolders, resolve_spacing
from contract.documents import find_version
from contract.editions import AnswerSpec, Edition, load_edition
from contract.errors import InputError
from contract.io.files import write_json, write_text
from contract.io.tables import format_csv
from contract.patient import format_names
from contract.release.tables import ERROR, WARNING, Problem
from evaluation.editions.profile import build_profile

if TYPE_CHECKING:
    from baseline.release.data_set import DataSet

# Increment when the checks change, so that cached results of earlier checks are not reused.
_CHECKS_VERSION: Final = 8
# Width of the table of problems on the console, in characters.
_WIDTH: Final = 118
_PACKAGES: Final = ("hecktor", "numpy", "SimpleITK", "torch", "nnunetv2")


@dataclass(frozen=True)
class CheckedRelease:
    """A release and all its problems, errors first.

    `has_image_checks` is False if the images were not read because of an error that concerns the whole release.
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

    An error of the whole release, such as a missing table, ends the check before the images are read, because reading
    them takes minutes.
    """
    start = time.perf_counter()
    edition = options.training_edition()
    build_profile(load_edition(options.edition))  # faulty scoring rules would end the training in its report
    release = read_release(Path(options.release), edition, options.allow_missing)
    _check_allowed(options.allow_missing, release, edition)
    if options.suv_factors is not None:
        release = with_suv_factors(release, Path(options.suv_factors))
    is_usable = not any(problem.is_error and not problem.patient_id for problem in release.problems)
    problems = (
        find_problems(release, work, jobs, options.estimate_suv) if is_usable else sort_problems(release.problems)
    )
    write_problems(work.problems_json.parent, problems)
    return CheckedRelease(release, problems, time.perf_counter() - start, is_usable)


def _check_allowed(allowed: Sequence[str], release: Release, edition: Edition) -> None:
    """Check allowed answers; raise `InputError` if an answer is not in the edition, or if its outcome is known."""
    answers = {answer.name: answer for answer in list_head_specs(edition)}
    for name in allowed:
        if name not in answers:
            raise InputError("--allow-missing", f"found {name}", f"one of {', '.join(answers)}")
        known = sum(case.has_outcome(answers[name]) for case in release.cases)
        if known:
            raise InputError("--allow-missing", f"found {name}, which {known} patients have", "a missing outcome")


def find_problems(release: Release, work: WorkFolders, jobs: int, estimate_suv: bool = False) -> tuple[Problem, ...]:
    """Find all problems of folders, tables and images, in order.

    The folder `checks` caches the problems of each patient's images; unchanged images are not checked again.
    """
    problems: list[Problem] = list(release.problems)
    sources = {case.patient_id: _list_sources(case, release.root, estimate_suv) for case in release.cases}
    keys, waiting = compute_keys(work, sources, release.folder), []
    for case in release.cases:
        cached = load_cached(work.checks / f"{case.patient_id}.json", keys[case.patient_id])
        if cached is None:
            waiting.append(case)
        else:
            problems += [Problem(**record) for record in cached]
    check = partial(_check_case, root=release.root, checks=work.checks, estimate_suv=estimate_suv)
    for case_problems in map_items(check, [(case, keys[case.patient_id]) for case in waiting], jobs, "check"):
        problems += case_problems
    return sort_problems(problems)


def _list_sources(case: ReleaseCase, root: Path, estimate_suv: bool) -> Sources:
    """List the inputs of the check of a patient's images; file names are relative to `root`."""
    files = (*case.files, case.mask, case.planning_ct, case.dose)
    names = [None if path is None else path.relative_to(root).as_posix() for path in files]
    options = {"suv_factor": case.suv_factor, "estimate_suv": estimate_suv}
    return files, {"version": _CHECKS_VERSION, "names": names, **options}


def _check_case(item: tuple[ReleaseCase, str], root: Path, checks: Path, estimate_suv: bool) -> tuple[Problem, ...]:
    case, key = item
    problems = check_images(case, root, estimate_suv)
    store_cached(checks / f"{case.patient_id}.json", key, as_json(problems))
    return problems


def select_sound_cases(release: Release, problems: Sequence[Problem], keep_going: bool) -> tuple[ReleaseCase, ...]:
    """Select the cases to train on: all cases, or with `keep_going` the cases without an error."""
    errors = sum(problem.is_error for problem in problems)
    if errors and not keep_going:
        raise InputError(
            release.root.name, f"{errors} error{'s' * (errors > 1)}", "none (--keep-going excludes those cases)"
        )
    common = next((problem for problem in problems if problem.is_error and not problem.patient_id), None)
    if common is not None:
        raise InputError(common.file, common.found, f"{common.expected} (no single case can be excluded for it)")
    excluded = set(list_patients_with_errors(problems))
    cases = tuple(case for case in release.cases if case.patient_id not in excluded)
    if not cases:
        raise InputError(release.root.name, "every case has an error", "at least one sound case")
    return cases


def prepare_release(options: PrepareOptions, checked: CheckedRelease, work: WorkFolders, jobs: int) -> Preparation:
    """Make the splits and write nnU-Net's raw data set of all sound cases; return the content of `prepare.json`.

    Raises:
        InputError: The release has errors and `options.keep_going` is False, or the stored splits have other patients.
        HecktorError: Networks were trained on images of another spacing.
    """
    from baseline.release.data_set import write_data_set

    start = time.perf_counter()
    spacing_mm = resolve_spacing(work, options)
    options = replace(options, spacing_mm=spacing_mm, release=str(Path(options.release).absolute()))
    answers = list_head_specs(options.training_edition())
    cases = select_sound_cases(checked.release, checked.problems, options.keep_going)
    load_or_make_splits(work.splits_json, cases, answers, options.folds, options.seed)
    data = write_data_set(cases, work, spacing_mm, jobs)
    write_cases(work, cases)
    seconds = {"check": round(checked.seconds, 1), "prepare": round(time.perf_counter() - start, 1)}
    preparation = _make_preparation(options, checked, cases, answers, data).model_copy(update={"seconds": seconds})
    write_json(work.prepare_json, preparation.model_dump(mode="json"))
    return preparation


def summarise_preparation(preparation: Preparation) -> str:
    """Summarise the preparation for the console: counts, excluded cases, notices, masks beyond the region."""
    numbers = preparation.counts.items()
    counts = {name.replace("_", " "): value for name, value in numbers if isinstance(value, int)}
    centres = preparation.counts["centres"]
    lines = [
        f"{counts.pop('patients')} patients of {len(centres) if isinstance(centres, dict) else 0} centres: "
        + ", ".join(f"{value} {name}" for name, value in counts.items())
    ]
    if preparation.left_out:
        lines.append(f"excluded because of errors: {', '.join(preparation.left_out)}")
    if preparation.corrections:
        lines.append(f"notices about the images, see prepare.json: {format_names(preparation.corrections, 10)}")
    lines += [
        f"{patient}: {share:.1%} of the reference mask lies in the region that inference segments, expected all of it"
        for patient, share in preparation.mask_outside_region.items()
    ]
    return "\n".join(lines)


def _make_preparation(
    options: PrepareOptions,
    checked: CheckedRelease,
    cases: Sequence[ReleaseCase],
    answers: Sequence[AnswerSpec],
    data: DataSet,
) -> Preparation:
    versions = {name: find_version(name, "not installed") for name in _PACKAGES}
    from baseline.release.data_set import find_min_lesion_sizes

    return Preparation(
        options=options,
        versions={"python": platform.python_version(), **versions},
        counts={
            "patients": len(cases),
            "centres": dict(sorted(Counter(case.centre for case in cases).items())),
            "with_mask": sum(case.mask is not None for case in cases),
            **{name: count for answer in answers for name, count in count_outcomes(answer, cases).items()},
            "with_dose": sum(case.dose is not None for case in cases),
            "errors": sum(problem.is_error for problem in checked.problems),
            "warnings": sum(not problem.is_error for problem in checked.problems),
            "written": data.written,
        },
        left_out=list_patients_with_errors(checked.problems),
        removed=data.removed,
        mask_outside_region={
            case.patient_id: case.reference_inside
            for case in data.prepared
            if case.reference_inside is not None and case.reference_inside < 1
        },
        corrections={case.patient_id: case.notices for case in data.prepared if case.notices},
        smallest_lesions=find_min_lesion_sizes(data.prepared),
        data=compute_digest({case.patient_id: case.key for case in data.prepared}),
        own_edition=load_edition(options.edition).content,
    )


def sort_problems(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Sort distinct problems: errors before warnings, then by patient, file and kind."""
    return tuple(sorted(set(problems), key=lambda p: (not p.is_error, p.patient_id, p.file, p.kind, p.found)))


def list_patients_with_errors(problems: Sequence[Problem]) -> tuple[str, ...]:
    """List the IDs of the patients with at least one error, sorted."""
    return tuple(sorted({problem.patient_id for problem in problems if problem.is_error and problem.patient_id}))


def format_problems(problems: Sequence[Problem]) -> str:
    """Format the table for the console: errors, warnings, and a line with both counts."""
    lines: list[str] = []
    for severity, title in ((ERROR, "Errors"), (WARNING, "Warnings")):
        selected = [problem for problem in problems if problem.severity == severity]
        if selected:
            lines += [f"{title} ({len(selected)})", *_format_rows(selected), ""]
    errors = sum(problem.is_error for problem in problems)
    return "\n".join(
        [*lines, f"release: {_format_count(errors, 'error')}, {_format_count(len(problems) - errors, 'warning')}"]
    )


def write_problems(folder: Path, problems: Sequence[Problem]) -> None:
    """Write `problems.csv` and `problems.json`, even if there are no problems."""
    records = as_json(problems)
    table = format_csv([field.name for field in fields(Problem)], records, for_people=True)
    write_text(folder / "problems.csv", table)
    write_json(folder / "problems.json", records)


def as_json(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return the problems as records; `Problem(**record)` restores a problem."""
    return [asdict(problem) for problem in problems]


def _format_rows(problems: Sequence[Problem]) -> list[str]:
    patient = max(len(problem.patient_id) for problem in problems)
    kind = max(len(problem.kind) for problem in problems)
    indent = " " * (patient + kind + 6)
    lines = []
    for problem in problems:
        text = f"{problem.file}: {problem.found}, expected {problem.expected}"
        first = f"  {problem.patient_id:<{patient}}  {problem.kind:<{kind}}  "
        lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
