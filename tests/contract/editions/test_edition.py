"""Load declarations: an example with four answers, and invalid files."""

from __future__ import annotations

import functools
import json
import operator
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.editions import list_editions, load_edition, parse_edition, write_edition_file
from contract.errors import HecktorError
from contract.patient import parse_ehr
from tests.damage import ABSENT, list_paths, replace_at
from tests.editions.contours_edition import make_contours_edition

ROOT = Path(__file__).parents[3]
FOUR = ROOT / "tests" / "editions" / "four_answers.json"


def test_load_an_edition_from_a_file() -> None:
    edition = load_edition(str(FOUR))
    algorithm = edition.find_algorithm()
    assert [answer.kind for answer in algorithm.answers] == ["mask", "class", "class", "risk"]
    assert algorithm.mask_spec is algorithm.answers[0]
    assert algorithm.find_answer("survival").direction == "time"
    assert [answer.socket.kind for answer in algorithm.head_specs] == ["String", "String", "Float"]
    assert edition.source == str(FOUR)


def test_unknown_task() -> None:
    with pytest.raises(HecktorError, match="edition hecktor2025: found task '4'"):
        load_edition().find_algorithm("4")
    with pytest.raises(HecktorError, match="edition hecktor2025: found no task"):
        load_edition().find_algorithm()


def test_an_edition_with_the_algorithms_of_another() -> None:
    """Only `rfs` is scored, under the number that `segmentation` has in HECKTOR 2025."""
    content = {"format": 2, "name": "mine", "title": "Mine", "algorithms_of": "hecktor2025"}
    content |= {"task_aliases": {"rfs": ["1", "pfs"]}, "scoring": {"rfs": {}}}
    edition, declaring = parse_edition(content), load_edition("hecktor2025")
    assert (edition.name, edition.inputs, edition.clinical) == ("mine", declaring.inputs, declaring.clinical)
    assert edition.algorithms == declaring.algorithms
    assert {edition.find_algorithm(name).name for name in (None, "1", "PFS", "2")} == {"rfs"}
    assert edition.find_algorithm("segmentation").number == 1
    with pytest.raises(HecktorError, match=r"found task '9', expected one of segmentation, 1, rfs, 2, pfs, hpv, 3"):
        edition.find_algorithm("9")


def test_unknown_edition(tmp_path: Path) -> None:
    for name, shown in (("hecktor1999", "'hecktor1999'"), (FOUR.read_text(), r"'\{.*")):
        with pytest.raises(
            HecktorError, match=f"^edition: found {shown}, expected one of hecktor2020, .*, hecktor2025,"
        ):
            load_edition(name)
    with pytest.raises(HecktorError, match=r"absent.json: not found"):
        load_edition(str(tmp_path / "absent.json"))


