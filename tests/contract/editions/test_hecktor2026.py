"""The declaration of HECKTOR 2026, and its rules from the mask, classes without a structure and image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.errors import HecktorError

SOURCE = Path(__file__).parents[3] / "contract" / "editions" / "hecktor2026.json"


def test_one_algorithm_writes_four_answers_within_25_minutes() -> None:
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


def test_clinical_keys_equal_the_keys_of_the_sample_record() -> None:
    keys = [variable.key for variable in load_edition("hecktor2026").clinical]
    assert sorted(keys) == sorted(
        ["CenterID", "Age", "Gender", "Tobacco Consumption", "Alcohol Consumption", "Performance Status", "Treatment",
         "HPV Status"]
    )  # fmt: skip


def test_images_of_2025_are_named_after_the_tasks() -> None:
    names = [(task.image, task.evaluation_image) for task in load_edition("hecktor2025").algorithms]
    assert names[0] == ("hecktor-segmentation", "hecktor-evaluation-segmentation")
    assert names[2] == ("hecktor-hpv", "hecktor-evaluation-hpv")


N_STAGE = {"classes": ["N0", "N1"], "without": {"GTVp": "N1", "GTVn": "N0"}, "fallback": "N1", "words": {}}


@pytest.mark.parametrize(
    ("answer", "changes", "message"),
    [
        ("t_stage", {"rule": "by_eye"}, "'t_stage_7th' or 'n_stage_7th'"),
        ("n_stage", {"without": {"GTVn": "N4"}}, "one of the classes"),
        ("n_stage", {"without": {"GTVx": "N0"}}, "not 'GTVx'"),
        ("n_stage", N_STAGE, "at least one class without a structure"),
        ("rfs", {"fallback": 0}, r"answers\[3\]\.fallback: found 0, expected days above 0"),
        ("algorithm", {"answers": ["t_stage"]}, "a mask among the answers"),
        ("edition", {"suv_factor": ["AGE"]}, "not age twice"),
        ("algorithm", {"image": "Hecktor 2026"}, "a name of lower-case letters"),
    ],
)
def test_an_invalid_declaration_is_named(tmp_path: Path, answer: str, changes: dict[str, Any], message: str) -> None:
    content = json.loads(SOURCE.read_text())
    (algorithm,) = content["algorithms"]
    parts = {"edition": content, "algorithm": algorithm, **{part["name"]: part for part in algorithm["answers"]}}
    if "answers" in changes:
        changes = {"answers": [parts[name] for name in changes["answers"]]}
    parts[answer].update(changes)
    path = tmp_path / "edition.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=message):
        load_edition(str(path))


def test_the_suv_factor_is_no_clinical_variable() -> None:
    edition = load_edition("hecktor2026")
    assert edition.suv_factor == ("SUV Factor", "bqml_to_suvbw_factor")
    assert not {spelling for variable in edition.clinical for spelling in variable.spellings} & set(edition.suv_factor)
    assert load_edition().suv_factor == ()
