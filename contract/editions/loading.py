"""Load an edition's declaration from its JSON file and check all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from contract.editions.answers import read_answer
from contract.editions.clinical import CENTRE, CLINICAL_TYPES, ClinicalType, ClinicalVariable, normalised_key
from contract.editions.declaration import CT, EHR, IMAGE_PREFIX, INPUT_NAMES, PET, Algorithm, Answer, Edition, Socket
from contract.editions.fields import DeclaredObject, check_unique, is_integer
from contract.errors import HecktorError
from contract.files import parse_json, read_json

DEFAULT_EDITION: Final = "hecktor2025"
_TOP_KEYS: Final = ("format", "name", "title", "evaluation_profile", "inputs", "clinical", "algorithms")
_CLINICAL_KEYS: Final = ("name", "key", "type")
_CLINICAL_OPTIONS: Final[Mapping[ClinicalType, tuple[str, ...]]] = {
    "years": ("aliases", "feature"),
    "code": ("aliases", "feature", "codes", "words"),
    "stage": ("aliases", "feature", "stages"),
    "centre": ("aliases",),
}


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    names = (entry.name for entry in files("contract.editions").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


@cache
def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name, or a declaration file (`.json`) by its path.

    A relative path of an evaluation profile is resolved against the folder of the declaration file.

    Raises:
        HecktorError: no such edition or file, or a declaration that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions():
        source = f"{name_or_path}.json"
        text = files("contract.editions").joinpath(source).read_text(encoding="utf-8")
        return _edition(parse_json(text, source, error=HecktorError), source, name_or_path, None)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(known_editions())
        raise HecktorError("edition", f"found {name_or_path!r}", f"one of {choices} or a declaration.json")
    return _edition(read_json(path, error=HecktorError), path.name, str(path.resolve()), path.resolve().parent)


def _edition(content: object, where: str, source: str, folder: Path | None) -> Edition:
    if isinstance(content, dict) and "tasks" in content:
        raise HecktorError(where, "found an evaluation profile", "the declaration of an edition, with its algorithms")
    declared = DeclaredObject.of(content, where, _TOP_KEYS, ("suv_factor",))
    if not is_integer(declared.content["format"]) or declared.content["format"] != 1:
        raise declared.fault("format", "1")
    inputs = _inputs(declared.content["inputs"], f"{where}.inputs")
    profile = declared.text("evaluation_profile")
    if folder is not None and profile.endswith(".json"):
        profile = str(folder / profile)
    return Edition(
        name=declared.name("name"),
        title=declared.text("title"),
        evaluation_profile=profile,
        inputs=inputs,
        clinical=_clinical_variables(declared),
        algorithms=_algorithms(declared, inputs),
        source=source,
        suv_factor=declared.texts("suv_factor"),
    )


def _inputs(raw: object, where: str) -> dict[str, Socket]:
    content = DeclaredObject.of(raw, where, (CT, PET, EHR), INPUT_NAMES).content
    inputs = {
        name: _input_socket(content[name], f"{where}.{name}", pk, is_image=name != EHR)
        for pk, name in enumerate(content, start=1)
    }
    check_unique([socket.slug for socket in inputs.values()], where)
    check_unique([socket.relative_path for socket in inputs.values()], where)
    return inputs


def _input_socket(raw: object, where: str, pk: int, *, is_image: bool) -> Socket:
    declared = DeclaredObject.of(raw, where, ("slug", "title", "kind", "path"))
    path = declared.relative_path("path")
    socket = Socket(declared.text("slug"), declared.text("title"), declared.text("kind"), path, pk)
    if socket.is_image != is_image:
        raise declared.fault("kind", "Image" if is_image else "the kind of a JSON value")
    return socket


def _clinical_variables(edition: DeclaredObject) -> tuple[ClinicalVariable, ...]:
    clinical = tuple(_clinical_variable(raw, where) for raw, where in edition.items("clinical"))
    where = f"{edition.where}.clinical"
    check_unique([variable.name for variable in clinical], where)
    check_unique([variable.feature for variable in clinical], where)
    keys = [key for variable in clinical for key in {*map(normalised_key, variable.spellings)}]
    check_unique([*keys, *{*map(normalised_key, edition.texts("suv_factor"))}], where)
    return clinical


def _clinical_variable(raw: object, where: str) -> ClinicalVariable:
    declared = DeclaredObject.of(raw, where, _CLINICAL_KEYS, optional=None)
    kind = declared.choice("type", CLINICAL_TYPES)
    declared = DeclaredObject.of(raw, where, _CLINICAL_KEYS, _CLINICAL_OPTIONS[kind])
    name = declared.name("name")
    if (kind == "centre") != (name == CENTRE):
        raise HecktorError(f"{where}.name", f"found {name!r} of type {kind!r}", f"{CENTRE!r} for the centre alone")
    stages = declared.texts("stages")
    if kind == "stage" and not stages:
        raise HecktorError(where, "found a stage without `stages`", "its values in ascending order")
    codes = _codes(declared)
    return ClinicalVariable(
        name=name,
        key=declared.text("key"),
        type=kind,
        aliases=declared.texts("aliases"),
        codes=codes,
        words=_code_words(declared, codes),
        stages=stages,
        feature=declared.name("feature", name),
    )


def _codes(declared: DeclaredObject) -> tuple[int, int]:
    codes = declared.content.get("codes", [0, 1])
    if isinstance(codes, list) and len(codes) == 2 and all(map(is_integer, codes)) and codes[0] < codes[1]:
        return codes[0], codes[1]
    raise declared.fault("codes", "two whole numbers, the lowest and the highest")


def _code_words(declared: DeclaredObject, codes: tuple[int, int]) -> dict[str, Any]:
    words = declared.words("words")
    if not all(is_integer(code) and codes[0] <= code <= codes[1] for code in words.values()):
        raise declared.fault("words", f"a whole number from {codes[0]} to {codes[1]} for each word")
    return words


def _algorithms(edition: DeclaredObject, inputs: Mapping[str, Socket]) -> tuple[Algorithm, ...]:
    algorithms: list[Algorithm] = []
    for number, (raw, where) in enumerate(edition.items("algorithms"), start=1):
        first_pk = 1 + len(inputs) + sum(len(algorithm.answers) for algorithm in algorithms)
        algorithms.append(_algorithm(raw, where, inputs, number, first_pk))
    check_unique([algorithm.name for algorithm in algorithms], f"{edition.where}.algorithms")
    return tuple(algorithms)


def _algorithm(raw: object, where: str, inputs: Mapping[str, Socket], number: int, first_pk: int) -> Algorithm:
    declared = DeclaredObject.of(
        raw,
        where,
        ("name", "title", "inputs", "time_limit_s", "answers"),
        ("optional_inputs", "image", "stale_outputs"),
    )
    answers = tuple(read_answer(one, place, first_pk + i) for i, (one, place) in enumerate(declared.items("answers")))
    for names in (
        [answer.name for answer in answers],
        [answer.socket.slug for answer in answers],
        [answer.socket.relative_path for answer in answers],
    ):
        check_unique(names, f"{where}.answers")
    _check_mask(answers, f"{where}.answers")
    declared.items("inputs")  # at least one
    required, optional = declared.texts("inputs"), declared.texts("optional_inputs")
    check_unique([*required, *optional], where)
    time_limit_s = declared.number("time_limit_s")
    if time_limit_s <= 0:
        raise declared.fault("time_limit_s", "seconds above 0")
    name = declared.name("name")
    return Algorithm(
        name=name,
        number=number,
        title=declared.text("title"),
        inputs=_chosen(inputs, required, f"{where}.inputs"),
        optional_inputs=_chosen(inputs, optional, f"{where}.optional_inputs"),
        answers=answers,
        time_limit_s=time_limit_s,
        image=declared.name("image", f"{IMAGE_PREFIX}{name}"),
        stale_outputs=_stale_outputs(declared, answers),
    )


def _stale_outputs(declared: DeclaredObject, answers: Sequence[Answer]) -> dict[str, tuple[str, ...]]:
    """Output paths of older descriptions, with the names of the answers that replace them."""
    stale, names = declared.mapping("stale_outputs"), [answer.name for answer in answers]
    for path, replacements in stale.items():
        if not isinstance(replacements, list) or not all(name in names for name in replacements):
            raise declared.fault("stale_outputs", f"a list of {', '.join(names)} for each path")
        if path in [answer.socket.relative_path for answer in answers]:
            raise HecktorError(f"{declared.where}.stale_outputs", f"found {path!r}", "no path of an answer")
    return {path: tuple(replacements) for path, replacements in stale.items()}


def _check_mask(answers: Sequence[Answer], where: str) -> None:
    """Require at most one mask, which has the structures that classes refer to."""
    masks = [answer for answer in answers if answer.kind == "mask"]
    if len(masks) > 1:
        raise HecktorError(where, "found several masks", "at most one")
    structures = [name for mask in masks for name in mask.labels]
    for answer in answers:
        for name in answer.without:
            if name not in structures:
                raise HecktorError(f"{where}.{answer.name}.without", f"found {name!r}", f"some of {structures}")
        if answer.rule and not masks:
            raise HecktorError(f"{where}.{answer.name}.rule", f"found {answer.rule!r}", "a mask among the answers")


def _chosen(inputs: Mapping[str, Socket], names: tuple[str, ...], where: str) -> dict[str, Socket]:
    for name in names:
        if name not in inputs:
            raise HecktorError(where, f"found {name!r}", f"some of {', '.join(inputs)}")
    return {name: inputs[name] for name in names}
