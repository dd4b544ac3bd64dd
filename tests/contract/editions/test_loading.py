"""Load declarations: the shipped edition, an example with four answers, and invalid files."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.editions import known_editions, load_edition, loading
from contract.errors import HecktorError
from contract.patient import parse_ehr

FOUR = Path(__file__).parents[2] / "editions" / "four_answers.json"


def test_hecktor_2025_has_three_algorithms_with_one_answer_each() -> None:
    """Paths and time limits as in the challenge's description: 600, 900 and 600 s per case."""
    edition = load_edition()
    assert edition.name == "hecktor2025"
    assert known_editions() == ("hecktor2025", "hecktor2026")
    rows = [(one.number, one.name, one.time_limit_s, one.answers[0].kind) for one in edition.algorithms]
    assert rows == [(1, "segmentation", 600.0, "mask"), (2, "rfs", 900.0, "risk"), (3, "hpv", 600.0, "class")]
    assert edition.algorithm("2") is edition.algorithm("RFS ")
    assert list(edition.algorithm("rfs").optional_inputs) == ["ct_planning", "rt_dose"]
    numbers = [socket.pk for socket in edition.inputs.values()]
    numbers += [answer.socket.pk for one in edition.algorithms for answer in one.answers]
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
    paths = [answer.socket.relative_path for one in edition.algorithms for answer in one.answers]
    assert paths == ["images/tumor-lymph-node-segmentation", "rfs.json", "hpv-status.json"]
    paths = [socket.relative_path for socket in edition.algorithm("1").inputs.values()]
    assert paths == ["images/ct", "images/pet", "ehr.json"]
    kinds = [answer.socket.kind for one in edition.algorithms for answer in one.answers]
    assert kinds == ["Segmentation", "Float", "Bool"]
    assert edition.algorithm("hpv").answers[0].is_binary


def test_load_an_edition_from_a_file() -> None:
    edition = load_edition(str(FOUR))
    algorithm = edition.algorithm()
    assert [answer.kind for answer in algorithm.answers] == ["mask", "class", "class", "risk"]
    assert algorithm.mask is algorithm.answers[0]
    assert algorithm.answer("survival").direction == "time"
    assert [answer.socket.kind for answer in algorithm.heads] == ["String", "String", "Float"]
    assert edition.evaluation_profile == str(FOUR.with_name("four_answers_profile.json"))
    assert edition.source == str(FOUR)


def test_unknown_task() -> None:
    with pytest.raises(HecktorError, match="edition hecktor2025: found task '4', expected one of segmentation, 1, rfs"):
        load_edition().algorithm("4")
    with pytest.raises(HecktorError, match="edition hecktor2025: found no task, expected one of"):
        load_edition().algorithm()


def test_unknown_edition(tmp_path: Path) -> None:
    with pytest.raises(
        HecktorError, match="edition: found 'hecktor1999', expected one of hecktor2025, hecktor2026 or a decl"
    ):
        load_edition("hecktor1999")
    with pytest.raises(HecktorError, match=r"absent.json: not found"):
        load_edition(str(tmp_path / "absent.json"))


