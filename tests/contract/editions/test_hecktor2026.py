"""The declaration of HECKTOR 2026 and what only it uses: rules from the mask, classes without a structure, an image."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.errors import HecktorError

SOURCE = Path(__file__).parents[3] / "contract" / "editions" / "hecktor2026.json"


def test_one_algorithm_writes_four_answers_within_25_minutes() -> None:
    edition = load_edition("hecktor2026")
    algorithm = edition.find_algorithm()
    assert [answer.socket.relative_path for answer in algorithm.answers] == [
        "images/head-neck-tumor-segmentation",
        "t-stage.json",
        "n-stage.json",
        "rfs.json",
    ]
    assert algorithm.time_limit_s == 25 * 60
    assert (algorithm.image, algorithm.evaluation_image) == ("hecktor-2026", "hecktor-evaluation-2026")
    assert algorithm.find_answer("rfs").direction == "time"
    assert algorithm.find_answer("n_stage").without == {"GTVn": "N0"}
    assert edition.inputs["ehr"].slug == "electronic-health-record"


def test_clinical_keys_are_those_of_the_sample_record() -> None:
    keys = [variable.key for variable in load_edition("hecktor2026").clinical]
    assert sorted(keys) == sorted(
        ["CenterID", "Age", "Gender", "Tobacco Consumption", "Alcohol Consumption", "Performance Status", "Treatment",
         "HPV Status"]
    )  # fmt: skip


def test_images_of_2025_are_named_after_the_tasks() -> None:
    names = [(one.image, one.evaluation_image) for one in load_edition("hecktor2025").algorithms]
    assert names[0] == ("hecktor-segmentation", "hecktor-evaluation-segmentation")
    assert names[2] == ("hecktor-hpv", "hecktor-evaluation-hpv")


NO_CLASS_LEFT = {
    "classes": ["N0", "N1"], "without": {"GTVp": "N1", "GTVn": "N0"}, "fallback": "N1", "words": {}
}  # fmt: skip


def _answer(content: Any, name: str) -> dict[str, Any]:
    return next(one for one in content["algorithms"][0]["answers"] if one["name"] == name)


def _keep_only(content: Any, name: str) -> None:
    content["algorithms"][0]["answers"] = [_answer(content, name)]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: _answer(content, "t_stage").update(rule="by_eye"), "'t_stage_7th' or 'n_stage_7th'"),
        (lambda content: _answer(content, "n_stage").update(without={"GTVn": "N4"}), "one of the classes"),
        (lambda content: _answer(content, "n_stage").update(without={"GTVx": "N0"}), "not 'GTVx'"),
        (lambda content: _answer(content, "n_stage").update(NO_CLASS_LEFT), "at least one class that is left"),
        (
            lambda content: _answer(content, "rfs").update(fallback=0),
            r"answers\[3\]\.fallback: found 0, expected days above 0",
        ),
        (lambda content: _keep_only(content, "t_stage"), "a mask among the answers"),
        (lambda content: content.update(suv_factor=["AGE"]), "not age twice"),
        (lambda content: content["algorithms"][0].update(image="Hecktor 2026"), "a name of lower-case letters"),
    ],
)
def test_a_spoilt_declaration_names_the_place(tmp_path: Path, spoil: Callable[[Any], object], message: str) -> None:
    content = json.loads(SOURCE.read_text())
    spoil(content)
    path = tmp_path / "edition.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=message):
        load_edition(str(path))


def test_every_answer_has_a_fallback_in_2026_alone() -> None:
    assert load_edition("hecktor2026").find_algorithm().always_answers
    assert [algorithm.always_answers for algorithm in load_edition().algorithms] == [False, False, False]


def test_the_suv_factor_is_no_clinical_variable() -> None:
    edition = load_edition("hecktor2026")
    assert edition.suv_factor == ("SUV Factor", "bqml_to_suvbw_factor")
    assert not {spelling for variable in edition.clinical for spelling in variable.spellings} & set(edition.suv_factor)
    assert load_edition().suv_factor == ()
