from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from baseline.release.problems import format_problems, list_patients_with_errors, sort_problems, write_problems
from contract.release.tables import Problem

BAD = Problem("error", "suv", "B-2", "Task 1/B-2/B-2__PT.nii.gz", "all voxels are zero", "SUV")
WORSE = Problem("error", "csv-missing", "", "Task 2", "0 CSV files", "one")
ODD = Problem("warning", "labels", "A-1", "Task 1/A-1/A-1.nii.gz", "an empty mask", "a GTVp or a GTVn")


def test_errors_come_first_then_patients_and_nothing_twice() -> None:
    assert sort_problems([ODD, BAD, WORSE, BAD]) == (WORSE, BAD, ODD)
    assert list_patients_with_errors([ODD, BAD, WORSE]) == ("B-2",)


def test_the_table_aligns_and_wraps_below_its_text() -> None:
    long = Problem("error", "suv", "B-2", "x", " ".join(["word"] * 30), "less")
    assert format_problems([long]).splitlines() == [
        "Errors (1)",
        "  B-2  suv  x: " + " ".join(["word"] * 20),
        "            " + " ".join(["word"] * 9) + " word, expected less",
        "",
        "release: 1 error, 0 warnings",
    ]
    lines = format_problems([WORSE, BAD, ODD]).splitlines()
    assert lines[1:3] == [
        "       csv-missing  Task 2: 0 CSV files, expected one",
        "  B-2  suv          Task 1/B-2/B-2__PT.nii.gz: all voxels are zero, expected SUV",
    ]
    assert lines[4:] == [
        "Warnings (1)",
        "  A-1  labels  Task 1/A-1/A-1.nii.gz: an empty mask, expected a GTVp or a GTVn",
        "",
        "release: 2 errors, 1 warning",
    ]


@pytest.mark.parametrize("problems", [(), (BAD, ODD)])
def test_both_files_say_the_same(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    write_problems(tmp_path, problems)
    records = json.loads((tmp_path / "problems.json").read_text())
    assert [Problem(**record) for record in records] == list(problems)
    with (tmp_path / "problems.csv").open() as file:
        assert list(csv.DictReader(file)) == records
