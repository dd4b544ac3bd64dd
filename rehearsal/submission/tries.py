"""The phantoms that every image of a submission must answer, with stricter checks than the platform's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal

from contract.documents import Document
from contract.editions import Algorithm, Edition
from contract.errors import HecktorError
from rehearsal.jobs.execute import JobResult, Rehearsal
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.layouts import PlatformWriter
from rehearsal.phantoms.make import render_for_edition
from rehearsal.pipeline import rehearse
from rehearsal.records import RecordedRun, RehearsedCase
from rehearsal.runners.runner import GIB, Limits, Runner

MEMORY_BYTES: Final = 16 * GIB
NO_RECORD: Final = "no run record"
SEED: Final = 2025
# The usual field of view, with a planning CT and dose; the longest field of view; a field of view cut at the top.
KINDS: Final = ("head_and_neck", "whole_body", "cut")


class TrialCase(Document):
    """Time and memory of one phantom; `answered` describes how the algorithm answered, from its run record."""

    case: str
    kind: str
    seconds: float
    peak_memory_bytes: int | None
    answered: str


class RehearsedTask(Document):
    """The rehearsal of one task."""

    task: str
    how: Literal["container", "process"]
    api_method: str
    memory_bytes: int
    time_limit_s: float
    longest_s: float
    cases: tuple[TrialCase, ...]


@dataclass(frozen=True)
class TrialInputs:
    """Inputs of all tasks: the edition, the cohort with the kind of each phantom by ID, and the unpacked package."""

    edition: Edition
    cohort: Path
    kinds: Mapping[str, str]
    model: Path


def make_phantoms(folder: Path, edition: Edition, kinds: Sequence[str], coarsening: int = 1) -> dict[str, str]:
    """Write a phantom of each field of view in the platform's layout.

    Args:
        folder: Folder of the cohort.
        edition: Edition that declares the inputs.
        kinds: Names of `rehearsal.phantoms.centres.FIELDS_OF_VIEW`.
        coarsening: Factor by which the CT matrix is smaller in plane.

    Returns:
        The kind of each phantom by its ID.
    """
    layout = PlatformWriter(edition)
    kind_of: dict[str, str] = {}
    for case, kind in zip(_make_cases(kinds), kinds, strict=True):
        layout.write_case(folder, case, render_for_edition(edition, case, coarsening))
        kind_of[case.patient_id] = kind
    return kind_of


def _make_cases(kinds: Sequence[str]) -> Iterator[PhantomCase]:
    """Make a different patient for each kind; the first patient has a planned dose."""
    start = 0
    for number, kind in enumerate(kinds):
        candidates = (make_case(SEED, index, CENTRES, kind) for index in count(start))
        case = next(case for case in candidates if number > 0 or case.protocol.dose is not None)
        start = case.index + 1
        yield case


def rehearse_task(
    task: Algorithm, runner: Runner, inputs: TrialInputs, output: Path, report: Callable[[str], None]
) -> RehearsedTask:
    """Rehearse one task over all phantoms; `report` is called with a line for each phantom and each warning.

    Raises:
        HecktorError: An image would be refused, a job failed, an answer would not be scored, or the network did not
            answer.
    """
    result = rehearse(
        Rehearsal(
            edition=inputs.edition,
            task=task,
            cohort=inputs.cohort,
            output_dir=output,
            algorithm=runner,
            limits=Limits(MEMORY_BYTES, task.time_limit_s),
            model=inputs.model,
            only=tuple(inputs.kinds),
        ),
        on_job=lambda job: report(_format_progress(job, task, inputs)),
    )
    for warning in result.warnings:
        report(f"{task.name}: warning: {warning}")
    problems = [*result.refusals, *result.problems]
    for case in result.cases:
        problems += [f"phantom {case.case} ({inputs.kinds[case.case]}): {problem}" for problem in _list_problems(case)]
    if problems:
        raise HecktorError(task.name, problems[0])
    cases = tuple(_summarise_case(case, inputs) for case in result.cases)
    return RehearsedTask(
        task=task.name,
        how="container" if runner.is_isolated else "process",
        api_method=result.api_method,
        memory_bytes=MEMORY_BYTES,
        time_limit_s=result.limits.time_limit_s,
        longest_s=max(case.seconds for case in cases),
        cases=cases,
    )


def _format_progress(job: JobResult, task: Algorithm, inputs: TrialInputs) -> str:
    case = job.job.case.case_id
    suffix = "" if job.failure is None else ", failed"
    return f"{task.name}: phantom {case} ({inputs.kinds[case]}) {job.outcome.seconds:.1f} s{suffix}"


def _list_problems(case: RehearsedCase) -> list[str]:
    return [*case.unscored, *_find_fallbacks(case)] if case.failure is None else [case.failure]


def _find_fallbacks(case: RehearsedCase) -> list[str]:
    """Find answers that did not come from the network and the heads, by the algorithm's run record."""
    record = case.record or RecordedRun()
    if record.region and record.segmented_by is None:
        return ["neither a body nor uptake was found, expected an answer of the network"]
    if record.passes_done == 0 and record.segmented_by != "contours":
        return ["the PET threshold answered, expected an answer of the network"]
    if record.fallbacks:
        return [f"fallbacks answered for {', '.join(record.fallbacks)}, expected answers of the model"]
    return []


def _summarise_case(case: RehearsedCase, inputs: TrialInputs) -> TrialCase:
    record = case.record
    answered = NO_RECORD
    if record is not None:
        # The usual method is called "baseline", whichever networks the package has.
        answered_by = record.method if record.package is None else record.package.name
        answered = f"{answered_by}: {record.passes_done} of {record.passes_planned} passes"
        if not (record.region or {}).get("sure", True):
            answered += ", region unsure"
        if record.notices:
            answered += f", warnings: {len(record.notices)}"
    return TrialCase(
        case=case.case,
        kind=inputs.kinds[case.case],
        seconds=round(case.seconds, 1),
        peak_memory_bytes=case.peak_memory_bytes,
        answered=answered,
    )
