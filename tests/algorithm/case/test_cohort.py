"""Many cases in plain files: named as for nnU-Net, in a release, in two folders, and in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithm.case.inputs import BatchCase, find_cases, find_nnunet_cases, read_case_table
from contract.errors import InputError
from tests.algorithm.edition import EDITION, SEGMENTATION


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"image")


def find(ct: Path, pet: Path | None = None, ehr: Path | None = None) -> tuple[BatchCase, ...]:
    return find_cases(ct, pet, ehr, EDITION, SEGMENTATION)


def test_nnunets_names(tmp_path: Path) -> None:
    """Only case B fails, whose PET is absent; other files are ignored."""
    names = ("B_0000.nii.gz", "A_0000.mha", "A_0001.mha", "._C_0000.mha", "_0000.mha", "notes.txt")
    touch(*(tmp_path / name for name in names))
    expected = (
        BatchCase("A", tmp_path / "A_0000.mha", tmp_path / "A_0001.mha"),
        BatchCase("B", tmp_path / "B_0000.nii.gz", tmp_path / "B_0001.nii.gz"),
    )
    assert find(tmp_path) == expected
    pets = tmp_path / "pets"
    pets.mkdir()
    assert [case.pet for case in find(tmp_path, pets)] == [pets / "A_0001.mha", pets / "B_0001.nii.gz"]
    swapped, _ = find_nnunet_cases(tmp_path, tmp_path, ct_number=1, pet_number=0)
    assert (swapped.ct.name, swapped.pet.name) == ("A_0001.mha", "A_0000.mha")


def test_a_pet_without_a_ct_is_a_case_that_will_fail(tmp_path: Path) -> None:
    """Its absent CT becomes the reason. A folder with only PETs may hold other patients."""
    touch(tmp_path / "A_0000.mha", tmp_path / "A_0001.nii.gz", tmp_path / "B_0001.nii.gz")
    expected = (
        BatchCase("A", tmp_path / "A_0000.mha", tmp_path / "A_0001.nii.gz"),
        BatchCase("B", tmp_path / "B_0000.nii.gz", tmp_path / "B_0001.nii.gz"),
    )
    assert find(tmp_path) == expected
    pets = tmp_path / "pets"
    touch(pets / "A_0001.mha", pets / "C_0001.mha")
    assert [case.patient_id for case in find(tmp_path, pets)] == ["A"]


def test_two_pets_of_one_case_are_refused(tmp_path: Path) -> None:
    touch(tmp_path / "A_0000.mha", tmp_path / "A_0001.mha", tmp_path / "A_0001.nii.gz")
    with pytest.raises(InputError, match=r"^--ct: two files A_0001: A_0001\.mha and A_0001\.nii\.gz, expected one"):
        find(tmp_path)


def test_a_release(tmp_path: Path) -> None:
    """Clinical variables come from the release's table, without outcomes; a folder without images is no patient."""
    root = tmp_path / "Task 1"
    for patient in ("CHUM-001", "MDA-002"):
        touch(root / patient / f"{patient}__CT.nii.gz", root / patient / f"{patient}__PT.nii.gz")
    touch(root / "empty" / "notes.txt", root / "USZ-003" / "USZ-003__PT.nii.gz")
    (root / "HECKTOR_2025_Training_Task_1.csv").write_text("PatientID,Age,Relapse,RFS\nCHUM-001,60,1,500\n")
    first, second, third = find(tmp_path)
    assert third.ct == root / "USZ-003" / "USZ-003__CT.nii.gz"
    assert first.ct == root / "CHUM-001" / "CHUM-001__CT.nii.gz"
    assert first.pet == root / "CHUM-001" / "CHUM-001__PT.nii.gz"
    assert (first.clinical, second.clinical) == ({"Age": "60"}, {})
    assert (first.has_ehr, second.has_ehr) == (True, False)


def test_two_folders_with_equal_names(tmp_path: Path) -> None:
    touch(tmp_path / "ct" / "A.nii.gz", tmp_path / "ct" / "B.mha")
    ehr = tmp_path / "ehr"
    assert find(tmp_path / "ct", tmp_path / "pet", ehr) == (
        BatchCase("A", tmp_path / "ct" / "A.nii.gz", tmp_path / "pet" / "A.nii.gz", ehr / "A.json"),
        BatchCase("B", tmp_path / "ct" / "B.mha", tmp_path / "pet" / "B.mha", ehr / "B.json"),
    )


def test_a_table_of_paths(tmp_path: Path) -> None:
    """A relative path starts at the table; upper case and other columns do not matter."""
    table = tmp_path / "cases.csv"
    table.write_text("pet;CT;note;patientid;ehr\nb.mha;/scans/a.mha;x;P 2;\nd.mha;c.mha;;P 1;e.json\n")
    assert find(table) == (
        BatchCase("P 1", tmp_path / "c.mha", tmp_path / "d.mha", tmp_path / "e.json"),
        BatchCase("P 2", Path("/scans/a.mha"), tmp_path / "b.mha"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PatientID,CT\nA,a.mha\n", r"^cases\.csv: no column PET, expected the columns PatientID, CT, PET$"),
        ("PatientID,CT,PET\nA,a.mha,\n", r"^cases\.csv: row 2 without PET, expected a name and two paths in each row$"),
        (
            "PatientID,CT,PET\n../A,a.mha,b.mha\n",
            r"^cases\.csv: PatientID '\.\./A' in row 2, expected a name without /",
        ),
        ("PatientID,CT,PET\n", r"^--ct: no cases in "),
        ("PatientID,CT,PET,ct\nA,a.mha,b.mha,c.mha\n", r"^cases\.csv: column CT twice, expected each column once$"),
        (
            "PatientID,CT,PET\nA,a.mha,b.mha\nA,a.mha,c.mha\n",
            r"^--ct: two cases A: a\.mha and a\.mha, expected one CT and one PET for each case$",
        ),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cases.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        find(tmp_path / "cases.csv")


def test_what_is_no_cohort(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--ct: no cases in .*, expected images CASE_0000\.nii\.gz and CASE_0001"):
        find(tmp_path)
    touch(tmp_path / "A_0000.mha", tmp_path / "A_0000.nii.gz")
    with pytest.raises(InputError, match=r"^--ct: two files A_0000: A_0000\.mha and A_0000\.nii\.gz, expected one"):
        find(tmp_path)
    (tmp_path / "cases.csv").write_text("PatientID,CT,PET\nA,a.mha,b.mha\n")
    with pytest.raises(InputError, match=r"^--ct: the table cases\.csv with --pet or --ehr, expected all paths in the"):
        find(tmp_path / "cases.csv", tmp_path)
    assert read_case_table(tmp_path / "cases.csv")[0].patient_id == "A"
