"""The result of a rehearsal, `rehearsal.json`: the end of each case, the package that answered, unscored outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, computed_field

from contract.archives import unpack
from contract.documents import Document, PlatformDocument, read_document
from contract.errors import Finding, HecktorError, ModelPackageError, format_sentence
from contract.packages import MANIFEST, PackageIdentity, read_identity

# A message names at most this many cases; rehearsal.json names all cases.
_MAX_SHOWN_CASES: Final = 5
_MISSING: Final = "missing "
# The method of a run record whose masks come from networks.
_NETWORK_METHOD: Final = "baseline"
REHEARSAL_JSON: Final = "rehearsal.json"
_MODEL: Final = "a model package, as a folder or .tar.gz"


class RecordedRun(PlatformDocument):
    """The part of a run record that a rehearsal reads.

    `package` is None for a method without a package. `expected_dsc` is by label, None for a label without a voxel.
    """

    method: str | None = None
    package: PackageIdentity | None = None
    region: dict[str, Any] | None = None
    segmented_by: str | None = None
    passes_done: int | None = None
    passes_planned: int | None = None
    fallbacks: tuple[str, ...] = ()
    fallback_by: dict[str, str] = Field(default_factory=dict)
    fallback_why: dict[str, str] = Field(default_factory=dict)
    notices: tuple[Finding, ...] = ()
    expected_dsc: dict[str, float | None] = Field(default_factory=dict)


class RehearsedPackage(Document):
    """The model package of a rehearsal.

    Attributes:
        name: Name of the package.
        manifest_sha256: None for the model of another algorithm, which has no manifest.
        given: Whether it is the package of `--model`; otherwise the run records name it.
        recorded: Number of cases whose run record names this package.
    """

    name: str
    manifest_sha256: str | None
    given: bool
    recorded: int = 0

    def __str__(self) -> str:
        if self.manifest_sha256 is None:
            return f"{self.name}, without a {MANIFEST}"
        return str(PackageIdentity(name=self.name, manifest_sha256=self.manifest_sha256))


class RehearsedAnswer(Document):
    """Number of cases with an answer, and those with a fallback, with notices or without a run record."""

    answer: str
    answered: int
    fallbacks: tuple[str, ...]
    notices: tuple[str, ...]
    unrecorded: tuple[str, ...]

    def __str__(self) -> str:
        if self.unrecorded and len(self.unrecorded) == self.answered:
            return f"{self.answer}: {self.answered} answered; no run records, so fallbacks and notices are unknown"
        parts = [f"{self.answer}: {self.answered} answered"]
        parts.append(f"{len(self.fallbacks)} by a fallback{_format_in_brackets(self.fallbacks)}")
        parts.append(f"{len(self.notices)} with notices{_format_in_brackets(self.notices)}")
        if self.unrecorded:
            parts.append(f"{len(self.unrecorded)} without a run record{_format_in_brackets(self.unrecorded)}")
        return ", ".join(parts)


class RehearsalLimits(Document):
    """Limits of each case."""

    memory_bytes: int
    time_limit_s: float
    cpus: float | None


class RehearsedCase(Document):
    """How one case ended.

    Attributes:
        failure: Reason why the platform would fail the job; null if it would accept the outputs.
        unscored: Accepted outputs that the evaluation would score as missing.
        record: The algorithm's record of the run; null if it did not write a record.
    """

    case: str
    job: str
    failure: str | None
    warnings: tuple[str, ...]
    unscored: tuple[str, ...]
    exit_code: int | None
    http_status: int | None
    timed_out: bool
    seconds: float
    peak_memory_bytes: int | None
    record: RecordedRun | None


class RehearsalResult(Document):
    """The content of `rehearsal.json`.

    Attributes:
        package: The model package of `--model`, or else of the run records; null if no package is known.
        startup_s: Seconds until each server was ready; empty for `exec`.
        refusals: Reasons why the platform would not accept an image.
        problems: Reasons why there is no ranked result.
        ranked: The ranked metrics by their path in `metrics.json`.
    """

    team: str
    task: str
    algorithm: str
    evaluation: str | None
    package: RehearsedPackage | None
    isolated: bool
    api_method: str
    evaluation_api_method: str | None
    startup_s: tuple[float, ...]
    limits: RehearsalLimits
    on_failure: str
    refusals: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    ranked: dict[str, float]
    answers: tuple[RehearsedAnswer, ...]
    cases: tuple[RehearsedCase, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """Return the failed cases with their reasons."""
        return tuple(f"{case.case}: {case.failure}" for case in self.cases if case.failure is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def succeeded(self) -> bool:
        """Return whether the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


# The run record of each answered case; None if the algorithm did not write a record.
Records = Mapping[str, RecordedRun | None]


def collect_records(cases: Iterable[RehearsedCase]) -> Records:
    """Collect the run record of each answered case."""
    return {case.case: case.record for case in cases if case.failure is None}


def read_run_record(path: Path, fault: str = "") -> tuple[RecordedRun | None, tuple[str, ...]]:
    """Read the record of a run.

    Args:
        path: The copied record; it may not exist.
        fault: Reason why the record could not be copied.

    Returns:
        The record, None if there is no usable record, and a warning about an unusable record.
    """
    if fault:
        return None, (f"{path.name}: {fault}",)
    if not path.exists():
        return None, ()
    try:
        return read_document(path, RecordedRun), ()
    except HecktorError as problem:
        return None, (problem.message,)


