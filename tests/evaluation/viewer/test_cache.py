"""Cases are computed once, cached within a limit, and tried again after an error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from contract.errors import HecktorError
from evaluation.viewer import server
from evaluation.viewer.cohort import CaseSources, ViewerCohort
from evaluation.viewer.server import CaseCache


def test_concurrent_requests_of_a_case_compute_it_once(cohort: ViewerCohort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads ask at the same time; the first computation ends when all have started."""
    builds, waiting, started = [], Barrier(8), Event()

    def build(sources: CaseSources) -> dict[str, bytes]:
        builds.append(sources.files.case)
        assert started.wait(10)
        return {"case.json": b"{}"}

    monkeypatch.setattr(server, "build_case", build)
    cases = CaseCache(cohort.cases)

    def ask(_: int) -> object:
        if waiting.wait(10) == 0:
            started.set()
        return cases.files("C-1")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert builds == ["C-1"]
    assert all(answer is answers[0] for answer in answers)


def test_the_least_recently_used_case_leaves_a_full_cache(
    cohort: ViewerCohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for two cases: C-3 drives out C-2, as C-1 was asked for after it."""
    builds: list[None] = []
    monkeypatch.setattr(server, "build_case", lambda _: builds.append(None) or {})
    cases = CaseCache(dict.fromkeys(("C-1", "C-2", "C-3"), cohort.cases["C-1"]), most=2)
    for case in ("C-1", "C-2", "C-1", "C-3", "C-1"):
        cases.files(case)
    assert len(builds) == 3
    cases.prepare("C-2").result()
    cases.files("C-2")
    assert len(builds) == 4


def test_a_failed_case_is_tried_again(cohort: ViewerCohort) -> None:
    cases = CaseCache(cohort.cases)
    path = cohort.cases["C-1"].files.ct
    content = path.read_bytes()
    path.write_bytes(b"nothing")
    for _ in range(2):
        with pytest.raises(HecktorError):
            cases.files("C-1")
    path.write_bytes(content)
    assert "ct.nii.gz" in cases.files("C-1")