CODE = ["clinical", 1]
ALGORITHM = ["algorithms", 0]
ANSWERS = [*ALGORITHM, "answers"]
N_STAGE = {
    "name": "n_stage",
    "classes": ["N0", "N1"],
    "without": {"GTVp": "N1", "GTVn": "N0"},
    "fallback": "N1",
    "words": {},
}
BROKEN = {
    "four_answers": [
        (["format"], 1, ".format: found 1, expected a number of at least 2"),
        (["colour"], "red", '.colour: found "red"'),
        (["name"], "hecktor2025", ".name: found 'hecktor2025', an edition of the package with other contents"),
        (["name"], "../four", '.name: found "../four"'),
        (["title"], float("nan"), ": found NaN"),
        (["algorithms_of"], "hecktor2025", ".inputs: found together with `algorithms_of`, expected only one of them"),
        (["scoring", "other"], {}, ".scoring: found an object, expected some of everything, not 'other'"),
        (["task_aliases"], {"everything": ["everything"]}, "expected each value once, not everything twice"),
        (["inputs", "pet"], ABSENT, ".inputs: found an object, expected pet among the inputs"),
        (["inputs", "ct", "kind"], "Anything", ".inputs: found an object, expected Image as the kind of ct"),
        (["inputs", "ehr", "kind"], "Image", ".inputs: found an object, expected a JSON value as the kind of ehr"),
        (["inputs", "ct", "path"], "/etc", '.inputs.ct.path: found "/etc"'),
        (["inputs", "ct", "path"], "images/../..", '.path: found "images/../.."'),
        (["inputs", "ct", "path"], "images/pet-volume", "expected each value once, not images/pet"),
        (["clinical", 0, "type"], "shoe size", "expected a clinical variable of type years, number, code, stage or"),
        (["clinical", 0, "type"], "stage", ".clinical[0].stages: found nothing, expected this key"),
        (["clinical", 0, "name"], "centre", '.clinical[0].name: found "centre", expected another name than'),
        (["clinical", 0, "name"], "hpv_status", "expected each value once, not hpv_status twice"),
        (["clinical", 0, "aliases"], ["h-p v"], ".clinical: found a list, expected each value once, not hpv twice"),
        (["clinical", 0, "aliases"], ["Age", "Age"], '.aliases: found ["Age", "Age"]'),
        ([*CODE, "codes"], [0, 1, 2], ".clinical[1].codes: found [0, 1, 2], expected at most 2 entries"),
        ([*CODE, "codes"], [4, 0], ".codes: found [4, 0]"),
        ([*CODE, "words"], {"yes": 2}, '.words: found {"yes": 2}, expected a whole number from 0 to 1 for each word'),
        ([*CODE, "words"], {"Yes": 1}, "expected words in lower case"),
        ([*CODE, "words"], {"nan": 1}, "expected texts other than nan, which means a missing value in tables"),
        (["algorithms"], [], ".algorithms: found [], expected at least 1 entries"),
        ([*ALGORITHM, "inputs"], ["mri"], "expected inputs of everything among ct, pet, ehr, not 'mri'"),
        ([*ALGORITHM, "optional_inputs"], ["ct"], "expected each value once, not ct twice"),
        ([*ALGORITHM, "time_limit_s"], 0, ".time_limit_s: found 0, expected a number above 0"),
        ([*ALGORITHM, "time_limit_s"], 10**400, "0 is too large, expected a finite number"),
        ([*ANSWERS, 0, "labels"], {"Node": 1, "GTVn": 2}, "expected {'GTVp': 1, 'GTVn': 2}, which"),
        ([*ANSWERS, 1, "kind"], "mask", ".answers[1].classes: found"),
        ([*ANSWERS, 1, "kind"], "survival", "expected an answer of kind mask, risk or class"),
        ([*ANSWERS, 1, "classes"], ["None", "b"], "expected texts other than None, which means a missing value in"),
        ([*ANSWERS, 1, "classes"], ["a", "A"], "expected false and true, ascending whole numbers or different strings"),
        ([*ANSWERS, 1, "classes"], ["T1"], '.classes: found ["T1"]'),
        ([*ANSWERS, 1, "classes"], [1, 0], ".classes: found [1, 0]"),
        ([*ANSWERS, 1, "words"], {"unknown": "T1"}, "expected texts other than unknown, which means a missing value"),
        ([*ANSWERS, 1, "words"], {"one": "T9"}, "expected one of the classes for each key"),
        ([*ANSWERS, 1, "fallback"], "T5", '.fallback: found "T5", expected one of the classes T1, T2, T3, T4'),
        ([*ANSWERS, 1, "head"], "../head", '.head: found "../head"'),
        ([*ANSWERS, 2, "path"], "t-stage.json", "expected each value once, not t-stage.json twice"),
        ([*ANSWERS, 2, "name"], "t_stage", ".answers: found a list, expected each value once, not t_stage twice"),
        ([*ANSWERS, 2, "title"], " ", '.answers[2].title: found " "'),
        ([*ANSWERS, 3, "direction"], "up", ".direction: found \"up\", expected one of 'risk' or 'time'"),
        ([*ANSWERS, 3, "fallback"], "late", '.fallback: found "late"'),
        ([*ANSWERS, 3, "columns"], {"time": "A", "event": "A"}, "expected a different string for each of time, event"),
    ],
    # Rules from the mask, classes without a structure, and an image.
    "hecktor2026": [
        ([*ANSWERS, 1, "rule"], "by_eye", "'t_stage_7th' or 'n_stage_7th'"),
        ([*ANSWERS, 2, "without"], {"GTVn": "N4"}, "one of the classes"),
        ([*ANSWERS, 2, "without"], {"GTVx": "N0"}, "not 'GTVx'"),
        ([*ANSWERS, 2], N_STAGE, "at least one class without a structure"),
        ([*ANSWERS, 3, "fallback"], 0, "answers[3].fallback: found 0, expected days above 0"),
        ([*ANSWERS, 0], ABSENT, "a mask among the answers"),
        (["suv_factor"], ["AGE"], "not age twice"),
        ([*ALGORITHM, "image"], "Hecktor 2026", "a name of lower-case letters"),
    ],
    "hntsmrg2024": [
        (["inputs", "mr_before", "modality"], "PET", ".inputs: found an object, expected inputs among ct, pet, ehr"),
        (["inputs", "mr_before", "modality"], ABSENT, "expected MR or mask as the modality of"),
        (["inputs", "mr_before", "release"], "T2.nii.gz", "expected a path such as preRT/{id}_T2.nii.gz"),
        (["inputs", "ct"], {"slug": "ct", "title": "CT", "kind": "Image", "path": "ct"}, "not MR together with ct"),
        (["clinical"], [{"name": "age_years", "key": "Age", "type": "years"}], "if and only if ehr is an input"),
        (["algorithms", 1, "inputs"], ["mask_before", "mr_during"], "expected an MR as the first input"),
    ],
    # An edition whose risk has contours as an input.
    "contours": [([*ALGORITHM, "optional_inputs"], ["contours"], "no mask among the answers of an algorithm with")],
}


