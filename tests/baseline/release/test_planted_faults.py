"""A release with every fault planted in it, one patient, row or file a fault: each is named, nothing else is."""

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
from tests.baseline.release.planted import Expected, Release, error
from tests.baseline.release.planted_in_images import IMAGE_FAULTS
from tests.baseline.release.planted_in_tables import FILE_AND_TABLE_FAULTS, plant_spellings, row_without_id


@pytest.fixture
def faulty(tiny_release: Release) -> tuple[Path, list[Expected]]:
    """The release with all faults, after one sound patient, and the expected problems."""
    tiny_release.add("MDA-001")
    tiny_release.add("CHUM-001")
    expected: list[Expected] = []
    for number, plant in enumerate((FILE_AND_TABLE_FAULTS | IMAGE_FAULTS).values(), start=2):
        expected += plant(tiny_release, tiny_release.add(f"CHUM-{number:03d}"))
    nameless = tiny_release.add("P0001")
    tiny_release.set(nameless, CenterID="")
    expected += error("no-centre", nameless, f"Task 1/{nameless}", "no centre")
    expected += row_without_id(tiny_release, "")
    expected += plant_spellings(tiny_release)
    return tiny_release.write_tables(), expected


def matches(problem: Problem, expected: Expected) -> bool:
    severity, kind, patient, file, found = expected
    same = (problem.severity, problem.kind, problem.patient_id, problem.file) == (severity, kind, patient, file)
    return same and re.search(found, problem.found) is not None


def test_each_fault_is_named_and_nothing_else(faulty: tuple[Path, list[Expected]], tmp_path: Path) -> None:
    root, expected = faulty
    release = read_release(root, EDITION)
    problems = find_problems(release, WorkFolders(tmp_path / "work"), jobs=1)
    wrong = [one for one in expected if sum(matches(problem, one) for problem in problems) != 1]
    assert not wrong, "\n".join(map(str, wrong))
    beyond = [problem for problem in problems if not any(matches(problem, one) for one in expected)]
    assert not beyond, "\n".join(map(str, beyond))
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