def unpack_model(model: Path, folder: Path) -> tuple[Path, RehearsedPackage]:
    """Unpack an archive of a model to `folder` as the platform does; a folder is used as it is.

    The model is a model package, or the model of another algorithm in any form.

    Returns:
        The folder of the model, and the identity of the package.

    Raises:
        ModelPackageError: The model is unusable.
    """
    name = model.name or model.resolve().name
    unpacked = model
    if not model.is_dir():
        unpack(model, folder)
        unpacked = folder
    if not any(unpacked.iterdir()):
        raise ModelPackageError(name, "contains no file", _MODEL)
    if not (unpacked / MANIFEST).exists():
        return unpacked, RehearsedPackage(name=name, manifest_sha256=None, given=True)
    return unpacked, RehearsedPackage(given=True, **read_identity(unpacked).model_dump())


def check_model_exists(model: Path) -> None:
    """Raise `ModelPackageError` if the path of a model does not exist, before anything is written."""
    if not model.exists():
        raise ModelPackageError(model.name or str(model), "not found", _MODEL)


def check_recorded_package(
    model_package: RehearsedPackage | None, records: Records
) -> tuple[RehearsedPackage | None, tuple[str, ...], tuple[str, ...]]:
    """Compare the package of `--model` with the packages of the run records.

    Returns:
        The package with the number of records that name it, a problem if another package answered, and a warning if
        the package of a case is not known.
    """
    identities = {case: record.package for case, record in records.items() if record is not None}
    package = model_package or _find_recorded_package(identities.values())
    if package is None:
        return None, (), ()
    expected = (package.name, package.manifest_sha256)
    mismatches = [
        case
        for case, identity in identities.items()
        if identity is None or (identity.name, identity.manifest_sha256) != expected
    ]
    package = package.model_copy(update={"recorded": len(identities) - len(mismatches)})
    if mismatches:
        identity = identities[mismatches[0]]
        actual = f"{identity or 'no package'} in the run record of {format_cases(mismatches)}"
        return package, (format_sentence("model package", actual, str(package)),), ()
    unknown = [case for case, record in records.items() if record is None]
    if model_package is None or not unknown:
        return package, (), ()
    warning = f"no run record of {format_cases(unknown)}, so the package that answered is not known"
    return package, (), (format_sentence("model package", warning),)


def _find_recorded_package(identities: Iterable[PackageIdentity | None]) -> RehearsedPackage | None:
    first = next((identity for identity in identities if identity is not None), None)
    return None if first is None else RehearsedPackage(given=False, **first.model_dump())


def summarise_answers(answers: Sequence[str], records: Records) -> tuple[RehearsedAnswer, ...]:
    """Summarise for each answer the cases with a fallback, with notices and without a run record."""
    known = {case: record for case, record in records.items() if record is not None}
    with_notices = tuple(case for case, record in known.items() if record.notices)
    unrecorded = tuple(case for case in records if case not in known)
    return tuple(
        RehearsedAnswer(
            answer=answer,
            answered=len(records),
            fallbacks=tuple(case for case, record in known.items() if answer in record.fallbacks),
            notices=with_notices,
            unrecorded=unrecorded,
        )
        for answer in answers
    )


def format_notices(records: Records) -> Iterator[str]:
    """Format each notice once with the cases that have it; missing values of a file become one notice with counts."""
    cases: dict[str, list[str]] = {}
    missing_values: dict[str, Counter[str]] = {}
    for case, record in records.items():
        for notice in record.notices if record is not None else ():
            text = str(notice)
            if notice.found.startswith(_MISSING):
                text = f"{notice.what}: {_MISSING}"
                missing_values.setdefault(text, Counter()).update(notice.found.removeprefix(_MISSING).split(", "))
            cases.setdefault(text, []).append(case)
    for text, names in cases.items():
        counts = missing_values.get(text, Counter()).most_common()
        values = ", ".join(f"{name} ({count})" for name, count in counts)
        yield f"notice in {len(names)} of {len(records)} cases ({format_cases(names)}): {text}{values}"


def warn_without_passes(records: Records) -> str:
    """Return a warning if no case was answered by the networks of this project's algorithm; empty otherwise."""
    sources = [
        record.segmented_by
        for record in records.values()
        if record is not None and record.method == _NETWORK_METHOD and record.segmented_by not in (None, "contours")
    ]
    if not sources or "network" in sources:
        return ""
    return (
        f"the network answered none of {len(sources)} cases, because no pass fitted the time or the memory: all "
        "answers come from fallbacks. On a slow machine try --time-limit SECONDS with "
        "--arguments='--time-limit SECONDS', and --passes 1 among these arguments for a quick look"
    )


def format_cases(cases: Sequence[str]) -> str:
    """Format the names of the first cases, and the number of the remaining cases."""
    more = len(cases) - _MAX_SHOWN_CASES
    return ", ".join(cases[:_MAX_SHOWN_CASES]) + (f" and {more} more" if more > 0 else "")


def _format_in_brackets(cases: Sequence[str]) -> str:
    return f" ({format_cases(cases)})" if cases else ""