def read_declaration(name: str) -> dict[str, Any]:
    if name == "contours":
        return make_contours_edition()
    folder = ROOT / ("contract" if name in list_editions() else "tests") / "editions"
    return json.loads((folder / f"{name}.json").read_text()) | {"name": "mine"}


@pytest.mark.parametrize(
    ("name", "path", "value", "message"), [(name, *row) for name, rows in BROKEN.items() for row in rows]
)
def test_invalid_declaration(tmp_path: Path, name: str, path: list[Any], value: Any, message: str) -> None:
    if isinstance(value, dict) and "name" in value:
        value = functools.reduce(operator.getitem, path, read_declaration(name)) | value
    file = tmp_path / "invalid.json"
    file.write_text(json.dumps(replace_at(read_declaration(name), path, value)))
    with pytest.raises(HecktorError, match=re.escape(message)):
        load_edition(str(file))


@pytest.mark.parametrize(
    ("classes", "fallback", "kind"),
    [([False, True], True, "Bool"), ([0, 1], 0, "Integer"), ([1, 2, 4], 4, "Integer"), (["b", "a"], "a", "String")],
)
def test_socket_kind_follows_the_type_of_the_classes(
    tmp_path: Path, classes: list[Any], fallback: Any, kind: str
) -> None:
    content = json.loads(FOUR.read_text())
    content["algorithms"][0]["answers"][1] |= {"classes": classes, "fallback": fallback}
    path = tmp_path / "classes.json"
    path.write_text(json.dumps(content))
    answer = load_edition(str(path)).find_algorithm().answers[1]
    assert (answer.socket.kind, list(answer.classes), answer.fallback) == (kind, classes, fallback)
    assert [type(value) for value in answer.classes] == [type(value) for value in classes]


