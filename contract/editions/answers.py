"""Read the declaration of one answer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from contract.editions.declaration import DIRECTIONS, KINDS, RULES, Answer, ClassValue, Kind, Socket
from contract.editions.fields import DeclaredObject, is_integer, is_member, is_text

_KEYS: Final = ("name", "kind", "slug", "title", "path")
_KEYS_OF_KIND: Final[Mapping[Kind, tuple[str, ...]]] = {
    "mask": ("labels",),
    "risk": ("columns",),
    "class": ("classes", "columns"),
}
_OPTIONS_OF_KIND: Final[Mapping[Kind, tuple[str, ...]]] = {
    "mask": (),
    "risk": ("head", "direction", "stand_in"),
    "class": ("head", "words", "row_key", "stand_in", "rule", "without", "not_counted"),
}
_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {"mask": (), "risk": ("time", "event"), "class": ("class",)}
_CLASS_SOCKETS: Final = {bool: "Bool", int: "Integer", str: "String"}
_MAX_LABEL: Final = 255  # masks are uint8


def read_answer(raw: object, where: str, pk: int) -> Answer:
    """The answer that `raw` declares; `pk` is the number of its socket.

    Raises:
        HecktorError: `raw` breaks the schema; the message names the place below `where`.
    """
    kind = DeclaredObject.of(raw, where, _KEYS, optional=None).choice("kind", KINDS)
    declared = DeclaredObject.of(raw, where, (*_KEYS, *_KEYS_OF_KIND[kind]), _OPTIONS_OF_KIND[kind])
    name = declared.name("name")
    classes = _classes(declared) if kind == "class" else ()
    path = declared.relative_path("path")
    socket = Socket(declared.text("slug"), declared.text("title"), _socket_kind(kind, classes), path, pk)
    return Answer(
        name=name,
        kind=kind,
        socket=socket,
        head="" if kind == "mask" else declared.name("head", name),
        labels=_labels(declared) if kind == "mask" else {},
        direction=declared.choice("direction", DIRECTIONS, "risk"),
        classes=classes,
        words=_words(declared, classes),
        not_counted=tuple(text.upper() for text in declared.texts("not_counted")),
        rule=declared.choice("rule", ("", *RULES), ""),
        without=_without(declared, classes),
        columns=_columns(declared, _COLUMNS[kind]),
        row_key=declared.name("row_key", name),
        stand_in=_stand_in(declared, kind, classes),
    )


def _socket_kind(kind: Kind, classes: tuple[ClassValue, ...]) -> str:
    if kind == "class":
        return _CLASS_SOCKETS[type(classes[0])]
    return "Segmentation" if kind == "mask" else "Float"


def _labels(declared: DeclaredObject) -> dict[str, Any]:
    labels = declared.mapping("labels")
    values = list(labels.values())
    in_range = all(is_integer(value) and 0 < value <= _MAX_LABEL for value in values)
    if not values or not in_range or len(set(values)) < len(values):
        raise declared.fault("labels", f"names with different whole numbers from 1 to {_MAX_LABEL}")
    return labels


def _classes(declared: DeclaredObject) -> tuple[ClassValue, ...]:
    values = declared.content["classes"]
    if isinstance(values, list) and len(values) >= 2:
        in_order = (
            values == [False, True] and all(isinstance(value, bool) for value in values),
            all(map(is_integer, values)) and all(low < high for low, high in pairwise(values)),
            all(map(is_text, values)) and len(set(values)) == len(values),
        )
        if any(in_order):
            return tuple(values)
    raise declared.fault("classes", "false and true, ascending whole numbers or different texts, two or more")


def _words(declared: DeclaredObject, classes: tuple[ClassValue, ...]) -> dict[str, Any]:
    words = declared.words("words")
    if not all(is_member(value, classes) for value in words.values()):
        raise declared.fault("words", "one of the classes for each word")
    return words


def _without(declared: DeclaredObject, classes: tuple[ClassValue, ...]) -> dict[str, Any]:
    without = declared.content.get("without", {})
    if not isinstance(without, dict) or not all(is_member(value, classes) for value in without.values()):
        raise declared.fault("without", "one of the classes for each structure of the mask")
    if classes and len(set(without.values())) == len(classes):
        raise declared.fault("without", "at least one class that is left with all structures")
    return without


def _columns(declared: DeclaredObject, roles: tuple[str, ...]) -> dict[str, Any]:
    columns = declared.mapping("columns")
    names = list(columns.values())
    if set(columns) != set(roles) or not all(map(is_text, names)) or len(set(names)) < len(names):
        raise declared.fault("columns", f"a different text for each of {', '.join(roles)}")
    return columns


def _stand_in(declared: DeclaredObject, kind: Kind, classes: tuple[ClassValue, ...]) -> float | ClassValue | None:
    value = declared.content.get("stand_in")
    if value is None:
        return None
    if kind == "risk":
        number = declared.number("stand_in")
        if declared.content.get("direction") == "time" and number <= 0:
            raise declared.fault("stand_in", "days above 0")
        return number
    if not is_member(value, classes):
        raise declared.fault("stand_in", f"one of the classes {', '.join(map(str, classes))}")
    return value  # type: ignore[no-any-return]
