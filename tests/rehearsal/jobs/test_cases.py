"""Cases of a cohort, and their layout as a job's input."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.editions.inputs import CT, RT_DOSE
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume, write_volume
from rehearsal.jobs.cases import find_cases, stage_job

EDITION = load_edition()
SEGMENTATION, RFS, _ = EDITION.algorithms


def test_cases_must_be_complete(cohort: Path, tmp_path: Path):
    assert [case.case_id for case in find_cases(cohort, SEGMENTATION)] == ["A-1", "B-2"]
    assert [case.case_id for case in find_cases(cohort, SEGMENTATION, ["B-2"])] == ["B-2"]
    with pytest.raises(InputError, match="no case C-3"):
        find_cases(cohort, SEGMENTATION, ["C-3"])
    with pytest.raises(InputError, match="no such folder"):
        find_cases(cohort / "absent", SEGMENTATION)
    with pytest.raises(InputError, match="no folder <ID>/input"):
        find_cases(cohort / "A-1", SEGMENTATION)
    (cohort / "A-1" / "input" / "ehr.json").unlink()
    with pytest.raises(InputError, match=r"A-1: no ehr\.json"):
        find_cases(cohort, RFS)


def test_other_formats_are_converted_to_mha(cohort: Path, tmp_path: Path):
    folder = EDITION.inputs[CT].path_under(cohort / "A-1" / "input")
    volume = read_volume(folder / "scan.mha")
    (folder / "scan.mha").unlink()
    array = volume.array.copy()
    array[1, 2, 3] = 77
    write_volume(folder / "scan.nii.gz", Volume(array, volume.geometry))
    case = find_cases(cohort, SEGMENTATION)[0]
    job = stage_job(case, tmp_path / "job")
    (staged,) = (tmp_path / "job" / "images" / "ct").iterdir()
    assert staged.name == f"{job.entries[0]['image']['pk']}.mha"
    again = read_volume(staged)
    assert again.geometry.find_differences(volume.geometry) == []
    assert again.array[1, 2, 3] == 77


def test_only_task_two_gets_the_dose(cohort: Path):
    folder = EDITION.inputs[RT_DOSE].path_under(cohort / "A-1" / "input")
    ct = EDITION.inputs[CT].path_under(cohort / "A-1" / "input") / "scan.mha"
    folder.mkdir()
    (folder / "dose.mha").write_bytes(ct.read_bytes())
    assert EDITION.inputs[RT_DOSE] in dict(find_cases(cohort, RFS)[0].files)
    assert EDITION.inputs[RT_DOSE] not in dict(find_cases(cohort, SEGMENTATION)[0].files)
