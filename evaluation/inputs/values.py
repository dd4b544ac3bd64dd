"""Values of single answers in JSON files: a risk or time, or a class; PredictionError for any other content."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.editions import Answer
from contract.editions.declaration import ClassValue
from contract.editions.values import is_member, is_number
from contract.errors import PredictionError
from contract.files import read_json
from evaluation.inputs.hostile import hostile

MAX_VALUE_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class PredictedClass:
    """A predicted class; of two classes, also the probability of the second where one is given."""

    value: ClassValue
    probability: float | None = None


def read_risk(path: Path) -> float:
    """A predicted risk or time: one finite JSON number, neither a text such as "0.7" nor a boolean."""
    value = _read_value(path)
    if is_number(value):
        return float(value)
    if _json_name(value) == "number":
        raise PredictionError(path.name, "the number is too large", "a finite one")
    raise PredictionError(path.name, f"found a {_json_name(value)}", "a number")


def read_class(path: Path, answer: Answer) -> PredictedClass:
    """A predicted class: one of the answer's classes as JSON; of a boolean answer neither 0, 1 nor "true"."""
    value = _read_value(path)
    if is_member(value, answer.classes):
        return PredictedClass(value)
    with hostile(path.name):
        shown = json.dumps(value, ensure_ascii=False)[:40]
    raise PredictionError(path.name, f"found {shown}", _class_names(answer))


def _class_names(answer: Answer) -> str:
    names = [json.dumps(value, ensure_ascii=False) for value in answer.classes]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _read_value(path: Path) -> Any:
    with hostile(path.name):
        return read_json(path, error=PredictionError, max_bytes=MAX_VALUE_BYTES)


def _json_name(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")
