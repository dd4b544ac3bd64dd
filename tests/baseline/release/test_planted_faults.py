"""Tests that every fault planted in a release is named, and nothing else: each patient, row or file has one fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from baseline.release.cases import read_release
from baseline.release.prepare import find_problems, list_patients_with_errors, select_sound_cases
from baseline.work import WorkFolders
from contract.errors import InputError
from contract.release.tables import Problem
from tests.baseline.prepared import EDITION
from tests.baseline.release.planted import (
    FILE_AND_TABLE_FAULTS,
    IMAGE_FAULTS,
    Expected,
    Release,
    add_rows_without_id,
    expect_error,
    plant_spellings,
)


@pytest.fixture
def faulty_release(tiny_release: Release) -> tuple[Path, list[Expected]]:
    """Write a release with two sound patients and all faults, and return its root and the expected problems."""
    tiny_release.add("MDA-001")
    tiny_release.add("CHUM-001")
    expected: list[Expected] = []
    for number, plant in enumerate((FILE_AND_TABLE_FAULTS | IMAGE_FAULTS).values(), start=2):
        expected += plant(tiny_release, tiny_release.add(f"CHUM-{number:03d}"))
    nameless = tiny_release.add("P0001")
    tiny_release.set(nameless, CenterID="")
    expected += expect_error("no-centre", nameless, f"Task 1/{nameless}", "no centre")
    expected += add_rows_without_id(tiny_release, "")
    expected += plant_spellings(tiny_release)
    return tiny_release.write_tables(), expected


def is_match(problem: Problem, expected: Expected) -> bool:
    severity, kind, patient, file, finding = expected
    same = (problem.severity, problem.kind, problem.patient_id, problem.file) == (severity, kind, patient, file)
    return same and re.search(finding, problem.found) is not None


def test_each_fault_is_named_and_nothing_else(faulty_release: tuple[Path, list[Expected]], tmp_path: Path) -> None:
    root, expected = faulty_release
    release = read_release(root, EDITION)
    problems = find_problems(release, WorkFolders(tmp_path / "work"), jobs=1)
    wrong = [fault for fault in expected if sum(is_match(problem, fault) for problem in problems) != 1]
    assert not wrong, "\n".join(map(str, wrong))
    unexpected = [problem for problem in problems if not any(is_match(problem, fault) for fault in expected)]
    assert not unexpected, "\n".join(map(str, unexpected))
    assert len(problems) == len(expected)
    assert [problem.is_error for problem in problems] == sorted((p.is_error for p in problems), reverse=True)
    assert find_problems(release, WorkFolders(tmp_path / "work"), jobs=1) == problems
    with pytest.raises(InputError, match=r"^release: \d+ errors"):
        select_sound_cases(release, problems, keep_going=False)
    sound = {case.patient_id for case in select_sound_cases(release, problems, keep_going=True)}
    left_out = {patient for severity, _, patient, _, _ in expected if severity == "error"}
    assert set(list_patients_with_errors(problems)) == left_out
    assert sound == {case.patient_id for case in release.cases} - left_out
    assert {"MDA-001", "CHUM-001"} <= sound