def change(path: list[Any], value: Any) -> Callable[[Any], None]:
    """Set the value at `path` of a declaration; None deletes it."""

    def apply(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        if value is None:
            del content[path[-1]]
        else:
            content[path[-1]] = value

    return apply


INPUTS = ["inputs"]
CODE = ["clinical", 1]
ALGORITHM = ["algorithms", 0]
ANSWERS = [*ALGORITHM, "answers"]
NAN = float("nan")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(["format"], 2), "format: found 2, expected 1"),
        (change(["format"], True), "format: found True, expected 1"),
        (change(["colour"], "red"), "found an object with colour, expected format, name"),
        (change(["name"], "../four"), r"name: found '../four', expected a name of lower-case letters"),
        (change(["title"], NAN), "found NaN, expected standard JSON"),
        (change([*INPUTS, "pet"], None), "inputs: found an object without pet"),
        (change([*INPUTS, "ct", "kind"], "Anything"), "inputs.ct.kind: found 'Anything', expected Image"),
        (change([*INPUTS, "ehr", "kind"], "Image"), "inputs.ehr.kind: found 'Image', expected the kind of a JSON"),
        (change([*INPUTS, "ct", "path"], "/etc"), "inputs.ct.path: found '/etc', expected a relative path"),
        (change([*INPUTS, "ct", "path"], "images/../.."), r"inputs.ct.path: found 'images/../..', expected a relative"),
        (change([*INPUTS, "ct", "path"], "images/pet-volume"), "inputs: found images/pet-volume twice"),
        (change(["clinical"], {}), "clinical: found an object, expected a list with at least one entry"),
        (change(["clinical", 0], 3), r"clinical\[0\]: found 3, expected an object"),
        (change(["clinical", 0, "type"], "shoe size"), r"clinical\[0\].type: found 'shoe size', expected one of years"),
        (change(["clinical", 0, "type"], "stage"), r"clinical\[0\]: found a stage without `stages`"),
        (change(["clinical", 0, "codes"], [0, 1]), r"clinical\[0\]: found an object with codes, expected"),
        (change(["clinical", 0, "name"], "centre"), r"clinical\[0\].name: found 'centre' of type 'years'"),
        (change(["clinical", 0, "name"], "hpv_status"), "clinical: found hpv_status twice, expected each once"),
        (change(["clinical", 0, "aliases"], ["h-p v"]), "clinical: found hpv twice, expected each once"),
        (
            change(["clinical", 0, "aliases"], "Age"),
            r"clinical\[0\].aliases: found 'Age', expected a list of different",
        ),
        (
            change(["clinical", 0, "aliases"], [["Age"]]),
            r"clinical\[0\].aliases: found a list, expected a list of diff",
        ),
        (change(["clinical", 0, "feature"], 3), r"clinical\[0\].feature: found 3, expected a name"),
        (change([*CODE, "codes"], [0, 1, 2]), r"clinical\[1\].codes: found a list, expected two whole numbers"),
        (change([*CODE, "codes"], [0, 1.5]), r"clinical\[1\].codes: found a list, expected two whole numbers"),
        (change([*CODE, "codes"], [False, True]), r"clinical\[1\].codes: found a list, expected two whole numbers"),
        (change([*CODE, "codes"], [4, 0]), r"clinical\[1\].codes: found a list, expected two whole numbers"),
        (change([*CODE, "codes"], 4), r"clinical\[1\].codes: found 4, expected two whole numbers"),
        (
            change([*CODE, "words"], ["yes"]),
            r"clinical\[1\].words: found a list, expected an object with texts as keys",
        ),
        (change([*CODE, "words"], {"yes": 2}), r"clinical\[1\].words: .* a whole number from 0 to 1 for each word"),
        (change([*CODE, "words"], {"yes": True}), r"clinical\[1\].words: .* a whole number from 0 to 1 for each word"),
        (change([*CODE, "words"], {"Yes": 1}), r"clinical\[1\].words: found 'Yes', expected words in lower case"),
        (change(["algorithms"], []), "algorithms: found an empty list, expected a list with at least one entry"),
        (change([*ALGORITHM, "name"], "1"), r"algorithms\[0\].name: found '1', expected a name"),
        (change([*ALGORITHM, "inputs"], ["mri"]), r"algorithms\[0\].inputs: found 'mri', expected some of ct"),
        (change([*ALGORITHM, "inputs"], "ct"), r"algorithms\[0\].inputs: found 'ct', expected a list"),
        (
            change([*ALGORITHM, "inputs"], [["ct"]]),
            r"algorithms\[0\].inputs: found a list, expected a list of different",
        ),
        (change([*ALGORITHM, "optional_inputs"], ["ct"]), r"algorithms\[0\]: found ct twice, expected each once"),
        (change([*ALGORITHM, "time_limit_s"], 0), r"time_limit_s: found 0, expected seconds above 0"),
        (change([*ALGORITHM, "time_limit_s"], True), r"time_limit_s: found True, expected a finite number"),
        (change([*ALGORITHM, "time_limit_s"], 10**400), r"time_limit_s: found 10+, expected a finite number"),
        (
            change([*ANSWERS, 1, "kind"], ["mask"]),
            r"answers\[1\].kind: found a list, expected one of mask, risk, class",
        ),
        (
            change([*ANSWERS, 1, "kind"], "mask"),
            r"answers\[1\]: found an object without labels and with classes, stand_in",
        ),
        (change([*ANSWERS, 0, "labels"], None), r"answers\[0\]: found an object without labels"),
        (change([*ANSWERS, 0, "labels"], {}), r"answers\[0\].labels: found an object, expected names with different"),
        (change([*ANSWERS, 0, "labels"], {"GTVp": 0}), r"answers\[0\].labels: .* whole numbers from 1 to 255"),
        (change([*ANSWERS, 0, "labels"], {"GTVp": 1.0}), r"answers\[0\].labels: .* whole numbers from 1 to 255"),
        (change([*ANSWERS, 0, "labels"], {"GTVp": True}), r"answers\[0\].labels: .* whole numbers from 1 to 255"),
        (change([*ANSWERS, 0, "labels"], {"GTVp": 256}), r"answers\[0\].labels: .* whole numbers from 1 to 255"),
        (change([*ANSWERS, 0, "labels"], {"GTVp": 1, "GTVn": 1}), r"answers\[0\].labels: .* different whole numbers"),
        (change([*ANSWERS, 1, "classes"], ["T1"]), r"answers\[1\].classes: found a list, expected false and true"),
        (
            change([*ANSWERS, 1, "classes"], ["T1", "T1"]),
            r"answers\[1\].classes: found a list, expected false and true",
        ),
        (
            change([*ANSWERS, 1, "classes"], [True, False]),
            r"answers\[1\].classes: found a list, expected false and true",
        ),
        (change([*ANSWERS, 1, "classes"], [0, True]), r"answers\[1\].classes: found a list, expected false and true"),
        (change([*ANSWERS, 1, "classes"], [1, 0]), r"answers\[1\].classes: found a list, expected false and true"),
        (change([*ANSWERS, 1, "classes"], [["T1"], ["T2"]]), r"answers\[1\].classes: found a list, expected false and"),
        (
            change([*ANSWERS, 1, "stand_in"], "T5"),
            r"answers\[1\].stand_in: found 'T5', expected one of the classes T1, ",
        ),
        (
            change([*ANSWERS, 1, "stand_in"], ["T1"]),
            r"answers\[1\].stand_in: found a list, expected one of the classes",
        ),
        (
            change([*ANSWERS, 1, "words"], {"one": "T9"}),
            r"answers\[1\].words: found an object, expected one of the classes",
        ),
        (
            change([*ANSWERS, 1, "columns"], {"class": 3}),
            r"answers\[1\].columns: .* a different text for each of class",
        ),
        (change([*ANSWERS, 1, "head"], "../head"), r"answers\[1\].head: found '../head', expected a name"),
        (change([*ANSWERS, 1, "row_key"], ""), r"answers\[1\].row_key: found '', expected a name"),
        (change([*ANSWERS, 3, "direction"], "up"), r"answers\[3\].direction: found 'up', expected one of risk, time"),
        (change([*ANSWERS, 3, "stand_in"], "late"), r"answers\[3\].stand_in: found 'late', expected a finite number"),
        (change([*ANSWERS, 3, "stand_in"], True), r"answers\[3\].stand_in: found True, expected a finite number"),
        (change([*ANSWERS, 3, "stand_in"], NAN), "found NaN, expected standard JSON"),
        (
            change([*ANSWERS, 3, "columns"], {"time": "RFS"}),
            r"answers\[3\].columns: .* a different text for each of time",
        ),
        (change([*ANSWERS, 3, "columns"], {"time": "A", "event": "A"}), r"answers\[3\].columns: .* a different text"),
        (change([*ANSWERS, 2, "path"], "t-stage.json"), "answers: found t-stage.json twice, expected each once"),
        (change([*ANSWERS, 2, "slug"], "t-stage"), "answers: found t-stage twice, expected each once"),
        (change([*ANSWERS, 2, "name"], "t_stage"), "answers: found t_stage twice, expected each once"),
        (change([*ANSWERS, 2, "title"], " "), r"answers\[2\].title: found ' ', expected a text"),
    ],
)
def test_invalid_declaration(tmp_path: Path, spoil: Callable[[Any], None], message: str) -> None:
    content = json.loads(FOUR.read_text())
    spoil(content)
    path = tmp_path / "invalid.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=message):
        load_edition(str(path))


