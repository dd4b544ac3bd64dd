"""Tests that folders and tables of a release are joined into one record per patient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.release.cases import list_head_specs, read_cases, read_release, read_values, write_cases
from baseline.work import WorkFolders
from contract.editions import load_edition
from contract.io.files import write_json
from contract.release.tables import Problem, ReleaseTable, read_table
from tests.baseline.prepared import EDITION
from tests.baseline.release.one_folder import EDITION as EDITION_2026
from tests.baseline.release.one_folder import HEADER

TABLES = {
    "Task 1": "PatientID,CenterID,Age,Gender,M-stage,Tobacco Consumption\nMDA-001,MDA,61,1,M0,\nCHUM-002,CHUM,70.5,0,M1,1\n",
    "Task 2": "PatientID,Relapse,RFS\nMDA-001,1,320\nCHUM-002,,\n",
    "Task 3": "PatientID,HPV Status\nMDA-001,\nCHUM-002,0\n",
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Write two patients whose image files hold only their names."""
    for task, find_table in TABLES.items():
        for patient in ("MDA-001", "CHUM-002"):
            folder = tmp_path / task / patient
            folder.mkdir(parents=True)
            for suffix in ("__CT", "__PT", "")[: 3 if task == "Task 1" else 2]:
                (folder / f"{patient}{suffix}.nii.gz").write_bytes(
                    b"\x1f\x8b" + bytes(10) + f"{patient}{suffix}".encode()
                )
        (tmp_path / task / f"HECKTOR_2025_Training_{task.replace(' ', '_')}.csv").write_text(find_table)
    return tmp_path


def find_table(release: Path, task: str) -> Path:
    return next((release / task).glob("*.csv"))


def test_one_record_a_patient(release: Path) -> None:
    read = read_release(release, EDITION)
    assert read.problems == ()
    first, second = read.cases
    assert (first.patient_id, first.centre, first.outcomes) == ("CHUM-002", "CHUM", {"HPV Status": False})
    assert (second.patient_id, second.centre, second.outcomes) == ("MDA-001", "MDA", {"Relapse": True, "RFS": 320.0})
    rfs, hpv = list_head_specs(EDITION)
    assert [(case.has_outcome(rfs), case.get_outcome(rfs), case.get_outcome(hpv)) for case in read.cases] == [
        (False, None, False), (True, True, None)]  # fmt: skip
    assert tuple(first.patient.values[name] for name in ("age_years", "gender", "m_stage", "tobacco")) == (
        70.5, 0, "M1", 1)  # fmt: skip
    assert second.patient.values["tobacco"] is None
    assert [path and path.relative_to(release).as_posix() for path in (second.ct, second.pet, second.mask)] == [
        "Task 1/MDA-001/MDA-001__CT.nii.gz", "Task 1/MDA-001/MDA-001__PT.nii.gz", "Task 1/MDA-001/MDA-001.nii.gz"]  # fmt: skip


def test_a_case_is_the_same_after_a_round_through_json(release: Path, tmp_path: Path) -> None:
    work, cases = WorkFolders(tmp_path / "work"), read_release(release, EDITION).cases
    write_cases(work, cases)
    write_json(work.prepare_json, {"options": {"release": str(release)}})
    assert read_cases(work) == cases


def test_an_edition_with_other_columns(tmp_path: Path) -> None:
    """Classes of four values, stages in any spelling, and a centre and a code under other names are read."""
    edition = load_edition(str(Path(__file__).parents[2] / "editions" / "four_answers.json"))
    path = tmp_path / "t.csv"
    path.write_text(
        "PatientID,Site,Years,HPV,T-stage,N-stage,RFS,Relapse\nA-1,6,61,positive,cT4a,2,90,yes\nA-2,,,,T0,N9,,\n"
    )
    find_table = read_table(path, "t.csv", edition)
    values = read_values(find_table, edition)
    assert values["A-1"] == {
        "Site": "6", "Years": 61.0, "HPV": 1, "T-stage": "T4", "N-stage": "N2", "RFS": 90.0, "Relapse": True,
    }  # fmt: skip
    assert values["A-2"] == {}
    errors = [(problem.found, problem.expected) for problem in find_table.problems if problem.is_error]
    assert errors == [("T-stage 'T0'", "T1 or T2 or T3 or T4"), ("N-stage 'N9'", "N0 or N1 or N2 or N3")]


