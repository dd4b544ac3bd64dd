"""The result of a rehearsal, which is `rehearsal.json`: how each case ended, who answered, and what is not scored."""

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

# Cases that a message names; rehearsal.json names all of them.
_SHOWN_CASES: Final = 5
_MISSING: Final = "missing "
# The method of a run record whose masks come from networks.
_NETWORK_METHOD: Final = "baseline"
REHEARSAL_JSON: Final = "rehearsal.json"
_MODEL: Final = "a model package, as a folder or .tar.gz"


class RecordedRun(PlatformDocument):
    """The record of one run, as far as a rehearsal reads it.

    `package` is None for a method without a package; `expected_dsc` is by label, None for a label without a voxel.
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
    """The model package: that of `--model` if it is `given`, else the one that the run records name.

    `manifest_sha256` is None for the model of another algorithm, without our manifest. `recorded` is the number of
    cases whose run record names this package.
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
    """The origin of one answer: the cases that a fallback answered, that have notices, or no run record."""

    answer: str
    answered: int
    fallbacks: tuple[str, ...]
    notices: tuple[str, ...]
    unrecorded: tuple[str, ...]

    def __str__(self) -> str:
        if self.unrecorded and len(self.unrecorded) == self.answered:
            return f"{self.answer}: {self.answered} answered; no run records, so fallbacks and notices are unknown"
        parts = [f"{self.answer}: {self.answered} answered"]
        parts.append(f"{len(self.fallbacks)} by a fallback{_in_brackets(self.fallbacks)}")
        parts.append(f"{len(self.notices)} with notices{_in_brackets(self.notices)}")
        if self.unrecorded:
            parts.append(f"{len(self.unrecorded)} without a run record{_in_brackets(self.unrecorded)}")
        return ", ".join(parts)


class RehearsalLimits(Document):
    """Limits of each case."""

    memory_bytes: int
    time_limit_s: float
    cpus: float | None


class RehearsedCase(Document):
    """The end of one case; `failure` is null if the platform would accept its outputs.

    `unscored` are accepted outputs that the evaluation would score as missing, `record` is the algorithm's own record
    of the run, null where it wrote none.
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

    `refusals` are reasons why the platform would not accept an image, `problems` reasons why there is no ranked
    result, `ranked` the ranked metrics by their path in `metrics.json`. `startup_s` has one entry for each server: the
    seconds until it was ready; it is empty for `exec`. `package` is the model package that was given or answered, null
    if none is known.
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
        """Failed cases with their reasons."""
        return tuple(f"{one.case}: {one.failure}" for one in self.cases if one.failure is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def succeeded(self) -> bool:
        """True if the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


# The record of each answered case, None where the algorithm wrote none.
Records = Mapping[str, RecordedRun | None]


def records_of(cases: Iterable[RehearsedCase]) -> Records:
    """The run record of each answered case."""
    return {one.case: one.record for one in cases if one.failure is None}


def read_run_record(path: Path, fault: str = "") -> tuple[RecordedRun | None, tuple[str, ...]]:
    """The record of a run, None without a usable one, and a warning about an unusable one or the `fault` of a copy."""
    if fault:
        return None, (f"{path.name}: {fault}",)
    if not path.exists():
        return None, ()
    try:
        return read_document(path, RecordedRun), ()
    except HecktorError as problem:
        return None, (problem.message,)


def given_model(model: Path, folder: Path) -> tuple[Path, RehearsedPackage]:
    """The folder of a model, and its name; an archive is unpacked to `folder` as the platform does.

    It is a model package, or the model of another algorithm, in any form. Raises `ModelPackageError` if it is unusable.
    """
    name, unpacked = model.name or model.resolve().name, model if model.is_dir() else folder
    if not model.is_dir():
        unpack(model, folder)
    if not any(unpacked.iterdir()):
        raise ModelPackageError(name, "holds no file", _MODEL)
    if not (unpacked / MANIFEST).exists():
        return unpacked, RehearsedPackage(name=name, manifest_sha256=None, given=True)
    return unpacked, RehearsedPackage(given=True, **read_identity(unpacked).model_dump())


def check_model_exists(model: Path) -> None:
    """Raise `ModelPackageError` for an absent path, before anything is written."""
    if not model.exists():
        raise ModelPackageError(model.name or str(model), "not found", _MODEL)


def rehearsed_package(
    given: RehearsedPackage | None, records: Records
) -> tuple[RehearsedPackage | None, tuple[str, ...], tuple[str, ...]]:
    """The package with the number of records that name it, problems (another one answered) and warnings (unknown)."""
    recorded = {case: record.package for case, record in records.items() if record is not None}
    package = given or _named(recorded.values())
    if package is None:
        return None, (), ()
    expected = (package.name, package.manifest_sha256)
    others = [case for case, one in recorded.items() if one is None or (one.name, one.manifest_sha256) != expected]
    package = package.model_copy(update={"recorded": len(recorded) - len(others)})
    if others:
        first = recorded[others[0]]
        found = "no package" if first is None else str(first)
        problem = format_sentence("model package", f"{found} in the run record of {named_cases(others)}", str(package))
        return package, (problem,), ()
    unknown = [case for case, record in records.items() if record is None]
    if given is None or not unknown:
        return package, (), ()
    found = f"no run record of {named_cases(unknown)}, so the package that answered is not known"
    return package, (), (format_sentence("model package", found),)


def _named(identities: Iterable[PackageIdentity | None]) -> RehearsedPackage | None:
    first = next((one for one in identities if one is not None), None)
    return None if first is None else RehearsedPackage(given=False, **first.model_dump())


def rehearsed_answers(answers: Sequence[str], records: Records) -> tuple[RehearsedAnswer, ...]:
    """The answered cases of each answer, with those that a fallback gave and those with notices."""
    known = {case: record for case, record in records.items() if record is not None}
    noticed = tuple(case for case, record in known.items() if record.notices)
    unrecorded = tuple(case for case in records if case not in known)
    counted = []
    for answer in answers:
        replaced = tuple(case for case, record in known.items() if answer in record.fallbacks)
        counted.append(
            RehearsedAnswer(
                answer=answer,
                answered=len(records),
                fallbacks=replaced,
                notices=noticed,
                unrecorded=unrecorded,
            )
        )
    return tuple(counted)


def notice_lines(records: Records) -> Iterator[str]:
    """Each notice once, with the cases that have it; the values that a file lacks are one notice with counts."""
    cases: dict[str, list[str]] = {}
    lacking: dict[str, Counter[str]] = {}
    for case, record in records.items():
        for notice in record.notices if record is not None else ():
            text = str(notice)
            if notice.found.startswith(_MISSING):
                text = f"{notice.what}: {_MISSING}"
                lacking.setdefault(text, Counter()).update(notice.found.removeprefix(_MISSING).split(", "))
            cases.setdefault(text, []).append(case)
    for text, noticed in cases.items():
        values = ", ".join(f"{name} ({count})" for name, count in lacking.get(text, Counter()).most_common())
        yield f"notice in {len(noticed)} of {len(records)} cases ({named_cases(noticed)}): {text}{values}"


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


def named_cases(cases: Sequence[str]) -> str:
    """The first cases by name, and the number of the others."""
    more = len(cases) - _SHOWN_CASES
    return ", ".join(cases[:_SHOWN_CASES]) + (f" and {more} more" if more > 0 else "")


def _in_brackets(cases: Sequence[str]) -> str:
    return f" ({named_cases(cases)})" if cases else ""
