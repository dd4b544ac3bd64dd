"""The patient's clinical variables and the answers that the viewer shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contract.editions import Algorithm, load_edition
from evaluation.results.task import TaskResults
from reporting.viewer.cohort import ViewerRequest, find_cohort
from reporting.viewer.patient import AnswerTables, format_clinical_values, read_record, read_tables
from tests.evaluation.builders import make_metrics, make_results
from tests.reporting.viewer.conftest import ToyCohort

EDITION = load_edition("hecktor2026")
HEADER = "PatientID,Age,HPV Status,T_stage,N-stage,Relapse,RFS\n"


ALPHA = {
    "segmentation": {},
    "t_stage": {"predicted_t_stage": "T2", "t_stage": "T3"},
    "n_stage": {"predicted_n_stage": None, "n_stage": "N1"},
    "rfs": {"risk": 1144.0, "rfs_days": 966.0, "relapse": True},
}


def make_results_of_alpha(task: Algorithm, edition: str, **row: object) -> TaskResults:
    """Return the results of one team, with one row."""
    return make_results({"alpha": make_metrics(rows=[{"case": "C-1", **row}])}, task, edition)


SCORED = make_results_of_alpha(EDITION.algorithms[0], EDITION.name, **ALPHA)


def test_each_team_has_a_row_below_the_reference() -> None:
    """Stages and days as answered, a missing answer as "none", the DSC last; a team without values has no row."""
    tables = AnswerTables(EDITION, [SCORED], {})
    shown = tables.build_table("C-1", {"GTVp DSC": {"alpha": 0.8421, "beta": None}}, ["alpha", "beta"])
    assert tables.build_table("C-2", {"GTVp DSC": {"beta": 0}}, ["beta"])["rows"] == [
        {"name": "beta", "texts": ["0.00"]}
    ]
    assert shown == {
        "columns": ["T Stage", "N Stage", "RFS", "GTVp DSC"],
        "rows": [
            {"name": "reference", "texts": ["T3", "N1", "966 days, relapse", ""]},
            {"name": "alpha", "texts": ["T2", "none", "1144 days", "0.84"]},
        ],
    }
    assert tables.build_table("C-2", {}, ["alpha"]) == {"columns": [], "rows": []}


def test_the_scored_reference_precedes_the_cohorts_table() -> None:
    row = {"T-stage": "T1", "N-stage": "N0", "RFS": "12", "Relapse": "0"}
    of_results = AnswerTables(EDITION, [SCORED], {"C-1": row}).build_table("C-1", {}, [])
    assert of_results["rows"] == [{"name": "reference", "texts": ["T3", "N1", "966 days, relapse"]}]
    of_table = AnswerTables(EDITION, [], {"C-1": row}).build_table("C-1", {}, [])
    assert of_table["rows"] == [{"name": "reference", "texts": ["T1", "N0", "12 days, no relapse"]}]


def test_clinical_variables_come_from_the_record_or_the_table(tmp_path: Path) -> None:
    """The record's age 61 precedes the table's 60; only the table has HPV, and neither has gender."""
    (tmp_path / "C-1" / "input").mkdir(parents=True)
    (tmp_path / "C-1" / "input" / "ehr.json").write_text(json.dumps({"Age": 61, "Performance Status": 2}))
    (tmp_path / "ground_truth").mkdir()
    (tmp_path / "ground_truth" / "table.csv").write_text(HEADER + "C-1,60,1,2,N2b,1,100\n")
    rows, notes = read_tables(tmp_path, EDITION)
    texts = dict(format_clinical_values(EDITION, read_record(tmp_path, "C-1", EDITION, []), rows["C-1"]))
    assert notes == []
    assert (texts["Age"], texts["Performance Status"]) == ("61 years", "2")
    assert (texts["HPV Status"], texts["Gender"]) == ("yes", "missing")
    reference = AnswerTables(EDITION, [], rows).build_table("C-1", {}, [])["rows"][0]["texts"]
    assert reference == ["T2", "N2", "100 days, relapse"]


def test_a_record_that_cannot_be_read_is_named(toy: ToyCohort, nodes) -> None:
    """Only cases of a release have no record; a record that is no JSON gives no factor to SUV and is named."""
    for case in ("C-1", "C-2"):
        toy.add(case, nodes)
    record = toy.root / "cohort" / "C-1" / "input" / "ehr.json"
    record.parent.mkdir(exist_ok=True)
    record.write_text("{")
    cohort = find_cohort(ViewerRequest(toy.root / "cohort"))
    (note,) = cohort.notes
    assert note.startswith("C-1: ehr.json")
    assert cohort.cases["C-1"].suv_factor is None


@pytest.mark.parametrize(
    ("tables", "rows", "note"),
    [
        # The value of the first table is shown; 60 and 60.0 agree, and a table adds the columns that the first one lacks.
        (
            {"a.csv": "PatientID,Age\nC-1,60\nC-2,50\n", "b.csv": "PatientID,Age,Gender\nC-1,61,1\nC-2,50.0,0\n"},
            {"C-1": {"Age": "60", "Gender": "1"}, "C-2": {"Age": "50", "Gender": "0"}},
            "b.csv has values that differ from another table and are not shown: C-1: Age 61",
        ),
        # The first of two rows of a patient is shown.
        (
            {"a.csv": "PatientID,Age\nC-1,60\nC-1,61\nC-2\nC-3,50\n"},
            {"C-1": {"Age": "60"}, "C-3": {"Age": "50"}},
            "a.csv has rows that are not shown: C-1: rows 2 and 3, C-2: row 4 has 1 cells",
        ),
        ({"a.csv": "Age\n60\n"}, {}, "a.csv is not shown: no column PatientID (found Age)"),
        ({"a.csv": ""}, {}, "a.csv is not shown: "),
    ],
)
def test_values_that_cannot_be_used_are_named(tmp_path: Path, tables: dict, rows: dict, note: str) -> None:
    (tmp_path / "ground_truth").mkdir()
    for name, text in tables.items():
        (tmp_path / "ground_truth" / name).write_text(text)
    result, (named,) = read_tables(tmp_path, EDITION)
    assert result == rows
    assert named.startswith(note)


def test_a_task_folder_of_a_release_shows_the_other_tasks_tables(toy: ToyCohort, nodes) -> None:
    """In 2025 the masks are in `Task 1` and the follow-up in the table of `Task 2`."""
    toy.add("C-1", nodes)
    release = toy.root / "release"
    for folder in ("Task 1", "Task 2"):
        (release / folder).mkdir(parents=True)
    (toy.root / "cohort" / "C-1").rename(release / "Task 1" / "C-1")
    (release / "Task 2" / "t.csv").write_text("PatientID,Age,Relapse,RFS\nC-1,60,1,100\n")
    case = find_cohort(ViewerRequest(release / "Task 1")).cases["C-1"]
    assert case.answers["rows"] == [{"name": "reference", "texts": ["100 days, relapse"]}]