@pytest.mark.parametrize(
    ("cell", "value"), [("1", True), ("0.0", False), ("Positive", True), ("no", False), ("NA", None)]
)
def test_targets_in_many_spellings(release: Path, cell: str, value: bool | None) -> None:
    find_table(release, "Task 3").write_text(f"PatientID,HPV Status\nMDA-001,{cell}\nCHUM-002,0\n")
    assert read_release(release, EDITION).cases[1].outcomes.get("HPV Status") is value


def test_the_centre_of_the_table_comes_before_the_id(release: Path) -> None:
    """Centres come from the table before the ID. A missing code must not make the patient a separate centre, because
    patients of the same centre would then leak between folds.
    """
    path = find_table(release, "Task 1")
    path.write_text(path.read_text().replace(",MDA,", ",6,").replace(",CHUM,", ",,"))
    read = read_release(release, EDITION)
    assert [case.centre for case in read.cases] == ["CHUM", "6"]
    assert [case.patient.centre for case in read.cases] == [None, "6"]
    assert read.problems == ()


@pytest.mark.parametrize("tasks", [("Task 1",), ("Task 2", "Task 3"), ("Task 3",)])
def test_any_of_the_task_folders(release: Path, tasks: tuple[str, ...]) -> None:
    for task in set(TABLES) - set(tasks):
        (release / task).rename(release / f".hidden {task}")
    read = read_release(release, EDITION)
    assert read.problems == ()
    assert [case.patient_id for case in read.cases] == ["CHUM-002", "MDA-001"]
    assert [case.mask is not None for case in read.cases] == ["Task 1" in tasks] * 2
    assert read.cases[1].outcomes.get("RFS") == (320.0 if "Task 2" in tasks else None)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("Patient,Relapse\nMDA-001,1\n", "no column PatientID (found Patient, Relapse)"),
        ("PatientID,RFS,rfs\nMDA-001,1,2\n", "column RFS appears twice, with different values in row 2"),
        ("", "not a readable table (no header in row 1)"),
        ("PatientID|Relapse\nMDA-001|1\n", "no column PatientID (found PatientID|Relapse)"),
        ("PatientID,RFS\nMDA-001,1,7\n", "not a readable table (row 2 has 3 cells, the header 2)"),
    ],
)
def test_tables_that_cannot_be_used(release: Path, text: str, finding: str) -> None:
    find_table(release, "Task 2").write_text(text)
    read = read_release(release, EDITION)
    errors = [problem for problem in read.problems if problem.is_error]
    assert [(p.kind, p.patient_id, p.found) for p in errors] == [("csv-unreadable", "", finding)]
    assert [case.outcomes.get("HPV Status") for case in read.cases] == [False, None]


def test_equal_columns_and_unread_columns_may_appear_twice(release: Path) -> None:
    """320 days agree in both spellings, and columns that are not read may appear twice."""
    text = "PatientID,Relapse,RFS,rfs,note,note,,\nMDA-001,1,320,320.0,a,b,,\n"
    find_table(release, "Task 2").write_text(text)
    read = read_release(release, EDITION)
    assert [problem for problem in read.problems if problem.is_error] == []
    assert read.cases[1].outcomes.get("RFS") == 320.0


@pytest.mark.parametrize("name", ["task 3", "HECKTOR_2025_Task_3"])
def test_a_task_under_another_name_is_not_passed_over_in_silence(release: Path, name: str) -> None:
    (release / "Task 3").rename(release / name)
    read = read_release(release, EDITION)
    assert [(p.severity, p.kind, p.file) for p in read.problems] == [("warning", "unexpected-file", name)]
    assert all("HPV Status" not in case.outcomes for case in read.cases)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("PatientID" + ",c" * 10_000 + "\n", "more than 10000 columns"),
        ("PatientID,RFS\n" + "x,1\n" * 100_001, "more than 100000 rows"),
        ("PatientID,RFS\n" + " " * (16 << 20), "16777230 bytes"),
    ],
)
def test_tables_are_bounded(release: Path, text: str, finding: str) -> None:
    find_table(release, "Task 2").write_text(text)
    assert [problem.found for problem in read_release(release, EDITION).problems if problem.is_error] == [finding]


def test_a_table_too_many_or_too_few(release: Path) -> None:
    (release / "Task 3" / "second.csv").write_text(TABLES["Task 3"])
    find_table(release, "Task 2").unlink()
    read = read_release(release, EDITION)
    assert [problem.expected for problem in read.problems] == [
        f"one, such as HECKTOR_2025_Training_Task_{task}.csv" for task in (2, 3)
    ]
    assert [(p.kind, p.file, p.found) for p in read.problems] == [
        ("csv-missing", "Task 2", "0 CSV files"),
        ("csv-doubled", "Task 3", "2 CSV files (HECKTOR_2025_Training_Task_3.csv, second.csv)"),
    ]


