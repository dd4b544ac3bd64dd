"""The release layout as it comes: missing values, other separators, and errors that name the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.release import read_release
from contract.errors import InputError

TABLES = {
    "Task 1": "PatientID,CenterID,Age,Gender,M-stage,Tobacco Consumption\nMDA-001,MDA,61,1,M0,\nCHUM-002,CHUM,70.5,0,M1,1\n",
    "Task 2": "PatientID,Relapse,RFS\nMDA-001,1,320\nCHUM-002,,\n",
    "Task 3": "PatientID,HPV Status\nCHUM-002,0\n",
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for task, table in TABLES.items():
        (tmp_path / task).mkdir()
        (tmp_path / task / f"HECKTOR_2025_Training_{task.replace(' ', '_')}.csv").write_text(table)
    for patient in ("MDA-001", "CHUM-002"):
        folder = tmp_path / "Task 1" / patient
        folder.mkdir()
        for suffix in ("__CT", "__PT", ""):
            (folder / f"{patient}{suffix}.nii.gz").touch()
    return tmp_path


def table(release: Path, task: str) -> Path:
    return next((release / task).glob("*.csv"))


def test_one_record_a_patient(release: Path) -> None:
    first, second = read_release(release)
    assert (first.patient_id, first.centre, first.hpv, first.relapse, first.rfs_days) == (
        "CHUM-002", "CHUM", False, None, None)  # fmt: skip
    assert (second.patient_id, second.centre, second.hpv, second.relapse, second.rfs_days) == (
        "MDA-001", "MDA", None, True, 320.0)  # fmt: skip
    assert (first.patient.age_years, first.patient.gender, first.patient.m_stage, first.patient.tobacco) == (
        70.5,
        0,
        "M1",
        1,
    )
    assert second.patient.tobacco is None
    assert (second.ct.name, second.pet.name, second.mask.name) == (
        "MDA-001__CT.nii.gz", "MDA-001__PT.nii.gz", "MDA-001.nii.gz")  # fmt: skip


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_and_a_byte_order_mark(release: Path, separator: str) -> None:
    expected = read_release(release)
    for task in TABLES:
        path = table(release, task)
        path.write_text(path.read_text().replace(",", separator), encoding="utf-8-sig")
    if separator == ";":
        assert [case.patient for case in read_release(release)] == [case.patient for case in expected]
    else:
        assert [case.rfs_days for case in read_release(release)] == [None, 320.0]


def test_the_centre_is_in_the_id_where_no_column_says_it(release: Path) -> None:
    path = table(release, "Task 1")
    path.write_text(path.read_text().replace("CenterID", "Nothing"))
    assert [case.centre for case in read_release(release)] == ["CHUM", "MDA"]


def test_numeric_columns_alone(release: Path) -> None:
    """A row of numbers only comes out of pandas as NumPy numbers."""
    table(release, "Task 1").write_text("PatientID,Age,Gender\nMDA-001,61,1\nCHUM-002,70,0\n")
    assert [case.patient.gender for case in read_release(release)] == [0, 1]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("Task 2", "PatientID,Relapse,RFS\nMDA-001,maybe,3\n", "MDA-001: Relapse 'maybe', expected 0 or 1"),
        ("Task 2", "PatientID,Relapse,RFS\nMDA-001,2,3\n", "MDA-001: Relapse 2, expected 0 or 1"),
        ("Task 2", "PatientID,Relapse,RFS\nMDA-001,1,-3\n", "MDA-001: RFS -3, expected a number of days"),
        ("Task 3", "PatientID,HPV Status\nMDA-001,positive\n", "MDA-001: HPV Status 'positive', expected 0 or 1"),
        ("Task 2", "Patient,Relapse\nMDA-001,1\n", "no column PatientID .found Patient, Relapse"),
        ("Task 2", "PatientID,Relapse\nMDA-001,1\nMDA-001,0\n", "MDA-001 stands twice"),
        ("Task 2", "", "not a readable table .*expected a CSV file"),
        ("Task 2", "\x00\x01\x02", "not a readable table|no column PatientID"),
    ],
)
def test_tables_that_cannot_be_used(release: Path, task: str, text: str, message: str) -> None:
    table(release, task).write_text(text)
    with pytest.raises(InputError, match=message):
        read_release(release)


def test_a_table_too_many_or_too_few(release: Path) -> None:
    (release / "Task 3" / "second.csv").write_text(TABLES["Task 3"])
    with pytest.raises(InputError, match="Task 3: found 2 CSV files, expected one"):
        read_release(release)
    for path in (release / "Task 3").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="Task 3: found 0 CSV files, expected one"):
        read_release(release)


@pytest.mark.parametrize("suffix", ["__CT", "__PT", ""])
def test_an_image_that_is_missing(release: Path, suffix: str) -> None:
    (release / "Task 1" / "MDA-001" / f"MDA-001{suffix}.nii.gz").unlink()
    with pytest.raises(InputError, match=rf"^MDA-001{suffix}\.nii\.gz: not found in MDA-001"):
        read_release(release)


def test_a_patient_in_no_table(release: Path) -> None:
    for task in TABLES:
        path = table(release, task)
        path.write_text("\n".join(line for line in path.read_text().splitlines() if "MDA" not in line) + "\n")
    with pytest.raises(InputError, match="MDA-001: in no CSV file of the release"):
        read_release(release)


def test_no_release_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Task 1: found 0 CSV files"):
        read_release(tmp_path)
