from __future__ import annotations

from baseline.release.problems import list_patients_with_errors, sort_problems
from contract.release.tables import Problem

BAD = Problem("error", "suv", "B-2", "Task 1/B-2/B-2__PT.nii.gz", "all voxels are zero", "SUV")
WORSE = Problem("error", "csv-missing", "", "Task 2", "0 CSV files", "one")
ODD = Problem("warning", "labels", "A-1", "Task 1/A-1/A-1.nii.gz", "an empty mask", "a GTVp or a GTVn")


def test_errors_come_first_then_patients_and_nothing_twice() -> None:
    assert sort_problems([ODD, BAD, WORSE, BAD]) == (WORSE, BAD, ODD)
    assert list_patients_with_errors([ODD, BAD, WORSE]) == ("B-2",)