def test_the_rows_a_table_holds(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("PatientID,Age,Gender\n\n A-1 ,60.5, 1\nB-2,,NaN\n,,\n", encoding="utf-8-sig")
    read = read_table(path, "t.csv", EDITION)
    assert read.rows == {"A-1": {"Age": "60.5", "Gender": "1"}, "B-2": {}}
    assert read.problems == []


# Stages and recurrence as answers, HPV status as an input


P = "MDA-001"
COLUMNS = HEADER.split(",")[1:]
CODES = {"Gender": 1, "Tobacco Consumption": 1, "Alcohol Consumption": 1, "Treatment": 1, "HPV Status": 1,
         "Performance Status": 4}  # fmt: skip


def read_row(**cells: str) -> tuple[dict[str, Any], list[Problem]]:
    """Read the values and problems of a row; `_` in a name means a blank or hyphen."""
    row = {column: cells.get(column.replace(" ", "_").replace("-", "_"), "") for column in COLUMNS}
    table = ReleaseTable("t.csv", {P: {column: cell for column, cell in row.items() if cell}}, columns=tuple(row))
    return read_values(table, EDITION_2026)[P], table.problems


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("T-stage", "T2", "T2"), ("T-stage", "t2", "T2"), ("T-stage", "2.0", "T2"), ("T-stage", "T4b", "T4"),
        ("N-stage", "N2b", "N2"), ("N-stage", "n0", "N0"), ("N-stage", "0", "N0"), ("N-stage", "3.0", "N3"),
    ],
)  # fmt: skip
def test_stages(column: str, cell: str, value: str) -> None:
    values, problems = read_row(**{column.replace("-", "_"): cell})
    assert values == {column: value}
    assert not any(problem.is_error for problem in problems)


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [("T-stage", "T0", "T0"), ("T-stage", "0.0", "T0"), ("T-stage", "cTX", "TX"), ("N-stage", "Nx", "NX")],
)
def test_a_stage_that_is_not_counted(column: str, cell: str, value: str) -> None:
    """Patients with a stage outside the classes lose only this answer, and a warning names them."""
    values, problems = read_row(**{column.replace("-", "_"): cell}, Relapse="1", RFS="90")
    assert values == {"Relapse": True, "RFS": 90.0}
    ((severity, kind, patient, finding),) = [(p.severity, p.kind, p.patient_id, p.found) for p in problems]
    assert (severity, kind, patient) == ("warning", "not-counted", P)
    assert finding == f"{column} {value}: the patient counts for all other answers"


@pytest.mark.parametrize(
    ("cells", "kind", "finding"),
    [
        ({"RFS": "900"}, "days-without-event", "RFS 900 without Relapse, counted as missing"),
        ({"Relapse": "1.0"}, "event-without-days", "Relapse 1.0 without RFS, counted as missing"),
    ],
)
def test_half_an_outcome_leaves_the_other_answers(cells: dict[str, str], kind: str, finding: str) -> None:
    """In HECKTOR 2025 half an outcome is an error, since the algorithm has no other answer (test_planted_faults)."""
    values, problems = read_row(T_stage="T2", **cells)
    assert values == {"T-stage": "T2"}
    assert [(problem.severity, problem.kind, problem.found) for problem in problems] == [("warning", kind, finding)]


@given(
    column=st.sampled_from([*CODES, "Age", "RFS", "Relapse", "T-stage", "N-stage"]),
    number=st.integers(1, 4),
    zeros=st.integers(0, 3),
    point=st.booleans(),
)
def test_a_whole_number_has_one_value_in_all_spellings(column: str, number: int, zeros: int, point: bool) -> None:
    """`1`, `1.`, `1.0` and `1.000` are equal; numbers that are too large for a column are errors in each spelling."""
    name = column.replace(" ", "_").replace("-", "_")
    other_cells = {"Relapse": {"RFS": "9"}, "RFS": {"Relapse": "0"}}.get(column, {})
    cell = f"{number}." + "0" * zeros if point or zeros else str(number)
    plain, spelled = read_row(**{name: str(number)}, **other_cells), read_row(**{name: cell}, **other_cells)
    assert plain[0] == spelled[0]
    largest = {**CODES, "Relapse": 1, "N-stage": 3}.get(column, 4)
    assert (column in spelled[0]) == (number <= largest)
    assert [problem.kind for problem in spelled[1] if problem.is_error] == ["impossible-value"] * (number > largest)
