"""Tests of releases with one folder for all answers, in the places and spellings seen, and with three task folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.release.cases import Release, read_release
from baseline.release.prepare import check_release
from baseline.work import PrepareOptions, WorkFolders
from contract.editions import load_edition
from contract.errors import InputError
from tests.baseline.release.one_folder import EDITION, FOLDER, HEADER, ROWS, TABLE, add_patient, format_table


def write_release(folder: Path, table: Path | None = None) -> None:
    """Write two patients below `folder` and their table, by default inside."""
    for patient in ROWS:
        add_patient(folder, patient)
    (table or folder / TABLE).write_text(format_table())


def find_problem(release: Release, kind: str) -> tuple[str, str, str]:
    """Return severity, file and finding of the only problem of a kind."""
    (problem,) = [problem for problem in release.problems if problem.kind == kind]
    return problem.severity, problem.file, problem.found


@pytest.mark.parametrize(
    ("images", "place", "path", "name"),
    [
        (FOLDER, FOLDER, ".", "HECKTOR_2026_training_data.csv"),
        (FOLDER, FOLDER, FOLDER, "HECKTOR_2026_Training.csv"),
        (f"{FOLDER}/{FOLDER}", FOLDER, ".", TABLE),
        (f"{FOLDER}/{FOLDER}", ".", FOLDER, TABLE),
    ],
)
def test_the_folder_its_parent_or_the_nested_one(tmp_path: Path, images: str, place: str, path: str, name: str) -> None:
    download = tmp_path / "download"
    write_release(download / images, download / place / name)
    release = read_release(download / path, EDITION)
    assert release.problems == ()
    assert [(case.patient_id, case.centre) for case in release.cases] == [("CHUM-002", "1"), ("MDA-001", "5")]
    first, second = release.cases
    assert first.outcomes == {"T-stage": "T2", "N-stage": "N1", "Relapse": False, "RFS": 900.0}
    assert second.outcomes == {"T-stage": "T4", "N-stage": "N0", "Relapse": True, "RFS": 320.0}
    assert (first.patient.values["hpv_status"], second.patient.values["hpv_status"]) == (None, 1)
    assert second.mask == download / images / "MDA-001" / "MDA-001.nii.gz"


def test_a_table_without_all_outcomes_is_second_choice(tmp_path: Path) -> None:
    """Tables with all outcomes win over predictions without `Relapse` and over factors without outcomes."""
    write_release(tmp_path / FOLDER)
    (tmp_path / "predictions.csv").write_text("PatientID,T-stage,N-stage,RFS\nMDA-001,T1,N1,3\n")
    (tmp_path / FOLDER / "factors.csv").write_text("pid,bqml_to_suvbw_factor\nMDA-001,0.1\n")
    release = read_release(tmp_path, EDITION)
    assert release.problems == ()
    assert [case.outcomes["T-stage"] for case in release.cases] == ["T2", "T4"]
    (tmp_path / FOLDER / TABLE).unlink()
    assert [case.outcomes.get("T-stage") for case in read_release(tmp_path, EDITION).cases] == [None, "T1"]


@pytest.mark.parametrize(
    ("header", "missing", "answer", "unknown"),
    [
        (HEADER.replace(",T-stage", ",Tstadium"), "T-stage", "t_stage", "Tstadium"),
        (HEADER.replace("Relapse,RFS", "Note,More"), "RFS, Relapse", "rfs", "Note, More"),
        (HEADER.replace("Relapse,", "Note,"), "Relapse", "rfs", "Note"),
    ],
    ids=["a class", "both columns of a risk", "one column of a risk"],
)
def test_a_table_without_the_column_of_an_outcome_is_an_error(
    tmp_path: Path, header: str, missing: str, answer: str, unknown: str
) -> None:
    write_release(tmp_path / FOLDER)
    (tmp_path / FOLDER / TABLE).write_text(format_table(header=header))
    for allowed, severity in (((), "error"), ((answer,), "warning")):
        release = read_release(tmp_path, EDITION, allowed)
        missing_column, unknown_columns = sorted(
            release.problems, key=lambda problem: not problem.found.startswith("no column")
        )
        assert (missing_column.severity, missing_column.kind, missing_column.patient_id) == (severity, "csv-column", "")
        assert missing_column.file == f"{FOLDER}/{TABLE}"
        assert missing_column.found == f"no column {missing} for {answer} (unknown columns: {unknown})"
        assert missing_column.expected == ("one" if allowed else f"one, or --allow-missing {answer}")
        assert unknown_columns.found == f"unknown columns: {unknown}"
        outcomes = {name for case in release.cases for name in case.outcomes}
        assert outcomes == {"T-stage", "N-stage", "RFS", "Relapse"} - set(
            ("RFS, Relapse" if answer == "rfs" else missing).split(", ")
        )


def test_a_column_without_values_is_a_warning(tmp_path: Path) -> None:
    write_release(tmp_path / FOLDER)
    (tmp_path / FOLDER / TABLE).write_text(
        format_table([row.replace(",N1", ",").replace(",N0", ",") for row in ROWS.values()])
    )
    assert find_problem(read_release(tmp_path, EDITION), "csv-column") == (
        "warning",
        f"{FOLDER}/{TABLE}",
        "no value of N-stage in any row: nothing to train n_stage on",
    )


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("Relapse,RFS", "progression,Progression free survival"),
        HEADER.replace("Relapse,RFS,T-stage", "Relapse,RFS,T-stage,PFS"),
    ],
)
def test_progression_free_survival_is_the_outcome_if_there_is_no_recurrence(tmp_path: Path, header: str) -> None:
    """Releases of 2021 report progression. If a table has both RFS and PFS, RFS is read."""
    write_release(tmp_path / FOLDER)
    rows = [
        f"{row.rpartition(',')[0]},7,{row.rpartition(',')[2]}" if "T-stage,PFS" in header else row
        for row in ROWS.values()
    ]
    (tmp_path / FOLDER / TABLE).write_text(format_table(rows, header))
    cases = read_release(tmp_path, EDITION).cases
    assert [(case.outcomes["Relapse"], case.outcomes["RFS"]) for case in cases] == [(False, 900.0), (True, 320.0)]


def test_only_missing_answers_may_be_allowed_to_be_missing(tmp_path: Path) -> None:
    write_release(tmp_path / FOLDER)
    for name, says in (("rfs", "found rfs, which 2 patients have"), ("hpv", "found hpv, expected one of t_stage, n_")):
        options = PrepareOptions(str(tmp_path), edition="hecktor2026", allow_missing=(name,))
        with pytest.raises(InputError, match=f"--allow-missing: {says}"):
            check_release(options, WorkFolders(tmp_path / "work"), 1)


def test_patients_in_two_folders_are_refused(tmp_path: Path) -> None:
    write_release(tmp_path / FOLDER)
    write_release(tmp_path / "without MDA")
    with pytest.raises(InputError, match=rf": found patients in 2 folders \({FOLDER}, without MDA\), expected one"):
        read_release(tmp_path, EDITION)


def test_an_edition_with_one_algorithm_reads_task_folders(tmp_path: Path) -> None:
    """Columns may be called `T_stage`, `N_stage` and `Center`, which the organisers' baseline reads."""
    write_release(tmp_path / "Task 1")
    (tmp_path / "Task 1" / TABLE).write_text(
        format_table(header=HEADER.replace("-", "_").replace("CenterID", "Center"))
    )
    release = read_release(tmp_path, EDITION)
    assert release.problems == ()
    assert [case.outcomes["N-stage"] for case in release.cases] == ["N1", "N0"]
    assert [case.patient.centre for case in release.cases] == ["1", "5"]


