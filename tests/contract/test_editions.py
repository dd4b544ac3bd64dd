"""Declarations of editions: the shipped one, a made-up one with four answers, and files that break the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.editions import known_editions, load_edition
from contract.errors import HecktorError

FOUR = Path(__file__).parents[1] / "editions" / "four_answers.json"


def test_hecktor_2025_has_three_algorithms_with_one_answer_each() -> None:
    """Sockets, limits and numbers as in the challenge's description (platform.md): 600, 900 and 600 s."""
    edition = load_edition()
    assert edition.name == "hecktor2025"
    assert known_editions() == ("hecktor2025",)
    rows = [(one.number, one.name, one.time_limit_s, one.answers[0].kind) for one in edition.algorithms]
    assert rows == [(1, "segmentation", 600.0, "mask"), (2, "rfs", 900.0, "risk"), (3, "hpv", 600.0, "class")]
    assert edition.algorithm("2") is edition.algorithm("RFS ")
    assert list(edition.algorithm("rfs").optional_inputs) == ["ct_planning", "rt_dose"]
    numbers = [socket.pk for socket in edition.inputs.values()]
    numbers += [answer.socket.pk for one in edition.algorithms for answer in one.answers]
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
    kinds = [answer.socket.kind for one in edition.algorithms for answer in one.answers]
    assert kinds == ["Segmentation", "Float", "Bool"]
    assert edition.algorithm("hpv").answers[0].is_binary


def test_an_edition_from_a_file() -> None:
    edition = load_edition(str(FOUR))
    algorithm = edition.algorithm()
    assert [answer.kind for answer in algorithm.answers] == ["mask", "class", "class", "risk"]
    assert algorithm.mask is algorithm.answers[0]
    assert algorithm.answer("survival").direction == "time"
    assert [answer.socket.kind for answer in algorithm.heads] == ["String", "String", "Float"]
    assert edition.evaluation_profile == str(FOUR.with_name("four_answers_profile.json"))
    assert edition.source == str(FOUR)


def test_a_task_that_is_not_there() -> None:
    with pytest.raises(HecktorError, match="edition hecktor2025: found task '4', expected one of segmentation, 1, rfs"):
        load_edition().algorithm("4")
    with pytest.raises(HecktorError, match="edition hecktor2025: found no task, expected one of"):
        load_edition().algorithm()


def test_an_edition_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match="edition: found 'hecktor1999', expected one of hecktor2025 or a decl"):
        load_edition("hecktor1999")
    with pytest.raises(HecktorError, match=r"absent.json: not found"):
        load_edition(str(tmp_path / "absent.json"))


def change(path: list[Any], value: Any) -> Callable[[Any], None]:
    """Set one place of the declaration; None deletes it."""

    def apply(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        if value is None:
            del content[path[-1]]
        else:
            content[path[-1]] = value

    return apply


ANSWERS = ["algorithms", 0, "answers"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(["format"], 2), "format: found 2, expected 1"),
        (change(["colour"], "red"), "found an object with colour, expected format, name"),
        (change(["inputs", "pet"], None), "inputs: found an object without pet"),
        (change(["clinical", 0, "type"], "shoe size"), r"clinical\[0\].type: found 'shoe size', expected one of years"),
        (change(["clinical", 0, "name"], "centre"), r"clinical\[0\].name: found 'centre' of type 'years'"),
        (change(["clinical", 0, "name"], "hpv_status"), "clinical: found hpv_status twice, expected each once"),
        (change(["algorithms"], []), "algorithms: found list, expected a list with at least one entry"),
        (change(["algorithms", 0, "inputs"], ["mri"]), r"algorithms\[0\].inputs: found 'mri', expected some of ct"),
        (change(["algorithms", 0, "time_limit_s"], 0), r"time_limit_s: found 0, expected seconds above 0"),
        (change([*ANSWERS, 1, "kind"], "mask"), r"answers\[1\].classes: found \['T1', 'T2', 'T3', 'T4'\], expected"),
        (change([*ANSWERS, 0, "labels"], None), r"answers\[0\]: found a mask without `labels`"),
        (change([*ANSWERS, 3, "direction"], "up"), r"answers\[3\].direction: found 'up', expected one of risk, time"),
        (change([*ANSWERS, 3, "columns"], {"time": "RFS"}), r"answers\[3\].columns: found time, expected time, event"),
        (change([*ANSWERS, 2, "path"], "t-stage.json"), "answers: found t-stage.json twice, expected each once"),
        (change([*ANSWERS, 2, "title"], " "), r"answers\[2\].title: found ' ', expected a text"),
    ],
)
def test_a_declaration_that_breaks_the_schema(tmp_path: Path, spoil: Callable[[Any], None], message: str) -> None:
    content = json.loads(FOUR.read_text())
    spoil(content)
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=message):
        load_edition(str(path))
