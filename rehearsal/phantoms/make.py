"""Make phantoms: a whole cohort on disk, in parallel and resumable, or one patient in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, as_completed
from dataclasses import replace
from pathlib import Path

from contract import files
from contract.editions import load_edition
from contract.errors import OutputError
from contract.processes import fresh_processes
from rehearsal.phantoms.centres import centre_named
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.columns import require_known
from rehearsal.phantoms.layouts import LAYOUTS, Layout, write_table
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.truth import CohortOptions, truth_document, truth_row


def cohort_cases(options: CohortOptions, patients: int) -> list[PhantomCase]:
    """The first ``patients`` patients of a cohort, drawn but not rendered."""
    centres = [centre_named(code) for code in options.centres]
    return [make_case(options.seed, index, centres, options.field_of_view) for index in range(patients)]


def make_patient(options: CohortOptions, case: PhantomCase, output: Path) -> str:
    """Render and write one patient; returns the ID."""
    from rehearsal.phantoms.scanner import render

    if options.ct_coarsening > 1:
        case = replace(case, protocol=coarsened(case.protocol, options.ct_coarsening))
    _layout(options).write_case(output, case, render(case))
    return case.patient_id


def make_cohort(options: CohortOptions, patients: int, output: Path, jobs: int) -> Iterator[str]:
    """Write a cohort and yield each patient's ID once its files are complete, those already there first.

    Raises:
        InputError: no phantom has a variable or an outcome of the edition.
        OutputError: ``output`` holds a cohort made with other options.
    """
    layout, cases = _layout(options), cohort_cases(options, patients)
    require_known(layout.edition)
    _claim(options, output)
    waiting = []
    for case in cases:
        if layout.is_complete(output, case):
            yield case.patient_id
        else:
            waiting.append(case)
    yield from _make_all(options, waiting, output, jobs)
    layout.write_tables(output, cases)
    write_table(output / "truth" / "truth.csv", [truth_row(case) for case in cases])
    files.write_json(output / "truth" / "truth.json", truth_document(options, cases))


def _layout(options: CohortOptions) -> Layout:
    return LAYOUTS[options.layout](load_edition(options.edition))


def _make_all(options: CohortOptions, cases: list[PhantomCase], output: Path, jobs: int) -> Iterator[str]:
    if jobs <= 1 or len(cases) <= 1:
        for case in cases:
            yield make_patient(options, case, output)
        return
    with fresh_processes(min(jobs, len(cases))) as pool:
        futures = [pool.submit(make_patient, options, case, output) for case in cases]
        try:
            yield from _results(as_completed(futures))
        finally:
            pool.shutdown(cancel_futures=True)


def _results(futures: Iterable[Future[str]]) -> Iterator[str]:
    for future in futures:
        yield future.result()


def _claim(options: CohortOptions, output: Path) -> None:
    marker = output / "truth" / "cohort.json"
    if marker.exists():
        earlier = files.read_json(marker, error=OutputError)
        if earlier != options.as_json():
            raise OutputError(
                f"{output}", f"found a cohort made with {earlier}", f"an empty folder or {options.as_json()}"
            )
        return
    files.write_json(marker, options.as_json())


def default_jobs() -> int:
    """The number of usable CPUs."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