def test_an_edition_with_three_algorithms_needs_task_folders(tmp_path: Path) -> None:
    write_release(tmp_path / FOLDER)
    with pytest.raises(InputError, match=rf": found {FOLDER}, expected one or more of Task 1, Task 2, Task 3$"):
        read_release(tmp_path, load_edition("hecktor2025"))


def test_a_patient_without_a_mask_trains_the_heads(tmp_path: Path) -> None:
    write_release(tmp_path / FOLDER)
    (tmp_path / FOLDER / "MDA-001" / "MDA-001.nii.gz").unlink()
    release = read_release(tmp_path, EDITION)
    finding = "no MDA-001.nii.gz: without a reference mask only the heads can use it"
    assert find_problem(release, "no-mask") == ("warning", f"{FOLDER}/MDA-001", finding)
    assert len(release.problems) == 1
    assert [case.mask is None for case in release.cases] == [False, True]


@pytest.mark.parametrize("place", [".", FOLDER])
def test_the_organisers_splits_are_ignored(tmp_path: Path, place: str) -> None:
    write_release(tmp_path / FOLDER)
    (tmp_path / place / "splits_final.json").write_text("[]")
    release = read_release(tmp_path, EDITION)
    severity, file, finding = find_problem(release, "split-file")
    assert (severity, tmp_path / file) == ("warning", tmp_path / place / "splits_final.json")
    assert finding.endswith("name patients who are not in the release; the file is ignored")
    assert len(release.problems) == 1


def test_a_whole_centre_without_images(tmp_path: Path) -> None:
    """Rows of a centre without images give one warning, rows of a patient without images an error; MDA-007 is such a
    patient.

    USZ has the code 7, or without a code the name in its IDs.
    """
    write_release(tmp_path / FOLDER)
    more = [ROWS["MDA-001"].replace("MDA-001", patient) for patient in ("USZ-001", "USZ-002", "MDA-007")]
    for code, centre in (("7", "7"), ("", "USZ")):
        rows = [row.replace(",5,", f",{code},") if row.startswith("USZ") else row for row in more]
        (tmp_path / FOLDER / TABLE).write_text(format_table([*ROWS.values(), *rows]))
        release = read_release(tmp_path, EDITION)
        assert find_problem(release, "centre-without-images")[2] == f"2 rows of {centre}, no folder of this centre"
    assert find_problem(release, "row-without-images")[0] == "error"
    assert len(release.problems) == 2
    assert [case.patient_id for case in release.cases] == ["CHUM-002", "MDA-001"]
