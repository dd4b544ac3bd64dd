"""Risks, times and classes in JSON files, and errors that submitted files cause in their readers."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.editions import Answer
from contract.editions.declaration import ClassValue
from contract.editions.values import is_member, is_number
from contract.errors import PredictionError
from contract.files import read_json

# Circular links, NaN in a header or a folder without permission make readers raise any of these.
_RAISED_BY_FILES: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


@contextmanager
def hostile(name: str) -> Iterator[None]:
    """Raise a PredictionError without a path for any error that reading the submitted file `name` raises.

    The block must only open and parse the file; any other error is a bug of ours and must end the run.
    """
    try:
        yield
    except _RAISED_BY_FILES as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise PredictionError(name, f"cannot be read ({reason or type(problem).__name__})") from None


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
