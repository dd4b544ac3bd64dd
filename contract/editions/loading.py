"""Load an edition's declaration from its JSON file, checked in full."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast, get_args

from contract.editions.clinical import CENTRE, ClinicalType, ClinicalVariable
from contract.editions.declaration import (
    CT,
    DIRECTIONS,
    EHR,
    INPUT_NAMES,
    KINDS,
    PET,
    Algorithm,
    Answer,
    Direction,
    Edition,
    Kind,
    Socket,
)
from contract.errors import HecktorError
from contract.files import parse_json, read_json

DEFAULT_EDITION: Final = "hecktor2025"
_SOCKET_KEYS: Final = ("slug", "title", "kind", "path")
_OPTIONAL_ANSWER_KEYS: Final = ("head", "labels", "direction", "classes", "words", "columns", "row_key", "stand_in")
_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {"mask": (), "risk": ("time", "event"), "class": ("class",)}


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    names = (entry.name for entry in files("contract.editions").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


@cache
def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name, or a declaration file (`.json`) by its path.

    An evaluation profile that the file names by a relative path is looked up beside the file.

    Raises:
        HecktorError: no such edition or file, or a declaration that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions():
        source = f"{name_or_path}.json"
        text = files("contract.editions").joinpath(source).read_text(encoding="utf-8")
        return _edition(parse_json(text, source, error=HecktorError), source, name_or_path, None)
    path = Path(name_or_path)
    if path.suffix != ".json":
        raise HecktorError(
            f"edition: found {name_or_path!r}, expected one of {', '.join(known_editions())} or a declaration.json"
        )
    return _edition(read_json(path, error=HecktorError), path.name, str(path.resolve()), path.resolve().parent)


def _edition(content: Any, where: str, source: str, folder: Path | None) -> Edition:
    keys = ("format", "name", "title", "evaluation_profile", "inputs", "clinical", "algorithms")
    top = _object(content, where, keys)
    if top["format"] != 1:
        raise HecktorError(f"{where}.format: found {top['format']!r}, expected 1")
    inputs = _inputs(top["inputs"], f"{where}.inputs")
    clinical = tuple(
        _clinical(raw, f"{where}.clinical[{number}]")
        for number, raw in enumerate(_list(top["clinical"], f"{where}.clinical"))
    )
    algorithms: list[Algorithm] = []
    for number, raw in enumerate(_list(top["algorithms"], f"{where}.algorithms")):
        first_pk = 1 + len(inputs) + sum(len(algorithm.answers) for algorithm in algorithms)
        algorithms.append(_algorithm(raw, f"{where}.algorithms[{number}]", inputs, number + 1, first_pk))
    _check_unique([variable.name for variable in clinical], f"{where}.clinical")
    _check_unique([algorithm.name for algorithm in algorithms], f"{where}.algorithms")
    profile = _text(top, "evaluation_profile", where)
    if folder is not None and profile.endswith(".json"):
        profile = str(folder / profile)
    return Edition(
        _text(top, "name", where), _text(top, "title", where), profile, inputs, clinical, tuple(algorithms), source
    )


def _inputs(raw: Any, where: str) -> dict[str, Socket]:
    content = _object(raw, where, (CT, PET, EHR), INPUT_NAMES)
    return {name: _socket(content[name], f"{where}.{name}", pk) for pk, name in enumerate(content, start=1)}


def _socket(raw: Any, where: str, pk: int) -> Socket:
    content = _object(raw, where, _SOCKET_KEYS)
    slug, title, kind, path = (_text(content, key, where) for key in _SOCKET_KEYS)
    return Socket(slug, title, kind, path, pk)


def _clinical(raw: Any, where: str) -> ClinicalVariable:
    content = _object(raw, where, ("name", "key", "type"), ("aliases", "codes", "words", "stages", "feature"))
    kind = _choice(content, "type", get_args(ClinicalType), where)
    if kind == "stage" and not content.get("stages"):
        raise HecktorError(f"{where}: found a stage without `stages`, expected its values in ascending order")
    name = _text(content, "name", where)
    if (kind == "centre") != (name == CENTRE):
        raise HecktorError(f"{where}.name: found {name!r} of type {kind!r}, expected {CENTRE!r} for the centre alone")
    low, high = content.get("codes", (0, 1))
    return ClinicalVariable(
        name=name,
        key=_text(content, "key", where),
        type=cast(ClinicalType, kind),
        aliases=tuple(content.get("aliases", ())),
        codes=(int(low), int(high)),
        words=dict(content.get("words", {})),
        stages=tuple(content.get("stages", ())),
        feature=str(content.get("feature", name)),
    )


def _algorithm(raw: Any, where: str, inputs: Mapping[str, Socket], number: int, first_pk: int) -> Algorithm:
    keys = ("name", "title", "inputs", "time_limit_s", "answers")
    content = _object(raw, where, keys, ("optional_inputs",))
    answers = tuple(
        _answer(one, f"{where}.answers[{index}]", first_pk + index)
        for index, one in enumerate(_list(content["answers"], f"{where}.answers"))
    )
    _check_unique([answer.name for answer in answers], f"{where}.answers")
    _check_unique([answer.socket.relative_path for answer in answers], f"{where}.answers")
    if sum(answer.kind == "mask" for answer in answers) > 1:
        raise HecktorError(f"{where}.answers: found several masks, expected at most one")
    limit_s = content["time_limit_s"]
    if isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or limit_s <= 0:
        raise HecktorError(f"{where}.time_limit_s: found {limit_s!r}, expected seconds above 0")
    return Algorithm(
        name=_text(content, "name", where),
        number=number,
        title=_text(content, "title", where),
        inputs=_chosen(inputs, content["inputs"], f"{where}.inputs"),
        optional_inputs=_chosen(inputs, content.get("optional_inputs", []), f"{where}.optional_inputs"),
        answers=answers,
        time_limit_s=float(limit_s),
    )


def _chosen(inputs: Mapping[str, Socket], names: Any, where: str) -> dict[str, Socket]:
    for name in names if isinstance(names, list) else [names]:
        if name not in inputs:
            raise HecktorError(f"{where}: found {name!r}, expected some of {', '.join(inputs)}")
    return {name: inputs[name] for name in names}


def _answer(raw: Any, where: str, pk: int) -> Answer:
    content = _object(raw, where, ("name", "kind", *_SOCKET_KEYS[:2], "path"), _OPTIONAL_ANSWER_KEYS)
    kind = cast(Kind, _choice(content, "kind", KINDS, where))
    name, classes = _text(content, "name", where), tuple(content.get("classes", ()))
    if (kind == "class") != (len(classes) >= 2):
        raise HecktorError(f"{where}.classes: found {list(classes)!r}, expected two or more for a class and none else")
    if kind == "mask" and not content.get("labels"):
        raise HecktorError(f"{where}: found a mask without `labels`, expected names and values")
    columns = dict(content.get("columns", {}))
    if set(columns) != set(_COLUMNS[kind]):
        raise HecktorError(
            f"{where}.columns", f"found {', '.join(columns) or 'none'}", ", ".join(_COLUMNS[kind]) or "none for a mask"
        )
    direction = _choice({"direction": "risk", **content}, "direction", DIRECTIONS, where)
    socket_kind = {"mask": "Segmentation", "risk": "Float", "class": "Bool" if classes[:1] == (False,) else "String"}
    return Answer(
        name=name,
        kind=kind,
        socket=Socket(
            _text(content, "slug", where),
            _text(content, "title", where),
            socket_kind[kind],
            _text(content, "path", where),
            pk,
        ),
        head="" if kind == "mask" else str(content.get("head", name)),
        labels=dict(content.get("labels", {})),
        direction=cast(Direction, direction),
        classes=classes,
        words=dict(content.get("words", {})),
        columns=columns,
        row_key=str(content.get("row_key", name)),
        stand_in=content.get("stand_in"),
    )


def _object(raw: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise HecktorError(f"{where}: found a {type(raw).__name__}, expected an object")
    absent = [key for key in required if key not in raw]
    unknown = [key for key in raw if key not in required and key not in optional]
    if absent or unknown:
        parts = [f"{word} {', '.join(keys)}" for word, keys in (("without", absent), ("with", unknown)) if keys]
        raise HecktorError(f"{where}: found an object {' and '.join(parts)}, expected {', '.join(required)}")
    return raw


def _list(raw: Any, where: str) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        raise HecktorError(f"{where}: found {type(raw).__name__}, expected a list with at least one entry")
    return raw


def _text(content: Mapping[str, Any], key: str, where: str) -> str:
    value = content[key]
    if not isinstance(value, str) or not value.strip():
        raise HecktorError(f"{where}.{key}: found {value!r}, expected a text")
    return value


def _choice(content: Mapping[str, Any], key: str, choices: tuple[str, ...], where: str) -> str:
    value = content[key]
    if value not in choices:
        raise HecktorError(f"{where}.{key}: found {value!r}, expected one of {', '.join(choices)}")
    return str(value)


def _check_unique(names: list[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"{where}: found {', '.join(twice)} twice, expected each once")
