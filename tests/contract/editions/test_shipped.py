"""The editions of the package: HECKTOR 2025 and 2026, and HNTS-MRG 2024."""

from __future__ import annotations

import pytest

from contract.editions import load_edition
from contract.editions.inputs import CT_AND_PET
from contract.errors import HecktorError


def test_hecktor_2025_has_three_algorithms_with_one_answer_each() -> None:
    """Paths and time limits as in the challenge's description: 600, 900 and 600 s per case."""
    edition = load_edition()
    assert edition.name == "hecktor2025"
    rows = [(task.number, task.name, task.time_limit_s, task.answers[0].kind) for task in edition.algorithms]
    assert rows == [(1, "segmentation", 600.0, "mask"), (2, "rfs", 900.0, "risk"), (3, "hpv", 600.0, "class")]
    assert edition.find_algorithm("2") is edition.find_algorithm("RFS ")
    assert list(edition.find_algorithm("rfs").optional_inputs) == ["ct_planning", "rt_dose"]
    paths = [answer.socket.relative_path for task in edition.algorithms for answer in task.answers]
    assert paths == ["images/tumor-lymph-node-segmentation", "rfs.json", "hpv-status.json"]
    paths = [socket.relative_path for socket in edition.find_algorithm("1").inputs.values()]
    assert paths == ["images/ct", "images/pet", "ehr.json"]
    kinds = [answer.socket.kind for task in edition.algorithms for answer in task.answers]
    assert kinds == ["Segmentation", "Float", "Bool"]
    assert edition.find_algorithm("hpv").answers[0].is_binary
    names = [(task.image, task.evaluation_image) for task in edition.algorithms]
    assert names[0] == ("hecktor-segmentation", "hecktor-evaluation-segmentation")
    assert names[2] == ("hecktor-hpv", "hecktor-evaluation-hpv")


def test_the_algorithm_of_2026_writes_four_answers_within_25_minutes() -> None:
    edition = load_edition("hecktor2026")
    algorithm = edition.find_algorithm()
    paths = [answer.socket.relative_path for answer in algorithm.answers]
    assert paths == ["images/head-neck-tumor-segmentation", "t-stage.json", "n-stage.json", "rfs.json"]
    assert algorithm.time_limit_s == 25 * 60
    assert (algorithm.image, algorithm.evaluation_image) == ("hecktor-2026", "hecktor-evaluation-2026")
    assert algorithm.find_answer("rfs").direction == "time"
    assert algorithm.find_answer("n_stage").without == {"GTVn": "N0"}
    assert edition.inputs["ehr"].slug == "electronic-health-record"
    assert algorithm.always_answers
    assert not any(algorithm.always_answers for algorithm in load_edition().algorithms)


def test_clinical_keys_of_2026_equal_the_keys_of_the_sample_record() -> None:
    assert {variable.key for variable in load_edition("hecktor2026").clinical} == {
        "CenterID", "Age", "Gender", "Tobacco Consumption", "Alcohol Consumption", "Performance Status", "Treatment",
        "HPV Status",
    }  # fmt: skip


def test_the_suv_factor_is_no_clinical_variable() -> None:
    edition = load_edition("hecktor2026")
    assert edition.suv_factor == ("SUV Factor", "bqml_to_suvbw_factor")
    assert not {spelling for variable in edition.clinical for spelling in variable.spellings} & set(edition.suv_factor)
    assert load_edition().suv_factor == ()


def test_the_two_algorithms_of_hntsmrg_2024() -> None:
    """HNTS-MRG 2024, 2.4 and 2.5: one MR before radiotherapy; during it two MR and two masks more; 20 minutes a case."""
    before, during = load_edition("hntsmrg2024").algorithms
    assert (before.name, before.modality, before.channels) == ("pre-rt", "MR", ("mr_before",))
    assert during.scan.slug == "mid-rt-t2w-head-neck"
    masks = ("mask_registered GTVp", "mask_registered GTVn")
    assert during.channels == ("mr_during", "mr_registered", *masks)
    assert [before.time_limit_s, during.time_limit_s] == [1200, 1200]
    assert load_edition().algorithms[0].channels == CT_AND_PET


def test_a_training_takes_one_task_where_networks_differ() -> None:
    edition = load_edition("hntsmrg2024")
    assert [task.name for task in edition.select_for_training("2").algorithms] == ["mid-rt"]
    with pytest.raises(HecktorError, match="--task: found none"):
        edition.select_for_training(None)
    with pytest.raises(HecktorError, match="--task: found '1'"):
        load_edition().select_for_training("1")