DECLARATIONS = [read_declaration(name) for name in ("four_answers", "hecktor2025")]
PLACES = [(number, path) for number, content in enumerate(DECLARATIONS) for path in [(), *list_paths(content)]]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
JSON_VALUES = st.recursive(
    SCALARS | st.sampled_from([[], {}, 10**400, "\ud800", "\x00", "mask", "risk", "class", "stage", "centre"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=60)
@given(st.sampled_from(PLACES), JSON_VALUES, st.sampled_from(PLACES), st.integers(0, 2))
def test_a_mutated_declaration_loads_or_is_a_one_line_error(
    tmp_path_factory: pytest.TempPathFactory, target: Any, value: Any, source: Any, mutation: int
) -> None:
    """Mutations give one place a random value, the value of another place, or an additional entry."""
    number, path = target
    if mutation == 1:
        value = functools.reduce(operator.getitem, source[1], DECLARATIONS[source[0]])
    if mutation == 2:
        current = functools.reduce(operator.getitem, path, DECLARATIONS[number])
        value = {**current, "extra": value} if isinstance(current, dict) else [value, current]
    file = tmp_path_factory.getbasetemp() / "mutated.json"
    file.write_text(json.dumps(replace_at(DECLARATIONS[number], path, value)))
    try:
        edition = load_edition(str(file))
    except HecktorError as error:
        assert error.message.startswith("mutated.json")  # noqa: PT017
        assert error.message.isprintable()  # noqa: PT017
        return
    for algorithm in edition.algorithms:
        assert edition.find_algorithm(algorithm.name) is edition.find_algorithm(str(algorithm.number)) is algorithm
        for answer in algorithm.head_specs:
            assert answer.fallback is None or answer.kind == "risk" or answer.fallback in answer.classes
    assert parse_ehr({}, "ehr.json", edition.clinical).patient.centre is None


def test_an_embedded_edition_equals_its_file(tmp_path: Path) -> None:
    """Other commands read an embedded edition from a file again; `$schema` is not part of it."""
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"$schema": "edition.schema.json", **json.loads(FOUR.read_text())}))
    edition = load_edition(str(file))
    assert edition.content == load_edition(str(FOUR)).content == json.loads(FOUR.read_text())
    assert write_edition_file(edition, tmp_path / "unused.json") is edition
    embedded = parse_edition(edition.content)
    assert (embedded.content, embedded.source) == (edition.content, "")
    edition_of_file = write_edition_file(embedded, tmp_path / "written.json")
    assert (edition_of_file.source, edition_of_file.content) == (str(tmp_path / "written.json"), edition.content)


def test_an_edition_of_the_package_is_not_embedded(tmp_path: Path) -> None:
    assert load_edition("hecktor2026").content is None
    copy = tmp_path / "copy.json"
    shutil.copy(ROOT / "contract" / "editions" / "hecktor2026.json", copy)
    assert load_edition(str(copy)).content is None


def test_two_algorithms_cannot_have_the_same_image() -> None:
    """Their images would have one name, with or without the prefix of the evaluation image."""
    content = json.loads(FOUR.read_text())
    (first,) = content["algorithms"]
    content["algorithms"] = [first | {"image": "larynx"}, first | {"name": "other", "image": "hecktor-larynx"}]
    with pytest.raises(HecktorError, match=r"expected each value once, not hecktor-evaluation-larynx twice$"):
        parse_edition(content)


@pytest.mark.parametrize("name", ["hecktor2021", "larynx.json", {}])
def test_algorithms_come_from_an_edition_of_the_package(name: Any) -> None:
    """Otherwise a path in a package or a result could name a file of the machine that reads it."""
    expected = r"^own_edition\.algorithms_of: found .*, expected one of hecktor2025, hecktor2026, hntsmrg2024$"
    with pytest.raises(HecktorError, match=expected):
        parse_edition({"algorithms_of": name})