@pytest.mark.parametrize(
    ("classes", "stand_in", "kind"),
    [([False, True], True, "Bool"), ([0, 1], 0, "Integer"), ([1, 2, 4], 4, "Integer"), (["b", "a"], "a", "String")],
)
def test_socket_kind_follows_the_type_of_the_classes(
    tmp_path: Path, classes: list[Any], stand_in: Any, kind: str
) -> None:
    content = json.loads(FOUR.read_text())
    content["algorithms"][0]["answers"][1] |= {"classes": classes, "stand_in": stand_in}
    path = tmp_path / "classes.json"
    path.write_text(json.dumps(content))
    answer = load_edition(str(path)).algorithm().answers[1]
    assert (answer.socket.kind, list(answer.classes), answer.stand_in) == (kind, classes, stand_in)
    assert [type(value) for value in answer.classes] == [type(value) for value in classes]


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values in a JSON document."""
    yield path
    children = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in children:
        yield from places(value, (*path, key))


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of `content` with `value` at `path`."""
    if not path:
        return value
    copy = list(content) if isinstance(content, list) else dict(content)
    copy[path[0]] = replaced(content[path[0]], path[1:], value)
    return copy


DECLARATIONS = [json.loads(path.read_text()) for path in (FOUR, Path(loading.__file__).with_name("hecktor2025.json"))]
PLACES = [(number, path) for number, content in enumerate(DECLARATIONS) for path in places(content)]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
JSON_VALUES = st.recursive(
    SCALARS | st.sampled_from([[], {}, 10**400, "\ud800", "\x00", "mask", "risk", "class", "stage", "centre"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=400)
@given(st.sampled_from(PLACES), JSON_VALUES, st.sampled_from(PLACES), st.integers(0, 2))
def test_a_mutated_declaration_loads_or_is_a_one_line_error(
    tmp_path_factory: pytest.TempPathFactory, target: Any, value: Any, source: Any, mutation: int
) -> None:
    """One place gets a random value, the value of another place, or an additional entry."""
    number, path = target
    if mutation == 1:
        value = functools.reduce(operator.getitem, source[1], DECLARATIONS[source[0]])
    if mutation == 2:
        current = functools.reduce(operator.getitem, path, DECLARATIONS[number])
        value = {**current, "extra": value} if isinstance(current, dict) else [value, current]
    file = tmp_path_factory.getbasetemp() / "mutated.json"
    file.write_text(json.dumps(replaced(DECLARATIONS[number], path, value)))
    load_edition.cache_clear()
    try:
        edition = load_edition(str(file))
    except HecktorError as error:
        assert error.message.startswith("mutated.json")  # noqa: PT017
        assert error.message.isprintable()  # noqa: PT017
        return
    for algorithm in edition.algorithms:
        assert edition.algorithm(algorithm.name) is edition.algorithm(str(algorithm.number)) is algorithm
        for answer in algorithm.heads:
            assert answer.stand_in is None or answer.kind == "risk" or answer.stand_in in answer.classes
    assert parse_ehr({}, "ehr.json", edition.clinical).patient.centre is None


def test_an_evaluation_profile_is_not_a_declaration() -> None:
    """Both are JSON files of an edition, named side by side."""
    with pytest.raises(
        HecktorError, match=r"four_answers_profile.json: found an evaluation profile, expected the decl"
    ):
        load_edition(str(FOUR.with_name("four_answers_profile.json")))
